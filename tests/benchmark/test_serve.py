"""Serving under load: the tables of made-up results, and what is counted as the work of others."""

import time

import pytest

pytest.importorskip("httpx", reason="the clients need httpx")

from torchdeal.benchmark import clients, serve
from torchdeal.benchmark.results import Results, Row


def results(cell, **variants):
    found = Results("serve", {}, cells={cell: {"table": "Serve", "column": cell}})
    for name, values in variants.items():
        found.add(Row(cell, "camera", serve.OURS, values, name.replace("_", " ")))
    return found


def table(found):
    (section,) = serve.EXPERIMENT.sections(found)
    return section.tables[0].rows


def test_load():
    waits = {"per_second": 2.0, "median": 0.5, "p95": 0.75, "p99": 1.0, "requests": 8, "answered": 8}
    served = {**waits, "clients": 4, "batch": 2, "mean_batch": 1.6, "different": 1, "cpu": 0.6, "others": 0.25}
    assert table(results(serve.LOAD, alone=waits, served=served)) == [
        ["none: in Python, one after the other", "", "2", "0.5", "0.75", "1", "", "8 of 8", "", "", ""],
        ["4", "2", "2", "0.5", "0.75", "1", "1.6", "8 of 8", "1", "0.6", "0.25"],
    ]


def test_harm_is_told():
    name = next(iter(clients.HARMFUL))
    found = results(serve.HARM)
    found.add(Row(serve.HARM, "camera", serve.OURS, {"expected": "408", "answered_by": "500", "well": False}, name))
    assert table(found) == [[name, "408", "500", "NO"]]


def test_memory_and_crowd():
    assert table(results(serve.MEMORY, after={"requests": 500, "answered": 499, "mib": 301.4})) == [
        ["500", "499", "301"]
    ]
    crowd = {"clients": 12, "queue": 2, "requests": 36, "answered": 36, "sent_away": 30.0, "longest": 5.25}
    assert table(results(serve.CROWD, crowd=crowd)) == [["12", "2", "36 of 36", "30", "5.25"]]


def test_tails_of_waits():
    values = serve._waits([1.0] * 99 + [3.0], total=50.0)
    assert (values["per_second"], values["median"], values["p95"]) == (2.0, 1.0, 1.0)
    assert 1 < values["p99"] < 3


def test_the_work_of_this_process_is_not_that_of_others():
    before, began = serve.busy_seconds(), time.process_time()
    while time.process_time() - began < 0.2:
        pass
    assert serve.busy_seconds() - before < 4.0  # of a machine that does other things


def test_harmful_pictures_are_small_files():
    assert len(clients.bomb(3000)) < 20_000
    assert clients.good_png()[:4] == b"\x89PNG"
    assert b"builtins" in clients.pickled()
