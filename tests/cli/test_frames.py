"""Stacks, folders and scans through the commands: batches, one noise or several, warm starts."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from cli.helpers import noise, only_result, pixels, psnr, save
from scans import in_units, slices, write_dicom, write_nifti

from torchdeal.cli import run

LIGHT = ("--model", "gray-light", "--tolerance", 0.01)
QUICK = ("--model", "gray-light", "--sigma", 10, "--max-iterations", 1)


@pytest.fixture
def sizes(monkeypatch):
    """Of the batches that are solved, and whether each had a first guess."""
    reconstruct, found = run.reconstruct, []

    def spy(y, *given, **options):
        found.append((len(y), options["start"] is not None))
        return reconstruct(y, *given, **options)

    monkeypatch.setattr(run, "reconstruct", spy)
    return found


def noisy_stack(name="in.tif", frames=3, sigmas=(10, 20, 30), size=24, moving=0, scale=257):
    clean = np.stack([pixels(size=size, column=170 + moving * number) for number in range(frames)])
    stack = clean + np.stack([noise((size, size), sigmas[n % len(sigmas)], seed=n) for n in range(frames)])
    tifffile.imwrite(name, (stack * scale).clip(0, 65535).round().astype(np.uint16), photometric="minisblack")
    return clean


class TestBatches:
    def test_frames_together_as_one_by_one(self, deal, sizes):
        noisy_stack(scale=20)  # little of the bit depth: each frame has a white of its own
        arguments = ("denoise", "in.tif", *LIGHT, "--json", "--no-warm-start")
        alone = only_result(deal(*arguments, "alone.tif")[1])
        together = only_result(deal(*arguments, "together.tif", "--batch", 3)[1])
        assert sizes == [(1, False)] * 3 + [(3, False)]
        assert together["sigma"] == alone["sigma"]
        assert together["frames"] == 3
        assert together["iterations"] == pytest.approx(alone["iterations"], rel=0.2)
        a, b = (tifffile.imread(name).astype(float) for name in ("together.tif", "alone.tif"))
        assert np.linalg.norm(a - b) < 0.02 * np.linalg.norm(b)

    @pytest.mark.parametrize("model", [("--noise-model", "poisson", "--gain", 2), ("--noise-model", "impulse")])
    def test_other_noise(self, deal, sizes, model):
        noisy_stack(size=12, frames=2)
        arguments = ("denoise", "in.tif", "--model", "gray-light", "--max-iterations", 2, *model)
        deal(*arguments, "alone.tif")
        deal(*arguments, "together.tif", "--batch", 4)
        assert sizes[-1] == (2, False)
        a, b = (tifffile.imread(name).astype(float) for name in ("together.tif", "alone.tif"))
        assert np.linalg.norm(a - b) < 0.01 * np.linalg.norm(b)

    def test_files_of_a_folder_are_reported_in_order_and_fail_alone(self, deal, sizes):
        os.mkdir("in")
        for name, size in (("a", 16), ("b", 20), ("d", 16), ("e", 20)):
            save(f"in/{name}.png", pixels(size=size))
        Path("in/c.png").write_text("hello")
        code, out, _ = deal("denoise", "in", "out", *QUICK, "--batch", 2, "--json")
        report = json.loads(out)
        assert code == 1
        assert [Path(result["output"]).name for result in report["results"]] == ["a.png", "b.png", "d.png", "e.png"]
        assert list(report["failures"]) == ["in/c.png"]
        assert sizes == [(2, False)] * 2

    def test_an_error_of_a_batch_is_that_of_one_file(self, deal, monkeypatch):
        os.mkdir("in")
        for name in "abc":
            picture = pixels(size=16).clip(0, 100)
            picture[0, 0] = 100 if name == "b" else 255
            save(f"in/{name}.png", picture)
        reconstruct = run.reconstruct

        def fails(y, *given, **options):
            if bool((y.flatten(1).amax(1) < 130).any()):
                raise ValueError("too dark")
            return reconstruct(y, *given, **options)

        monkeypatch.setattr(run, "reconstruct", fails)
        code, out, _ = deal("denoise", "in", "out", *QUICK, "--batch", 3, "--json")
        assert code == 1
        assert json.loads(out)["failures"] == {"in/b.png": "too dark"}
        assert sorted(os.listdir("out")) == ["a.png", "c.png"]

    def test_error_bars_of_a_batch(self, deal):
        noisy_stack(size=10, frames=2)
        for name, batch in (("alone", 1), ("together", 2)):
            arguments = ("--batch", batch, "--error-bars", f"{name}.npy", "--no-warm-start")
            assert deal("denoise", "in.tif", f"{name}.tif", *QUICK, *arguments)[0] == 0
        a, b = np.load("together.npy"), np.load("alone.npy")
        assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)

    def test_a_blur_for_all(self, deal, sizes):
        noisy_stack(size=16)
        arguments = ("deblur", "in.tif", "out.tif", "--kernel", "gaussian:1", "--boundary", "reflect", *QUICK)
        assert deal(*arguments, "--batch", 3)[0] == 0
        assert sizes == [(3, False)]


class TestWarmStarts:
    def test_frames_that_are_alike(self, deal, sizes):
        clean = noisy_stack(sigmas=(20,), moving=1, size=32)
        warm = only_result(deal("denoise", "in.tif", "warm.tif", *LIGHT, "--json")[1])
        assert sizes == [(1, False), (1, True), (1, True)]
        cold = only_result(deal("denoise", "in.tif", "cold.tif", *LIGHT, "--json", "--no-warm-start")[1])
        assert sizes[3:] == [(1, False)] * 3
        assert warm["cg_iterations"] < cold["cg_iterations"]
        a, b = (tifffile.imread(name) / 257 for name in ("warm.tif", "cold.tif"))
        assert np.linalg.norm(a - b) < 0.02 * np.linalg.norm(b)
        assert psnr(a, clean) == pytest.approx(psnr(b, clean), abs=0.1)

    def test_frames_that_are_not(self, deal, sizes):
        frames = [pixels(size=16), 255 - pixels(size=16), pixels("astronaut", 16)[..., 0]]
        tifffile.imwrite("in.tif", np.stack(frames).astype(np.uint8), photometric="minisblack")
        deal("denoise", "in.tif", "out.tif", *QUICK)
        assert sizes == [(1, False)] * 3


class TestNoise:
    def test_of_each_frame_or_of_all(self, deal, sizes):
        noisy_stack(sigmas=(10, 20, 40), size=48)
        frame, stack = (
            only_result(
                deal("denoise", "in.tif", f"{per}.tif", *LIGHT[:2], "--max-iterations", 1, *option, "--json")[1]
            )
            for per, option in (("frame", ()), ("stack", ("--noise-per", "stack")))
        )
        assert frame["sigma"] == pytest.approx(70 / 3, rel=0.15)
        assert stack["sigma"] == pytest.approx(20, rel=0.2)
        assert stack["sigma_low"] > frame["sigma_low"]


class TestScans:
    def test_nifti(self, deal):
        nibabel = pytest.importorskip("nibabel")
        volume = slices(3, 32, sigma=60)
        volume[2] = -1000  # a slice of air: its noise says nothing about that of the others
        write_nifti("in.nii.gz", volume, slope=0.5, intercept=-100)
        code, out, err = deal("denoise", "in.nii.gz", "out.nii.gz", *LIGHT, "--json")
        result, after = only_result(out), nibabel.load("out.nii.gz")
        clean = slices(3, 32, sigma=0)
        assert code == 0
        assert "on the 0..255 scale of sigma, 255 is" in err
        unit = float(err.split("255 is ")[1].split()[0]) / 255
        assert result["sigma"] * unit == pytest.approx(60, rel=0.25)
        assert after.shape == (32, 32, 3)
        found = after.get_fdata().T
        assert np.abs(found[:2] - clean[:2]).mean() < 0.5 * np.abs(volume[:2] - clean[:2]).mean()
        assert np.abs(found[2] + 1000).max() < 5

    def test_a_series_of_dicom(self, deal):
        pytest.importorskip("pydicom")
        os.makedirs("study/head")
        volume, clean = slices(3, 32, sigma=60), slices(3, 32, sigma=0)
        for number in range(3):
            write_dicom(f"study/head/IM{number}", volume[number], place=-number)
        save("study/note.png", pixels(size=16))
        code, out, _ = deal("denoise", "study", "out", "--recursive", *LIGHT, "--json")
        assert code == 0
        assert [(r["output"], r["frames"]) for r in json.loads(out)["results"]] == [
            ("out/note.png", 1),
            ("out/head", 3),
        ]
        assert sorted(os.listdir("out/head")) == ["IM0", "IM1", "IM2"]
        for number in range(3):
            found, before = (in_units(f"{folder}/head/IM{number}") for folder in ("out", "study"))
            assert np.abs(found - clean[number]).mean() < 0.6 * np.abs(before - clean[number]).mean()
        code, _, err = deal("denoise", "study", "out", "--recursive", *LIGHT, "--skip-existing")
        assert (code, "2 of 2 are skipped" in err) == (0, True)

    def test_one_file_of_dicom(self, deal):
        pytest.importorskip("pydicom")
        write_dicom("IM0", slices(1)[0])
        os.mkdir("out")
        assert deal("denoise", "IM0", "out", *QUICK)[0] == 0
        assert deal("denoise", "IM0", "one.dcm", *QUICK)[0] == 0
        assert np.array_equal(in_units("out/IM0"), in_units("one.dcm"))

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            (("denoise", "series", "series"), "would overwrite the input"),
            (("denoise", "series", "out.nii.gz"), "the output must be a folder"),
            (("denoise", "series/IM0", "out.nii.gz"), "DICOM is not written as NIfTI"),
            (("denoise", "series/IM0", "out.png"), "PNG cannot hold the values of a scan"),
            (("upscale", "series", "out", "--scale", 2), "a scan is not enlarged"),
            (("denoise", "picture.png", "out.dcm"), "DICOM is written of DICOM alone"),
            (("denoise", "series", "picture.png"), "the output must be a folder"),
        ],
    )
    def test_what_cannot_be(self, deal, arguments, why):
        pytest.importorskip("pydicom")
        os.mkdir("series")
        write_dicom("series/IM0", slices(1)[0])
        save("picture.png", pixels(size=16))
        before = sorted(os.listdir())
        code, _, err = deal(*arguments)
        assert code == 1
        assert why in err
        assert sorted(os.listdir()) == before
