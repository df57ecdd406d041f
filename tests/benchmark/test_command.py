"""`deal benchmark` as a user starts it: what is refused, what an interruption leaves, what is printed."""

import json
import os
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from conftest import small_model
from PIL import Image

import torchdeal as td
from torchdeal.benchmark import EXPERIMENTS
from torchdeal.benchmark.peers import DENOISERS
from torchdeal.benchmark.peers.base import Peer
from torchdeal.benchmark.results import Results

DENOISE = ("denoising", "--images", "mine", "--sigmas", 15, 25, "--methods", "scaled")


def tree(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_image(path, shape=(24, 24), seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(path)


def write_model(path, seed=0):
    td.save(small_model(1, features=4, seed=seed, dtype=torch.float32), path)


@pytest.fixture
def mine(tmp_path):
    """Three gray pictures of one's own."""
    for seed, name in enumerate("abc"):
        write_image(tmp_path / "mine" / f"{name}.png", seed=seed)
    return tmp_path / "mine"


def lines(done):
    """A mistake is one line, and nothing is printed beside it."""
    assert done.out == ""
    assert done.err.startswith("Error: ")
    (line,) = done.err.splitlines()
    return line


def same(results):
    """All that does not depend on the day."""
    kept = ("seconds", "batch")
    rows = [
        (row.cell, row.image, row.method, {k: v for k, v in row.values.items() if k not in kept})
        for row in results.rows
    ]
    return rows, results.cells, results.settings, results.weights, results.parameters, results.reasons


@dataclass(frozen=True, eq=False)
class Interrupted:
    """Ctrl-C comes while it does its n-th image."""

    at: int
    calls: list = field(default_factory=list)

    def __call__(self, y, sigma):
        self.calls.append(sigma)
        if len(self.calls) == self.at:
            raise KeyboardInterrupt
        return y * 0.9


def register(monkeypatch, method, name="slow"):
    monkeypatch.setitem(DENOISERS, name, Peer(lambda *_: method, "nobody", ("denoising",)))


@pytest.mark.usefixtures("mine", "scaled")
@pytest.mark.parametrize("at", [1, 2, 4, 6])
def test_an_interrupted_run_goes_on(command, monkeypatch, tmp_path, at):
    given = (*DENOISE, "slow")
    register(monkeypatch, Interrupted(at=-1))
    whole = command(*given, "--out", "whole")
    assert whole.code == 0
    register(monkeypatch, Interrupted(at))
    done = command(*given)
    assert done.code == 130
    assert done.out == ""
    assert done.err.splitlines()[-1] == "Interrupted: what was measured is in out; go on with --resume"
    kept = len([row for row in Results.load(tmp_path / "out" / "denoising.json").rows if row.method == "slow"])
    assert kept == at - 1
    rest = Interrupted(at=-1)
    register(monkeypatch, rest)
    done = command(*given, "--resume")
    assert done.code == 0
    assert len(rest.calls) == 6 - kept
    assert same(done.results) == same(Results.load(tmp_path / "whole" / "denoising.json"))
    assert len(done.results.environments) == 2
    assert {row.environment for row in done.results.rows} <= {0, 1}
    assert command(*given, "--resume").results.rows == done.results.rows
    assert len(rest.calls) == 6 - kept


@pytest.mark.usefixtures("mine", "scaled")
def test_results_are_not_replaced_by_accident(command, tmp_path):
    assert command(*DENOISE).code == 0
    before = tree(tmp_path)
    done = command(*DENOISE)
    assert done.code == 1
    assert lines(done) == "Error: out/denoising.json is there already: go on with it by --resume, or take another --out"
    for option, setting in ((("--tolerance", 0.01), "tolerance"), (("--max-iterations", 500, "--quick"), "quick")):
        done = command(*DENOISE, "--resume", *option)
        assert lines(done) == f"Error: out/denoising.json was measured with another {setting}: take another --out"
    assert tree(tmp_path) == before
    (tmp_path / "out" / "denoising.json").write_text(
        (tmp_path / "out" / "denoising.json").read_text().replace('"experiment": "denoising"', '"experiment": "ct"')
    )
    assert lines(command(*DENOISE, "--resume")) == "Error: out/denoising.json holds results of ct: take another --out"


@pytest.mark.usefixtures("mine", "scaled")
def test_a_tolerance_of_many_digits_can_be_resumed(command):
    for _ in range(2):
        assert command(*DENOISE, "--resume", "--tolerance", 0.00123456789).code == 0


@pytest.mark.usefixtures("mine")
def test_other_weights_are_refused(command, tmp_path):
    given = ("denoising", "--images", "mine", "--sigmas", 15, "--methods", "deal", "--max-iterations", 1)
    for seed, name in enumerate(("one", "two")):
        write_model(tmp_path / f"{name}.safetensors", seed)
    assert command(*given, "--model", "one.safetensors").code == 0
    done = command(*given, "--model", "two.safetensors", "--resume")
    assert "was measured with another model" in lines(done)
    os.replace(tmp_path / "mine" / "c.png", tmp_path / "mine" / "d.png")  # something is missing
    path = tmp_path / "out" / "denoising.json"
    content = json.loads(path.read_text())
    content["weights"]["deal"]["gray"] = "0" * 64
    path.write_text(json.dumps(content))
    done = command(*given, "--model", "one.safetensors", "--resume")
    assert done.err.splitlines()[-1] == "Error: deal was measured with other weights before: take another --out"


@pytest.mark.usefixtures("scaled")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--images", "mine", "--model", "model.safetensors", "--out", "linked"], "would overwrite the input"),
        (["--images", "mine", "--model", "model.safetensors", "--out", "hard"], "would overwrite the input"),
        (["--images", "mine", "--out", "picture"], "denoising.csv: would overwrite the input"),
        (["--data", ".", "--out", "kernel"], "report.md: would overwrite the input"),
        (["--images", "old/pictures/denoising", "--out", "old"], "this is where pictures of results go"),
    ],
)
def test_nothing_that_is_read_is_written(command, mine, tmp_path, folder, arguments, message):
    for name in ("linked", "hard", "picture", "kernel"):
        (tmp_path / name).mkdir()
    write_model(tmp_path / "model.safetensors")
    (tmp_path / "linked" / "denoising.json").symlink_to(tmp_path / "model.safetensors")
    os.link(tmp_path / "model.safetensors", tmp_path / "hard" / "denoising.json")
    (tmp_path / "picture" / "denoising.csv").symlink_to(mine / "a.png")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.npz").write_bytes(b"kernels")
    (tmp_path / "kernel" / "report.md").symlink_to(tmp_path / "kernels" / "k.npz")
    write_image(tmp_path / "old" / "pictures" / "denoising" / "a.png")
    before = tree(tmp_path)
    done = command("denoising", "--methods", "scaled", "--pictures", 1, "--resume", *arguments)
    assert done.code == 1
    assert message in lines(done)
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("scaled")
def test_results_may_lie_beside_the_images(command, mine):
    before = tree(mine)
    for _ in range(2):
        assert command(*DENOISE, "--out", "mine", "--resume", "--pictures", 1).code == 0
    after = tree(mine)
    assert {name: after[name] for name in before} == before
    assert {row.image for row in Results.load(mine / "denoising.json").rows} == set("abc")


