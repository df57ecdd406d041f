"""Results of several machines become one."""

from dataclasses import replace

import pytest
from results_by_hand import denoising, other, rows

from torchdeal.benchmark.merging import merge
from torchdeal.benchmark.results import Results

CELL = "BSD68, sigma 15"


def machine(name, *found, **settings):
    """What one machine measured."""
    results = replace(denoising(**settings), reasons={}, environments=[{"device_name": "idle"}, {"device_name": name}])
    results.rows = [replace(row, environment=1) for row in found]
    return results


def load(folder):
    return Results.load(folder / "denoising.json")


@pytest.fixture
def folders(tmp_path):
    """The first machine had no bm3d, the second no total variation."""
    one = machine("one", *rows(CELL, "tv", other(29.0), other(28.0)))
    one.reasons = {CELL: {"bm3d": "it needs bm3d", "epll": "it is slow"}}
    one.parameters = {CELL: {"tv": {"strength": 1.0}}}
    two = machine("two", *rows(CELL, "tv", other(20.0), other(20.0), other(27.0)), *rows(CELL, "bm3d", other(31.0)))
    two.reasons = {CELL: {"dncnn": "there are no weights", "epll": "it is late"}, "CBSD68, sigma 15": {"tv": "why"}}
    two.parameters = {CELL: {"tv": {"strength": 2.0}, "nlm": {"width": 0.5}}}
    for name, results in (("one", one), ("two", two)):
        (tmp_path / name).mkdir()
        results.save(tmp_path / name)
    return tmp_path / "one", tmp_path / "two"


def test_what_only_the_other_has_is_added(folders):
    one, two = folders
    merge(one, [two])
    found = load(one)
    levels = {(row.method, row.image): row.values["psnr"] for row in found.rows}
    assert levels == {("tv", "a"): 29.0, ("tv", "b"): 28.0, ("tv", "c"): 27.0, ("bm3d", "a"): 31.0}  # the first wins
    places = {(row.method, row.image): found.environments[row.environment]["device_name"] for row in found.rows}
    assert places == {("tv", "a"): "one", ("tv", "b"): "one", ("tv", "c"): "two", ("bm3d", "a"): "two"}
    assert found.reasons[CELL] == {"dncnn": "there are no weights", "epll": "it is slow"}
    assert found.reasons["CBSD68, sigma 15"] == {"tv": "why"}
    assert found.parameters[CELL] == {"tv": {"strength": 1.0}, "nlm": {"width": 0.5}}


def test_again_changes_nothing(folders):
    one, two = folders
    merge(one, [two])
    before = load(one)
    merge(one, [two])
    assert load(one) == before


def test_into_a_new_folder(folders, tmp_path):
    merge(tmp_path / "new", folders)
    first, second = load(tmp_path / "new"), load(folders[0])
    assert first.rows[: len(second.rows)] == [replace(row, environment=0) for row in second.rows]
    assert first.settings == second.settings
    assert list(first.cells) == list(second.cells)


def test_a_file_of_another_name_does_not_replace_what_is_there(folders):
    one, two = folders
    (two / "denoising.json").rename(two / "of-the-other-machine.json")
    merge(one, [two])
    assert {row.method for row in load(one).rows} == {"tv", "bm3d"}
    assert not (one / "of-the-other-machine.json").exists()


def test_where_a_cell_lies_is_kept_and_its_number_of_problems_comes(folders):
    one, two = folders
    results = load(two)
    results.cells[CELL] = {"table": "another table", "column": "another column", "problems": 3}
    results.cells["new"] = {"table": "new", "column": "new"}
    results.save(two)
    merge(one, [two])
    assert load(one).cells[CELL] == {**denoising().cells[CELL], "problems": 3}
    assert load(one).cells["new"] == {"table": "new", "column": "new"}


def test_different_settings_and_weights_are_refused_as_a_whole(folders, tmp_path):
    one, two = folders
    better = load(two)
    for change, message in (
        ({"settings": {**better.settings, "limit": 3}}, "results of different settings cannot be joined"),
        ({"weights": {"deal": {"gray": "another"}}}, "deal was measured with different weights"),
    ):
        replace(better, **change).save(two)
        (two / "ct.json").write_text((two / "denoising.json").read_text().replace('"denoising"', '"ct"'))  # is fine
        before = {path.name: path.read_bytes() for path in one.iterdir()}
        with pytest.raises(ValueError, match=message):
            merge(one, [two])
        assert {path.name: path.read_bytes() for path in one.iterdir()} == before
