"""Which files a command reads and writes, and which it must not touch."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from cli.helpers import load, pixels, save

import torchdeal as td

QUICK = ("--sigma", 10, "--max-iterations", 1)


def contents():
    return {path: path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


def written(folder="out"):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


@pytest.fixture
def files(deal):
    """One of each kind of file that commands read."""
    save("in.png", pixels(size=20))
    save("kernel.png", np.full((3, 3), 255))
    save("mask.png", 255 * (np.arange(400).reshape(20, 20) % 3 > 0))
    np.save("kspace.npy", np.fft.fft2(np.ones((2, 16, 16))).astype(np.complex64))
    np.save("maps.npy", np.ones((2, 16, 16), np.complex64))
    np.save("sinogram.npy", np.ones((4, 16)))
    np.save("levels.npy", np.full((20, 20), 10.0))
    np.save("angles.npy", np.arange(4) * 45.0)
    td.save(td.load("gray"), "weights.safetensors")
    Path("weights.png").hardlink_to("weights.safetensors")
    Path("link.png").symlink_to("kernel.png")
    Path("hard.npy").hardlink_to("angles.npy")


SIMULATE = ("--simulate", "--save-degraded")
OVERWRITING = [
    ("denoise", "in.png", "weights.png", "--model", "weights.safetensors"),
    ("denoise", "in.png", "out.png", *SIMULATE, "in.png"),
    ("denoise", "in.png", "levels.npy", "--noise-map", "levels.npy"),
    ("deblur", "in.png", "kernel.png", "--kernel", "kernel.png"),
    ("deblur", "in.png", "link.png", "--kernel", "kernel.png"),
    ("deblur", "in.png", "out.png", "--kernel", "kernel.png", *SIMULATE, "kernel.png"),
    ("deblur", "in.png", "mask.png", ".", "--kernel", "kernel.png"),
    ("upscale", "in.png", "kernel.png", "--scale", 2, "--kernel", "kernel.png"),
    ("inpaint", "in.png", "mask.png", "mask.png"),
    ("inpaint", "in.png", "mask.png", "--mask", "mask.png"),
    ("inpaint", "in.png", "out.png", "--mask", "mask.png", *SIMULATE, "mask.png"),
    ("mri", "kspace.npy", "kspace.npy"),
    ("mri", "kspace.npy", "maps.npy", "--maps", "maps.npy"),
    ("ct", "sinogram.npy", "angles.npy", "--angles", "angles.npy"),
    ("ct", "sinogram.npy", "hard.npy", "--angles", "angles.npy"),
    ("ct", "in.png", "out.png", "--angles", "angles.npy", *SIMULATE, "angles.npy"),
]


@pytest.mark.parametrize("arguments", OVERWRITING, ids=lambda arguments: " ".join(map(str, arguments)))
@pytest.mark.usefixtures("files")
def test_no_output_is_an_input(deal, arguments):
    before = contents()
    code, out, err = deal(*arguments, "--max-iterations", 1)
    assert (code, out) == (1, "")
    assert "would overwrite the input" in err
    assert contents() == before


@pytest.mark.usefixtures("files")
def test_no_file_is_written_twice(deal):
    before = contents()
    code, _, err = deal("denoise", "in.png", "out.png", *SIMULATE, "./out.png")
    assert code == 1
    assert "would be written twice" in err
    assert contents() == before


@pytest.mark.parametrize("out", ["out.png", "out.tiff", "out.npy", "out.gif", "out.bmp"])
def test_several_inputs_do_not_go_into_a_folder_that_is_called_like_a_picture(deal, out):
    save("a.png", pixels(size=16))
    save("b.png", pixels(size=16))
    for inputs in (["a.png", "b.png"], ["."]):
        code, _, err = deal("denoise", *inputs, out)
        assert code == 1
        assert "the output must be a folder" in err
        assert not os.path.exists(out)


def test_a_folder_that_is_called_like_a_picture_is_a_folder(deal):
    save("a.png", pixels(size=16))
    os.mkdir("out.png")
    assert deal("denoise", "a.png", "out.png", *QUICK)[0] == 0
    assert written("out.png") == ["a.png"]


def test_an_output_without_a_suffix_is_explained(deal):
    save("a.png", pixels(size=16))
    code, _, err = deal("denoise", "a.png", "out/")
    assert code == 1
    assert "create the folder, or add a suffix" in err
    assert not os.path.exists("out")


def a_tree():
    """Two pictures at different depths, and what is none."""
    os.makedirs("in/deep/er")
    for name in ("in/a.png", "in/deep/er/b.png", "in/.hidden.png"):
        save(name, pixels(size=16))
    os.mkdir("in/.git")
    save("in/.git/c.png", pixels(size=16))
    for name in ("in/1.txt", "in/2.txt", "in/README"):
        Path(name).touch()
    os.mkfifo("in/pipe.png")
    Path("in/deep/circle").symlink_to(Path("in").absolute())


def test_a_folder_without_what_is_below_it(deal):
    a_tree()
    code, _, err = deal("denoise", "in", "out", *QUICK)
    assert code == 0
    assert written() == ["a.png"]
    note = next(line for line in err.splitlines() if line.startswith("Note: in: left out"))
    for told in ("2 .txt", "2 hidden", "1 without a suffix", "1 pipes", "1 in folders (--recursive"):
        assert told in note


def test_a_folder_with_what_is_below_it(deal):
    a_tree()
    code, _, err = deal("denoise", "in", "out", "--recursive", *QUICK)
    assert code == 0
    assert written() == ["a.png", "deep/er/b.png"]
    assert "1 links to folders" in err


def test_results_inside_of_the_input_are_not_read_again(deal):
    a_tree()
    for _ in range(2):
        assert deal("denoise", "in", "in/out", "--recursive", *QUICK)[0] == 0
        assert written("in/out") == ["a.png", "deep/er/b.png"]


def test_a_folder_is_never_written_onto_itself(deal):
    a_tree()
    before = contents()
    code, _, err = deal("denoise", "in", "in", "--recursive", *QUICK)
    assert code == 1
    assert "would overwrite the input" in err
    assert contents() == before


def test_folders_are_made_for_results_only(deal):
    os.makedirs("in/bad")
    save("in/good.png", pixels(size=16))
    Path("in/bad/broken.png").write_text("hello")
    code, _, err = deal("denoise", "in", "out", "--recursive", *QUICK)
    assert code == 1
    assert "in/bad/broken.png" in err
    assert os.listdir("out") == ["good.png"]


def test_a_file_where_a_folder_is_needed(deal):
    a_tree()
    os.mkdir("out")
    Path("out/deep").write_text("mine")
    code, _, err = deal("denoise", "in", "out", "--recursive", *QUICK)
    assert code == 1
    assert "out/deep: not a folder" in err
    assert written() == ["deep"]


def test_what_exists_can_be_skipped(deal):
    os.mkdir("in")
    for name in "ab":
        save(f"in/{name}.png", pixels(size=16))
    os.mkdir("out")
    Path("out/a.png").write_text("mine")
    code, out, err = deal("denoise", "in", "out", "--skip-existing", "--json", *QUICK)
    assert code == 0
    assert Path("out/a.png").read_text() == "mine"
    assert "1 of 2 are skipped" in err
    report = json.loads(out)
    assert report["skipped"] == ["out/a.png"]
    assert [result["output"] for result in report["results"]] == ["out/b.png"]
    assert deal("denoise", "in", "out", "--skip-existing", "--json", *QUICK)[0] == 0
    assert deal("denoise", "in", "out", *QUICK)[0] == 0
    assert Path("out/a.png").read_bytes() == Path("out/b.png").read_bytes()


def test_pipes_and_devices_are_no_files(deal):
    save("in.png", pixels(size=16))
    os.mkfifo("pipe.png")
    Path("full.png").symlink_to("/dev/full")
    for source, target, message in (
        ("pipe.png", "out.png", "a folder, pipe or device"),
        ("in.png", "pipe.png", "no plain file"),
        ("in.png", "full.png", "no plain file"),
    ):
        code, _, err = deal("denoise", source, target)
        assert code == 1
        assert message in err
    assert Path("pipe.png").is_fifo()
    assert not os.path.exists("out.png")


def test_what_is_missing_is_named_first(deal):
    for arguments in (("missing/", "out"), ("missing.png", "out"), ("missing.png", "missing/out.png")):
        assert f"{Path(arguments[0])}: no such file" in deal("denoise", *arguments)[2]


def test_links_that_lead_in_circles(deal):
    save("in.png", pixels(size=16))
    Path("circle.png").symlink_to("circle.png")
    code, _, err = deal("denoise", "circle.png", "out.png", *QUICK)
    assert code == 1
    assert "circle.png: no such file" in err
    assert deal("denoise", "in.png", "circle.png", *QUICK)[0] == 0
    assert load("circle.png").shape == (16, 16)


def test_an_empty_argument_is_not_the_folder_one_is_in(deal):
    save("in.png", pixels(size=16))
    for arguments in (("", "out"), ("in.png", "")):
        code, _, err = deal("denoise", *arguments)
        assert code == 1
        assert "an argument is empty" in err
    assert os.listdir(".") == ["in.png"]