@pytest.mark.usefixtures("mine", "scaled")
@pytest.mark.parametrize("content", ["", "[1]", "[" * 100_000, '{"a": 1}', None])
def test_damaged_results_are_one_line(command, tmp_path, content):
    assert command(*DENOISE).code == 0
    path = tmp_path / "out" / "denoising.json"
    path.write_text(path.read_text()[:300] if content is None else content)
    before = tree(tmp_path)
    for given in ((*DENOISE, "--resume"), ("report",)):
        done = command(*given)
        assert done.code == 1
        assert lines(done) == "Error: out/denoising.json: does not hold results that deal benchmark wrote"
    done = command("report", "--json")
    assert json.loads(done.out).keys() == {"error"}
    assert tree(tmp_path) == before


@pytest.fixture
def broken(folder, tmp_path):
    """Data in which something is wrong, by what it is."""
    folders = {}
    for name in ("image", "kernel", "number", "short", "knees", "slices", "stems", "stack", "set"):
        data = folders[name] = tmp_path / name
        for part in ("Set12", "BSD68", "CBSD68", "MRI-knee", "CT"):
            (data / "test" / part).mkdir(parents=True)
            for path in (folder / "test" / part).iterdir():
                os.link(path, data / "test" / part / path.name)
        (data / "kernels").mkdir()
        for path in (folder / "kernels").iterdir():
            os.link(path, data / "kernels" / path.name)
    for file in ("image/test/CBSD68/0001.png", "kernel/kernels/Levin09.npz", "number/kernels/Levin09.npz"):
        (tmp_path / file).unlink()
    (tmp_path / "image/test/CBSD68/0001.png").write_bytes(b"no image")
    np.savez(tmp_path / "number/kernels/Levin09.npz", k1=np.ones((3, 3)) / 9)
    (tmp_path / "short/test/CBSD68/0000.png").unlink()
    write_image(tmp_path / "short/test/CBSD68/0000.png", (20, 40, 3))
    for name, first in (("knees", "MRI-knee/[ab].png"), ("slices", "CT/[cd].png")):
        for path in (tmp_path / name / "test").glob(first):
            path.unlink()
    write_image(tmp_path / "stems/test/BSD68/a.tif")
    np.save(tmp_path / "stack/test/BSD68/d.npy", np.zeros((2, 40, 40, 1), np.float32))
    for path in (tmp_path / "set/test/CBSD68").iterdir():
        path.unlink()
    return tmp_path


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["denoising"], "give the folder that holds test/ and kernels/: --data DIR"),
        (["denoising", "--data", "image"], "0001.png: not a readable image"),
        (["denoising", "--data", "image/test"], "BSD68: no such folder"),
        (["denoising", "--data", "short"], "0000.png: the image is 20 x 40, at least 32 x 32 is needed; take it out"),
        (["denoising", "--data", "stems"], "a.png and a.tif have the same name; rename one"),
        (["denoising", "--data", "stack"], "d.npy: a stack of 2 images; save them one by one"),
        (["denoising", "--data", "set"], "CBSD68: no images in this folder"),
        (["deblur", "--data", "kernel"], "Levin09.npz: no such file; it should hold the blur kernels"),
        (["deblur", "--data", "number"], "Levin09.npz: there is no kernel 3"),
        (["superres", "--data", "short"], "at least 32 x 32 is needed"),
        (["mri", "--data", "knees"], "MRI-knee: more than 5 images are needed: parameters are chosen on the first 5"),
        (["ct", "--data", "slices"], "CT: more than 2 images are needed"),
        (["all", "--data", "number"], "there is no kernel 3"),
        (["denoising", "--data", "number", "--model", "nowhere"], "no weights at nowhere"),
        (["denoising", "--data", "image", "--cells", "sigma 7"], "there is no such cell"),
        (["denoising", "--data", "image", "--methods", "wccr"], "there is no method wccr here"),
        (["report"], "out: there are no results of deal benchmark in this folder; see --out"),
    ],
)
def test_bad_data_is_told_before_anything_is_measured(command, scaled, tmp_path, arguments, message):
    done = command(*arguments, *([] if "--methods" in arguments else ["--methods", "scaled"]))
    assert done.code == 1
    assert message in lines(done)
    assert scaled.calls == []
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("mine", "scaled")
def test_printed_json_is_the_file(command, tmp_path):
    done = command(*DENOISE, "--json")
    assert done.code == 0
    content = json.loads((tmp_path / "out" / "denoising.json").read_text())
    assert json.loads(done.out) == content
    assert json.loads(command("report", "--json").out) == {"denoising": content}
    assert str(tmp_path) not in json.dumps(content)


