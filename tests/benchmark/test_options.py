"""What can be told, what is refused, and which cells are meant."""

from pathlib import Path

import pytest

from torchdeal.benchmark import EXPERIMENTS
from torchdeal.benchmark.options import BenchmarkOptions, UsageError, parse
from torchdeal.benchmark.peers.base import Unavailable

CELLS = ["BSD68, sigma 5", "BSD68, sigma 25", "BSD68, sigma 50", "CBSD68, sigma 5", "CBSD68, sigma 25"]


def read(*arguments):
    return parse([*arguments], "deal benchmark", EXPERIMENTS)


def test_defaults():
    name, options, as_json = read("ct")
    assert (name, options.out, as_json, options.methods, options.cells) == ("ct", Path("benchmark"), False, (), ())
    assert options.device in ("cpu", "cuda")
    assert (options.quick, options.resume, options.tune) == (False, False, False)


def test_lists():
    _, options, as_json = read("denoising", "--methods", "deal,tv", "bm3d", "--sigmas", "5", "7.5", "--json")
    assert options.methods == ("deal", "tv", "bm3d")
    assert options.sigmas == (5, 7.5)
    assert as_json


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["microscopy"],
        ["denoising", "pictures"],
        ["denoising", "--modle", "gray"],
        ["denoising", "--mod", "gray"],
        ["denoising", "--limit", "many"],
        ["denoising", "--limit"],
        ["denoising", "--device", "tpu"],
        ["denoising", "--images", ""],
    ],
)
def test_words_that_are_not_ours(arguments):
    with pytest.raises(UsageError, match="see deal benchmark --help"):
        read(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "0"], "limit must be at least 1, got 0"),
        (["--pictures", "-1"], "pictures must be at least 0"),
        (["--max-iterations", "0"], "max-iterations must be at least 1"),
        (["--repeats", "0"], "repeats must be at least 1"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--threads", "99999999"], "threads must be at most 1024"),
        (["--tolerance", "0"], "tolerance must be finite and above 0"),
        (["--tolerance", "inf"], "tolerance must be finite and above 0"),
        (["--sigmas", "15", "nan"], "sigmas must be finite and above 0"),
        (["--sigmas", "-5"], "sigmas must be finite and above 0"),
        (["--data", "nowhere"], "nowhere: no such folder; see --data"),
        (["--images", "nowhere"], "nowhere: no such folder; see --images"),
        (["--peers-dir", "nowhere"], "nowhere: no such folder; see --peers-dir"),
    ],
)
def test_numbers_and_folders_that_cannot_be(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        read("denoising", *arguments)
    assert not isinstance(error.value, UsageError)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ((), CELLS),
        (("BSD68, sigma 25",), ["BSD68, sigma 25"]),  # the whole name of one, a part of another
        (("sigma 25",), ["BSD68, sigma 25", "CBSD68, sigma 25"]),
        (("cbsd",), ["CBSD68, sigma 5", "CBSD68, sigma 25"]),
        (("BSD68, sigma 5", "sigma 50"), ["BSD68, sigma 5", "BSD68, sigma 50"]),
        (("BSD68, sigma 5", "nothing"), ["BSD68, sigma 5"]),
    ],
)
def test_cells(asked, meant):
    assert BenchmarkOptions(out=Path(), cells=asked).chosen(CELLS) == meant


def test_there_is_no_such_cell():
    with pytest.raises(Unavailable, match="no such cell; choose from BSD68, sigma 5; BSD68, sigma 25"):
        BenchmarkOptions(out=Path(), cells=("sigma 7",)).chosen(CELLS)


def test_as_many_images_as_are_wanted():
    names = list("abcde")
    assert BenchmarkOptions(out=Path()).images_at_most(names) == names
    assert BenchmarkOptions(out=Path(), quick=True).images_at_most(names) == ["a"]
    assert BenchmarkOptions(out=Path(), quick=True, limit=3).images_at_most(names) == ["a", "b", "c"]


def test_data_is_asked_for():
    with pytest.raises(ValueError, match="--data DIR"):
        BenchmarkOptions(out=Path()).folder("test")
