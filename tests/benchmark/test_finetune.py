"""Fine-tuning: files are split, rows are what the library finds, runs go on, the table is that of the rows."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.benchmark import finetune
from torchdeal.benchmark.images import draw_noise
from torchdeal.benchmark.microscopy import write_pictures
from torchdeal.benchmark.results import Results, Row
from torchdeal.io.checkpoint import checksum, last_run
from torchdeal.metrics import psnr
from torchdeal.training.data import read_pictures

TITLE = "simulated microscopy"


@pytest.fixture
def start(tmp_path):
    """The file of a model with few filters."""
    td.save(small_model(features=4, dtype=torch.float32).requires_grad_(False), tmp_path / "small.safetensors")
    return tmp_path / "small.safetensors"


@pytest.mark.parametrize(("count", "sizes"), [(20, (12, 2, 6)), (40, (24, 4, 12)), (3, (1, 1, 1)), (4, (2, 1, 1))])
def test_every_file_is_in_one_part(count, sizes):
    paths = [Path(f"{number:02}.png") for number in range(count)]
    parts = finetune.split(paths)
    assert tuple(map(len, parts)) == sizes
    assert [path for part in parts for path in part] == paths


def test_two_files_are_too_few():
    with pytest.raises(ValueError, match=r"at least 3 .* are needed, .*; there are 2"):
        finetune.split([Path("a.png"), Path("b.png")])


@pytest.mark.parametrize(("start", "size", "slowness"), [("gray", 128, 2), ("gray-light", 48, 4)])
def test_settings_fit_the_weights(start, size, slowness):
    config = finetune.fitting_config("cuda", td.load(start), start, quick=False)
    assert (config.model.features, config.loss.slowness, config.data.patch) == (size, slowness, 128)


def test_rows_are_what_the_library_finds(start, command, folder, tmp_path):
    run = command("finetune", "--quick", "--sigmas", 25, "--model", start, "--also", folder / "test" / "Set12")
    assert run.code == 0, run.err
    (best,) = (tmp_path / "out" / "runs").glob(f"{TITLE}, small, *[0-9a-f]/best.safetensors")
    assert run.results.weights == {
        "before": {"small": checksum(start)},
        "after": {f"{TITLE}, small": checksum(best)},
    }
    files = {TITLE: tmp_path / "out" / TITLE / "03.png", "Set12": folder / "test" / "Set12" / "01.png"}
    for pictures, path in files.items():
        (pixels,), _ = read_pictures([path], channels=1, smallest=15)
        clean = torch.from_numpy(pixels)[None].float() / 255
        y = clean + draw_noise(clean, 25)
        for method, weights in (("before", start), ("after", best)):
            (row,) = run.results.select(f"{TITLE}, small: {pictures}, sigma 25", method)
            rec = td.reconstruct(y, model=td.load(weights), sigma=25 / 255, max_iterations=40)
            assert row.image == path.name
            assert row.values["psnr"] == pytest.approx(psnr(rec.x, clean), abs=1e-3)
    made = last_run(best)
    assert (made["steps"], made["started_from"], made["config"]["data"]["patch"]) == (2, str(start), 24)
    assert f"{TITLE}, small: 2 steps in" in run.out


def test_neither_validation_nor_test_is_trained_on(start, command, monkeypatch):
    seen = {}
    monkeypatch.setattr(finetune, "read_images", lambda paths, **_: seen.update(train=paths) or stop())
    monkeypatch.setattr(finetune, "_denoised", lambda *_: {"psnr": 30.0, "iterations": 9})

    def stop():
        raise ValueError("enough")

    assert command("finetune", "--quick", "--model", start).code == 1
    assert [path.name for path in seen["train"]] == ["00.png", "01.png"]


def test_a_folder_of_stacks_and_subfolders(start, command, monkeypatch, tmp_path):
    """Each picture of a stack is a row, by its place in the folder. What cannot be trained on is told."""
    random = np.random.default_rng(0)
    for folder, frames in (("a", ()), ("b", (2,))):
        (tmp_path / "own" / folder).mkdir(parents=True)
        for number in range(4):
            side = 8 if (folder, number) == ("a", 1) else 30
            pixels = random.integers(0, 4096, (*frames, side, side), dtype=np.uint16)
            tifffile.imwrite(tmp_path / "own" / folder / f"{number}.tif", pixels, imagej=True)
    monkeypatch.setattr(finetune, "_others", lambda *_: {})
    run = command("finetune", "--quick", "--limit", 2, "--sigmas", 25, "--model", start, "--images", "own")
    assert run.code == 0, run.err
    rows = run.results.select("own, small: own, sigma 25", "after")
    assert {row.image for row in rows} == {"b/2.tif, 0", "b/2.tif, 1", "b/3.tif, 0", "b/3.tif, 1"}
    assert "1.tif: 8 x 8, smaller than a patch of 24 x 24" in run.err


def test_two_folders_of_one_name_are_refused(start, command, tmp_path):
    write_pictures(tmp_path / "one" / "cells", 3, 32)
    write_pictures(tmp_path / "two" / "cells", 3, 32)
    run = command("finetune", "--quick", "--model", start, "--images", "one/cells", "--also", "two/cells")
    assert run.code == 1
    assert "--also has the name of the folder that is trained on; rename one" in run.err


def test_a_run_that_was_interrupted_goes_on(start, command, monkeypatch, tmp_path):
    arguments = ("finetune", "--quick", "--sigmas", 25, "--model", start)
    with monkeypatch.context() as patch:
        patch.setitem(finetune.QUICK, "steps", 4)
        whole = finetune.Trainer.run

        def interrupted(self, until=None):
            state = whole(self, until=3)
            self.stop_reason = "SIGINT"
            return state

        patch.setattr(finetune.Trainer, "run", interrupted)
        assert command(*arguments).code == 130
    run = command(*arguments, "--resume")
    assert run.code == 0, run.err
    told = next(iter(run.results.parameters.values()))["after"]
    assert told["steps"] == 4  # as it was begun
    rows = run.results.rows
    monkeypatch.setattr(finetune.FineTuningRun, "trained", lambda *_: pytest.fail("it is complete"))
    assert command(*arguments, "--resume").results.rows == rows


def test_the_steps_fill_the_time(monkeypatch, tmp_path):
    """Those that compile are not counted."""
    clock = [0.0]

    class Slow:
        done, stop_reason, device = 0, None, torch.device("cpu")

        def __init__(self, *_, **__): ...

        def run(self, until):
            clock[0] += 100.0 if not self.done else 0.5 * (until - self.done)
            self.done = until

    monkeypatch.setattr(finetune, "Trainer", Slow)
    monkeypatch.setattr(finetune.time, "monotonic", lambda: clock[0])
    config = finetune.fitting_config("cpu", td.load("gray-light"), "gray-light", quick=False)
    images = type("Images", (), {"pixels": torch.zeros(1)})
    assert finetune.FineTuningRun(config, tmp_path, "gray-light", [], [])._steps_in(60.0, images) == 120


def test_on_a_bare_machine(start, bare_machine):
    run = bare_machine("finetune", "--quick", "--sigmas", 25, "--model", start)
    assert run.returncode == 0, run.stderr
    assert "what is lost elsewhere is not measured" in run.stderr
    assert "give a folder by --also" in run.stderr
    assert "| simulated microscopy | small | simulated microscopy | sigma 25 |" in run.stdout


def test_gains_are_those_of_the_same_pictures():
    place = {"trained on": "knees", "from": "gray", "tested on": "knees", "noise": "sigma 15"}
    results = Results("finetune", {}, cells={"cell": {"table": "Fine-tuning", "column": "cell", **place}})
    values = {"before": {"a": 30.0, "b": 20.0, "c": 50.0}, "after": {"b": 21.5, "a": 30.5}}
    for method, levels in values.items():
        for image, level in levels.items():
            results.add(Row("cell", image, method, {"psnr": level, "iterations": 10 if method == "before" else 12}))
    results.parameters["cell"] = {"after": {"steps": 4000, "minutes": 3.04, "files": 12, "best_step": 3000}}
    (section,) = finetune.EXPERIMENT.sections(results)
    (line,) = section.tables[0].rows
    gain = "+1.00 (+0.50 to +1.50)"
    assert list(line) == [*place.values(), "2", "25.00", "26.00", gain, "+0.50", "10.0, 12.0"]
    note = (
        "knees, gray: 4,000 steps in 3.0 minutes, 12 files; the best on the validation pictures are those after 3,000"
    )
    assert section.notes == [note]


def test_without_rows_there_is_no_table():
    (section,) = finetune.EXPERIMENT.sections(Results("finetune", {}))
    assert (section.tables, section.notes) == ([], [])


def test_other_pictures_of_the_same_name_are_refused(start, command, monkeypatch, tmp_path):
    monkeypatch.setattr(finetune, "_denoised", lambda *_: {"psnr": 30.0, "iterations": 9})
    monkeypatch.setattr(finetune, "_others", lambda *_: {})
    for number, folder in enumerate(("one", "two")):
        write_pictures(tmp_path / folder / "cells", 3 + number, 32)
    arguments = ("finetune", "--quick", "--sigmas", 25, "--model", start)
    assert command(*arguments, "--images", "one/cells").code == 0
    run = command(*arguments, "--images", "two/cells", "--resume")
    assert run.code == 1
    assert "was measured with other pictures or weights before: take another --out" in run.err


def test_a_folder_without_pictures_is_refused_before_anything_is_measured(start, command, tmp_path):
    (tmp_path / "empty").mkdir()
    run = command("finetune", "--quick", "--sigmas", 25, "--model", start, "--images", "empty")
    assert run.code == 1
    assert "empty: at least 3 JPEG, PNG, WebP or TIFF pictures are needed" in run.err
    run = command("finetune", "--quick", "--sigmas", 25, "--model", start, "--also", "empty")
    assert run.code == 1
    assert "empty: no JPEG, PNG, WebP or TIFF pictures; give another folder by --also" in run.err
