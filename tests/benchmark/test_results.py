"""The files of results: what is read is what was written, by whatever reads JSON and CSV."""

import csv
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchdeal.benchmark.results import Results, Row, environment, source_checksum

NAME = '\x1b]0;owned\x07,"\n\udcff'
DAMAGES = [
    "",
    "[1]",
    "3",
    "{}",
    "[" * 100_000,
    '{"format": "torchdeal-results-1"}',
    '{"format": "torchdeal-results-2"}',
]


def results(*rows):
    made = Results("denoising", {"quick": True, "limit": None, "tolerance": 1e-3})
    made.cells = {"a set": {"table": "A table", "column": "sigma 5", "problems": 2}}
    made.weights, made.parameters = {"deal": {"gray": "0f"}}, {"a set": {"tv": {"strength": 0.5}}}
    made.environments = [{"date": "2026-01-01"}, environment("cpu")]
    for row in rows:
        made.add(row)
    return made


def row(image="a", method="deal", **values):
    return Row("a set", image, method, values, environment=1)


def test_round_trip(tmp_path):
    made = results(row(psnr=31.25, status="CONVERGED", iterations=7), row(NAME, psnr=20.5), row("b", "tv", seconds=0.1))
    made.reasons = {"a set": {"bm3d": "it needs bm3d"}}
    made.save(tmp_path)
    assert Results.load(tmp_path / "denoising.json") == made


def test_numbers_that_json_lacks_are_null(tmp_path):
    made = results(
        row(psnr=math.inf, distance=math.nan, seconds=1 / 3), row("b", psnr=-math.inf, curve=[1.0, math.nan])
    )
    made.save(tmp_path)
    content = json.loads((tmp_path / "denoising.json").read_text(), parse_constant=pytest.fail)
    assert [line[5:] for line in content["rows"]] == [[None, None, 0.333333, None], [None, None, None, [1.0, None]]]
    first, second = Results.load(tmp_path / "denoising.json").rows
    assert first.values == {"seconds": 0.333333}
    assert second.values == {"curve": [1.0, None]}


def test_columns_and_rows_are_the_table(tmp_path):
    results(row(psnr=31.25, status="STALLED"), row("b", "tv", seconds=0.1)).save(tmp_path)
    content = json.loads((tmp_path / "denoising.json").read_text())
    table = [dict(zip(content["columns"], line, strict=True)) for line in content["rows"]]
    keys = {"cell": "a set", "variant": "", "environment": 1}
    assert table == [
        {**keys, "image": "a", "method": "deal", "psnr": 31.25, "status": "STALLED", "seconds": None},
        {**keys, "image": "b", "method": "tv", "psnr": None, "status": None, "seconds": 0.1},
    ]
    lines = (tmp_path / "denoising.json").read_text().splitlines()
    assert '["a set", "b", "", "tv", 1, null, null, 0.1]' in lines  # one row a line, for people and for git


def test_csv_is_the_same_table(tmp_path):
    results(row(NAME, psnr=31.25, distance=math.nan), row("b", "tv", psnr=7.0)).save(tmp_path)
    content = json.loads((tmp_path / "denoising.json").read_text())
    with (tmp_path / "denoising.csv").open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head == content["columns"]
    expected = [["" if value is None else str(value) for value in line] for line in content["rows"]]
    assert expected[0][1] == NAME
    expected[0][1] = NAME.replace("\udcff", "\\udcff")
    assert lines == expected


def test_a_row_takes_the_place_of_a_reason():
    made = results()
    made.reasons = {"a set": {"deal": "no memory", "tv": "no time"}, "other": {"deal": "no memory"}}
    assert made.methods() == ["deal", "tv"]
    made.add(row(psnr=30.0))
    assert made.reasons == {"a set": {"tv": "no time"}, "other": {"deal": "no memory"}}
    assert made.select("a set", "deal") == made.rows


def test_a_failed_save_leaves_what_was_there(tmp_path):
    results(row(psnr=30.0)).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TypeError):
        results(row(psnr=object())).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_source_changes_with_any_python_file(tmp_path, monkeypatch):
    package = SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("torchdeal.benchmark.results.torchdeal", package)
    found = []
    for name, text in (("__init__.py", ""), ("a.py", "x = 1"), ("a.py", "x = 2"), ("b.txt", "other")):
        (tmp_path / name).write_text(text)
        found.append(source_checksum.__wrapped__())
    assert len(set(found[:3])) == 3
    assert found[3] == found[2]


def test_the_environment_names_versions_and_device():
    found = environment("cpu")
    assert {"date", "torchdeal", "torch", "numpy", "python", "device_name", "threads"} <= found.keys()
    assert found["device"] == "cpu"
    assert found["source"] == source_checksum()
    assert len(found["source"]) == 12
    assert str(Path.home()) not in json.dumps(found)


@pytest.mark.parametrize("content", DAMAGES, ids=range(len(DAMAGES)))
def test_a_file_of_something_else(tmp_path, content):
    path = tmp_path / "denoising.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"denoising.json: does not hold results that deal benchmark wrote$"):
        Results.load(path)


@pytest.mark.parametrize("wrong", [3, None, "x", [1], {"x": 3}])
@pytest.mark.parametrize(
    "part", ["columns", "rows", "experiment", "cells", "weights", "parameters", "reasons", "environments"]
)
def test_a_part_of_something_else(tmp_path, part, wrong):
    results(row(psnr=30.0)).save(tmp_path)
    path = tmp_path / "denoising.json"
    content = json.loads(path.read_text())
    content[part] = 3 if part == "experiment" else wrong
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="does not hold results"):
        Results.load(path)


def test_a_file_that_ends_early(tmp_path):
    results(row(psnr=30.0)).save(tmp_path)
    path = tmp_path / "denoising.json"
    content = path.read_bytes()
    for length in range(0, len(content) - 3, 97):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="does not hold results"):
            Results.load(path)
