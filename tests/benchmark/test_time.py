"""Time and memory: processes of their own, small runs as a user starts them, and the tables of made-up results."""

import math
import multiprocessing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import processes
import pytest
import torch
from skimage import data

from torchdeal.benchmark import command, time
from torchdeal.benchmark.alone import run_alone
from torchdeal.benchmark.mri import SAMPLINGS
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers import Unavailable, find_denoiser
from torchdeal.benchmark.peers.base import tunable
from torchdeal.benchmark.results import Results, Row
from torchdeal.benchmark.tuning import known_parameters
from torchdeal.metrics import psnr

GRAY = "denoising 24 x 24 gray, sigma 25"


@pytest.fixture
def benchmark(tmp_path, capsys, monkeypatch):
    """`deal benchmark EXPERIMENT` on pictures of 24 x 24: exit code, what was printed, and the results of `time`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "QUICK_PICTURES", {"24 x 24 gray": (1, 24), "24 x 24 colour": (3, 24)})

    def run(*arguments, name="time"):
        code = 0
        try:
            command.main([name, "--quick", "--device", "cpu", "--out", "out", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code
        path, captured = tmp_path / "out" / "time.json", capsys.readouterr()
        return code, captured.out, captured.err, Results.load(path) if path.exists() else None

    return run


def test_a_function_alone():
    assert run_alone(processes.add, 2, 3, most_seconds=60) == 5
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("function", "most_seconds", "reason"),
    [
        (processes.fail, 60, "ZeroDivisionError: this is not possible"),
        (processes.die, 60, "its process ended with code 3"),
        (processes.be_killed, 60, "its process was killed, as systems do when memory runs out"),
        (processes.wait_for_ever, 0.6, "it takes more than 0.01 minutes"),
    ],
)
def test_a_function_that_does_not_return(function, most_seconds, reason):
    with pytest.raises(Unavailable, match=f"^{reason}$"):
        run_alone(function, most_seconds=most_seconds)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("before", [0, 300])
def test_memory_is_what_a_function_holds_at_most(before):
    counted, _ = run_alone(processes.hold, before, 200, most_seconds=60)
    assert 180 <= counted <= 220


def test_two_methods_and_what_is_missing_later(benchmark):
    code, _, _, first = benchmark("--cells", "gray", "--methods", "tv")
    assert code == 0
    (row,) = first.rows
    clean = torch.from_numpy(data.camera()[244:268, 244:268] / 255).float()[None, None]
    draws = np.random.RandomState(0).normal(0, 25 / 255, (24, 24)).astype(np.float32)
    chosen = known_parameters("denoising", "gray, sigma 25", "tv", method := find_denoiser("tv").make(None, 1, "cpu"))
    expected = replace(method, **chosen["tv"])(clean + torch.from_numpy(draws), 25.0)
    assert row.values["psnr"] == pytest.approx(psnr(expected, clean), abs=1e-3)
    assert 0 < row.values["fastest"] == row.values["seconds"] < 60
    assert 0 <= row.values["memory_mib"] < 500
    assert (row.image, row.values["runs"], row.values["threads"]) == ("camera", 1, torch.get_num_threads())

    options = ("--cells", "gray", "--methods", "tv", "deal-1e-2", "wcrr", "--resume")
    code, out, _, results = benchmark(*options)
    assert code == 0
    assert results.rows[0] == row
    (added,) = results.rows[1:]
    assert added.method == "deal-1e-2"
    assert added.values["status"] == "CONVERGED"
    assert 1e-3 < added.values["distance"] < 1e-2
    assert results.weights["deal-1e-2"].keys() == {"gray"}
    assert "WCRR: not measured: " in out
    assert "--peers-dir" in results.reasons[GRAY]["wcrr"]


def test_the_scan_is_that_of_the_data(benchmark, folder):
    cells = {"4x": "MRI 4x single coil, 64 x 64", "8x": "MRI 8x 15 coils, 64 x 64"}
    code, out, _, results = benchmark("--cells", "MRI", "--methods", "zero-filling", "--data", folder)
    assert code == 0
    for sampling, cell in zip(SAMPLINGS, cells.values(), strict=True):
        (row,) = results.select(cell, "zero-filling")
        assert row.image == "a"
        (problem,) = time._simulated_scan(BenchmarkOptions(out=folder, data=folder), sampling, 64)
        shift, unshift = partial(np.fft.fftshift, axes=(-2, -1)), partial(np.fft.ifftshift, axes=(-2, -1))
        coils = shift(np.fft.ifft2(unshift(problem.y.numpy()), norm="ortho"))
        maps = problem.operator.maps.numpy() if sampling.coils > 1 else np.ones(1)
        image = (maps.conj() * coils).sum(1).real.clip(0, 1)
        error = np.mean((image - problem.clean.numpy()[0]) ** 2)
        assert row.values["psnr"] == pytest.approx(-10 * math.log10(error), abs=0.01)
    quoted = [table for section in time.EXPERIMENT.sections(results) for table in section.tables if table.quoted]
    reported = [{line[0]: line[1:] for line in table.rows} for table in quoted]
    assert [table["DEAL"] for table in reported] == [["14", "17"], ["22", "18"]]
    assert "not measured here: seconds for a fastMRI image on one V100" in out


def test_a_phantom_stands_in_for_the_data():
    (problem,) = time._simulated_scan(BenchmarkOptions(out="out"), SAMPLINGS[0], 48)
    assert problem.image == "phantom"
    assert problem.clean.shape == (1, 1, 48, 48)
    assert problem.clean.max() == 1
    assert problem.clean[0, 0, 0].abs().max() < 0.01 < problem.clean[0, 0, 24].mean()  # nothing at the border


def test_a_method_that_dies_is_a_reason(tmp_path):
    options = BenchmarkOptions(out=tmp_path, device="cpu", methods=("tv",))
    cell = next(time.cells(options))
    problems = cell.problems()
    deadly = replace(cell, problems=Once(problems))
    results, lines = Results("time", {}), []
    time.EXPERIMENT.measure(deadly, options, results, lambda: None, lines.append)
    assert results.rows == []
    assert results.reasons == {cell.name: {"tv": "its process ended with code 3"}}
    assert lines == [f"{cell.name}, tv: its process ended with code 3"]


@dataclass(frozen=True)
class Once:
    """Problems for this process; the other one ends when it asks for them."""

    problems: list

    def __call__(self):
        return self.problems

    def __reduce__(self):
        return partial, (processes.die,)


@dataclass(frozen=True)
class Made:
    lam: float = tunable(1.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("first", "quick", "found"),
    [(9.0, False, (2.0, 1.0, 3)), (61.0, False, (61.0, 61.0, 1)), (9.0, True, (9.0, 9.0, 1))],
)
def test_seconds_are_the_median_after_a_warm_up(monkeypatch, tmp_path, first, quick, found):
    seconds = iter([first, 3.0, 1.0, 2.0])
    used = []

    def answers(method, batch, cell, device):
        used.append(method)
        return [(batch[0].clean, {"seconds": next(seconds), "batch": 1})]

    monkeypatch.setattr(time, "answers", answers)
    monkeypatch.setattr(time, "find_method", lambda name, cell, options: Made())
    monkeypatch.setattr(time, "known_parameters", lambda kind, group, name, method: {name: {"lam": 2.0}})
    options = BenchmarkOptions(out=tmp_path, device="cpu", quick=quick, threads=torch.get_num_threads())
    values = time.timed("tv", next(time.cells(options)), options)
    assert (values["seconds"], values["fastest"], values["runs"]) == found
    assert values["parameters"] == {"lam": 2.0}
    assert {method.lam for method in used} == {2.0}


def test_the_best_comes_first_with_its_price():
    results = Results("time", {}, cells={GRAY: {"table": "Time", "column": GRAY}})
    measured = [
        ("tv", 27.0, 0.5, None),
        ("deal", 29.126, 2.0, 123.4),
        ("mmr", 28.0, 50.0, 99),
    ]
    for method, level, seconds, memory in measured:
        results.add(Row(GRAY, "camera", method, {"psnr": level, "seconds": seconds, "memory_mib": memory}))
    (section,) = time.EXPERIMENT.sections(results)
    (table,) = section.tables
    assert [line[:5] for line in table.rows] == [
        ["DEAL", "29.13", "2", "1 x", "123"],
        ["MMR", "28.00", "50", "25 x", "99"],
        ["Total variation", "27.00", "0.5", "0.25 x", "?"],
    ]


def test_all_methods_are_tried():
    chosen = time._default_methods("denoising", False)
    assert chosen[:3] == ["deal", "deal-1e-2", "deal-light"]
    assert {"bm3d", "tv", "dncnn", "wcrr", "epll"} < set(chosen)
    assert {"deal", "deal-light", "zero-filling", "tv"} < set(time._default_methods("mri", True))
    assert "deal-rule" not in time._default_methods("mri", True)


def test_a_method_that_does_not_exist(benchmark):
    code, out, err, results = benchmark("--methods", "magic")
    assert (code, out, results) == (1, "", None)
    assert err.startswith("Error: there is no method magic here; choose from deal, ")
    assert len(err.splitlines()) == 1


def test_all_experiments_leave_out_those_without_the_methods(benchmark, monkeypatch):
    monkeypatch.setattr(command, "EXPERIMENTS", {"speed": "", "time": "", "all": ""})
    code, _, err, results = benchmark("--methods", "tv", "--cells", "gray", name="all")
    assert code == 0
    assert "speed: there is no method tv here" in err
    assert [row.method for row in results.rows] == ["tv"]