@pytest.mark.usefixtures("mine", "scaled")
def test_an_error_is_json_too(command, deal):
    done = command("denoising", "--images", "nowhere", "--json")
    assert (done.code, list(json.loads(done.out))) == (1, ["error"])
    for code, given in ((1, ["--images", "nowhere"]), (2, ["--modle", "gray"])):
        found, out, err = deal("benchmark", "denoising", *given, "--json")
        assert found == code
        assert json.loads(out)["error"] in err


@pytest.mark.usefixtures("mine", "scaled")
@pytest.mark.parametrize("given", [["microscopy"], ["denoising", "mine"], ["denoising", "--modle", "gray"], []])
def test_words_that_are_not_ours_exit_with_2(deal, given):
    code, out, err = deal("benchmark", *given)
    assert (code, out) == (2, "")
    assert "see deal benchmark --help" in " ".join(err.split())


def test_help_names_all_experiments(deal):
    code, out, _ = deal("benchmark", "--help")
    assert code == 0
    for name, about in EXPERIMENTS.items():
        assert f"{name} " in out
        assert about in out


@pytest.mark.usefixtures("scaled")
def test_names_do_not_command_the_terminal(command, mine):
    (mine / "a.png").rename(mine / "\x1b]0;owned\x07\u202e.png")
    done = command(*DENOISE, "--pictures", 3)
    assert done.code == 0
    assert "\\x1b]0;owned\\x07\\u202e" in done.err
    assert not {"\x1b", "\x07", "\u202e"} & set(done.out + done.err)
    assert "\x1b" not in command("denoising", "--images", "\x1b[2J").err


def test_runs_on_a_bare_machine(bare_machine, mine, tmp_path):
    given = ("--sigmas", 15, "--methods", "deal", "bm3d", "nlm", "--max-iterations", 2, "--limit", 1)
    done = bare_machine("denoising", "--images", "mine", "--out", "out", *given)
    assert done.returncode == 0, done.stderr
    results = Results.load(tmp_path / "out" / "denoising.json")
    assert [(row.image, row.method) for row in results.rows] == [("a", "deal")]
    assert "pip install" in results.reasons["mine, sigma 15"]["nlm"]
    assert (tmp_path / "out" / "report.html").is_file()
    assert "sigma 15" in done.stdout
