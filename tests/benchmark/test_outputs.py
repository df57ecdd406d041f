"""What benchmarks write: never over what they read, and in words and JSON that cannot fool a terminal or a parser."""

import json
import os

import numpy as np
import pytest
from PIL import Image

import torchdeal as td
from torchdeal.benchmark.denoising import BENCHMARK

QUICK = ("--sigma", 15, "--threads", 1, "--max-iterations", 1, "--limit", 1, "--device", "cpu")


@pytest.fixture
def pictures(tmp_path):
    path = tmp_path / "pictures"
    path.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)).save(path / "cam.png")
    return path


def tree(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["denoising", "pictures", "--json", "pictures/cam.png"], "a file for the results is --save FILE", 2),
        (["denoising", "pictures", "--json", "-"], "a file for the results is --save FILE", 2),
        (["denoising", "pictures", "--modle", "gray"], "there is no option --modle", 2),
        (["denoising", "pictures", "--save", "pictures/cam.png"], "take a name that ends in .json", 1),
        (["denoising", "pictures", "--save", "-"], "or --json to print them", 1),
        (["denoising", "pictures", "--save", "link.json"], "link.json: would overwrite the input", 1),
        (["denoising", "pictures", "--save", "hard.json"], "hard.json: would overwrite the input", 1),
        (["denoising", "pictures", "--model", "mine.safetensors", "--save", "model.json"], "would overwrite", 1),
        (["denoising", "--from", "old.json", "--save", "old.json"], "old.json: would overwrite the input", 1),
        (["inverse", ".", "--save", "link.json"], "link.json: would overwrite the input", 1),
        (["speed", "--image", "pictures/cam.png", "--plot", "pictures/cam.png"], "would overwrite the input", 1),
        (["speed", "--save", "a.json", "--plot", "a.json"], "unknown format for a plot", 1),
    ],
)
def test_nothing_that_is_read_is_written(deal, pictures, tmp_path, arguments, message, code):
    pytest.importorskip("matplotlib")
    (tmp_path / "link.json").symlink_to(pictures / "cam.png")
    os.link(pictures / "cam.png", tmp_path / "hard.json")
    td.save(td.DEAL(features=4), tmp_path / "mine.safetensors")
    os.link(tmp_path / "mine.safetensors", tmp_path / "model.json")
    (tmp_path / "old.json").write_text("{}")
    before = tree(tmp_path)
    found, out, err = deal("benchmark", *arguments)
    assert (found, out if "--json" not in arguments else "") == (code, "")
    assert message in err
    assert tree(tmp_path) == before


def test_results_may_lie_beside_the_images_and_be_replaced(deal, pictures):
    for _ in range(2):
        assert deal("benchmark", "denoising", "pictures", "--save", "pictures/results.json", *QUICK)[0] == 0
    assert [level.sigma for level in BENCHMARK.from_json(pictures / "results.json")[0]] == [15]


def test_json_is_printed_and_saved_at_once(deal, pictures, tmp_path):
    code, out, _ = deal("benchmark", "denoising", "pictures", "--json", "--save", "a.json", *QUICK)
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / "a.json").read_text())


def test_an_error_is_json_too(deal, pictures, capsys):
    code, out, err = deal("benchmark", "denoising", "nowhere", "--json")
    assert code == 1
    assert "nowhere: no such folder" in json.loads(out)["error"]
    assert "nowhere: no such folder" in err
    with pytest.raises(SystemExit) as stop:  # also on a bare machine
        BENCHMARK.main(["nowhere", "--json"])
    assert stop.value.code == 1
    assert "nowhere: no such folder" in json.loads(capsys.readouterr().out)["error"]


def test_names_do_not_command_the_terminal(deal, pictures, capsys):
    (pictures / "cam.png").rename(pictures / "\x1b]0;owned\x07\u202e.png")
    code, out, err = deal("benchmark", "denoising", "pictures", *QUICK)
    assert code == 0
    assert "\\x1b]0;owned\\x07\\u202e.png" in err
    assert not {"\x1b", "\x07", "\u202e"} & set(out + err)
    with pytest.raises(SystemExit):
        BENCHMARK.main(["\x1b[2J"])
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        '{"format": "torchdeal-benchmark-denoising-1", "levels": [], "settings": {}}',
        '{"format": "torchdeal-benchmark-denoising-1", "levels": [{"sigma": 1, "images": []}], "settings": {}}',
        '{"format": "torchdeal-benchmark-denoising-1", "levels": 3, "settings": {}}',
        "[1]",
        "[" * 100_000,
        "",
    ],
)
def test_a_file_of_something_else_is_one_line(deal, tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    code, out, err = deal("benchmark", "denoising", "--from", "a.json")
    assert (code, out) == (1, "")
    assert err == "Error: a.json: does not hold results that deal benchmark denoising --save wrote\n"
