"""Load: small runs as a user starts them, neighbours that are gone afterwards, and the table of made-up results."""

import multiprocessing
import time

import pytest
import torch

from torchdeal.benchmark import command, load
from torchdeal.benchmark.results import Results, Row

CELL = "20 x 20 gray, sigma 25"


@pytest.fixture
def benchmark(tmp_path, capsys, monkeypatch):
    """`deal benchmark load` on a picture of 20 x 20: what was printed, and the results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(load, "QUICK_SIZES", (20,))

    def run(*arguments):
        command.main(["load", "--quick", "--out", "out", *arguments])
        return capsys.readouterr().out, Results.load(tmp_path / "out" / "load.json")

    return run


def test_all_situations_and_what_is_missing_later(benchmark):
    out, results = benchmark("--methods", "deal-light")
    assert [row.variant for row in results.rows] == [f"{name}, run 1" for name in load.SITUATIONS]
    assert all(0 < row.values["seconds"] < 60 for row in results.rows)
    assert [row.values["threads"] for row in results.rows] == [1, *3 * [torch.get_num_threads()]]
    assert len({row.values["iterations"] for row in results.rows}) == 1
    assert "in turn" in out
    assert multiprocessing.active_children() == []
    _, again = benchmark("--methods", "deal-light", "--resume")
    assert again.rows == results.rows


def test_a_busy_process_ends_with_its_need():
    with load.busy(2):
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_runs_at_once_begin_together(monkeypatch, tmp_path):
    began = []

    def answers(method, problems, cell, device):
        began.append(time.perf_counter())
        return [(None, {"seconds": 1.0, "iterations": 3})]

    class Late:
        def wait(self, timeout):
            time.sleep(0.2)

    monkeypatch.setattr(load, "answers", answers)
    options = load.BenchmarkOptions(out=tmp_path, device="cpu", quick=True, threads=torch.get_num_threads())
    values = load.timed("deal-light", next(load.cells(options)), options, Late())
    assert values["seconds"] == 1.0
    warm_up, run = began
    assert run - warm_up >= 0.2


def test_the_table_has_medians_and_what_they_say():
    results = Results("load", {"threads": 2}, cells={CELL: {"table": "Load", "column": CELL}})
    measured = {
        "one thread": (9.0, 8.0, 10.0),
        "all threads": (5.0, 4.0, 50.0),
        "beside a busy process": (7.5,),
        "two at once": (12.0,),
    }
    for name, runs in measured.items():
        for run, seconds in enumerate(runs, 1):
            results.add(Row(CELL, "camera", "deal", {"seconds": seconds}, f"{name}, run {run}"))
    results.add(Row(CELL, "camera", "deal-light", {"seconds": 2.0}, "all threads, run 1"))
    (section,) = load.EXPERIMENT.sections(results)
    (table,) = section.tables
    assert table.rows == [
        ["DEAL", "9", "5 (1.80 x faster)", "7.5 (1.50 x idle)", "12 (1.20 x in turn)"],
        ["DEAL, light weights", "", "2", "", ""],
    ]
    assert section.text == "camera, 2 threads"
