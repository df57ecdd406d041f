"""The benchmark: its arithmetic on made-up curves, and short real runs as a user starts them."""

import functools
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from torchdeal.benchmark import speed
from torchdeal.benchmark.curves import (
    Measurement,
    Ratio,
    Target,
    TimedProblem,
    ratio,
    ratio_at_its_end,
    seconds_to,
)
from torchdeal.benchmark.images import fit, read_picture
from torchdeal.benchmark.speed import BENCHMARK
from torchdeal.io.checkpoint import card
from torchdeal.reference import reference_reconstruct

QUICK = ["--size", 20, "--sigma", 5, "--threads", 1, "--repeats", 1]
LOOSE = [*QUICK, "--truth-tolerance", 1e-2]  # where only the way there matters


@pytest.fixture
def deal(deal):
    """`deal benchmark speed ...`."""
    return functools.partial(deal, "benchmark", "speed", "--device", "cpu")


def measured(method, *curves, iterations=10, **options):
    return Measurement(method, [list(c) for c in curves], iterations, cg_iterations=50, psnr=30.0, **options)


def problem(*measurements, size=32, **options):
    truth = Target("float64", "CONVERGED", 5e-6, 40, 1.0)
    return TimedProblem(size, "gray", 25.0, "camera", 20.0, 16.0, truth, list(measurements), **options)


SETTINGS = {
    **{"torchdeal": "0", "torch": "2", "device": "cpu", "device_name": "a CPU", "threads": 1, "date": "2026-01-01T00"},
    **{"repeats": 3, "baseline_repeats": 1},
}
OURS = measured("ours", [(1.0, 5e-2), (2.0, 5e-3), (4.0, 5e-4), (5.0, 5e-5)], status="CONVERGED", estimate=8e-5)


def test_a_threshold_counts_from_where_the_curve_stays_below():
    curve = [(1.0, 0.5), (2.0, 0.009), (3.0, 0.02), (4.0, 0.01), (5.0, 0.001)]
    assert seconds_to(curve, 1e-2) == 4.0
    assert seconds_to(curve, 1e-1) == 2.0
    assert seconds_to(curve, 1) == 1.0
    assert seconds_to(curve, 1e-3) == 5.0
    assert seconds_to(curve, 1e-4) is None
    assert seconds_to([(1.0, 1e-3), (2.0, math.nan)], 1e-2) is None
    assert seconds_to([(1.0, 1e-3), (2.0, 2e-2)], 1e-2) is None


def test_median_over_repeats():
    curves = [[(t, 1e-3), (2 * t, 1e-5)] for t in (1.0, 5.0, 2.0)]
    result = measured("ours", *curves)
    assert result.seconds_to(1e-2) == 2.0
    assert result.seconds_to(1e-4) == 4.0
    assert result.total_seconds == 4.0
    assert measured("ours", *curves, [(1.0, 0.1)]).seconds_to(1e-2) is None  # one of them never gets there


def test_ratios():
    slow = measured("tight", [(50.0, 5e-2), (100.0, 5e-3), (400.0, 5e-4)])
    assert ratio(slow, OURS, 1e-2) == Ratio(50.0)
    assert ratio(slow, OURS, 1e-3) == Ratio(100.0)
    assert ratio(slow, OURS, 1e-4) is None  # it ended without getting there
    assert ratio(None, OURS, 1e-2) is None
    assert ratio(slow, None, 1e-2) is None
    assert ratio_at_its_end(slow, OURS) == Ratio(100.0)  # 400 s, against 4 s to 5e-4


def test_ratios_of_a_stopped_baseline_are_lower_bounds():
    stopped = measured("tight", [(50.0, 5e-2), (100.0, 5e-3)], stopped=True)
    assert ratio(stopped, OURS, 1e-2) == Ratio(50.0)
    assert ratio(stopped, OURS, 1e-3) == Ratio(25.0, is_bound=True)
    assert str(Ratio(40.2, is_bound=True)) == "> 40 x"
    assert str(Ratio(4.02)) == "4.0 x"


def write(path, results):
    path.write_text(BENCHMARK.to_json(results, SETTINGS))


def test_json_round_trip(tmp_path):
    results = [problem(OURS, measured("tight", [(1.0, 0.2), (2.0, 0.1)], stopped=True))]
    path = tmp_path / "a.json"
    write(path, results)
    assert BENCHMARK.from_json(path) == (results, SETTINGS)
    content = json.loads(path.read_text())["problems"][0]
    assert content["summary"]["ours"]["seconds_to"] == {"1e-02": 2.0, "1e-03": 4.0, "1e-04": 5.0}
    assert content["ratios"]["tight"]["1e-04"] == {"value": 0.4, "is_bound": True}
    write(path, [problem(measured("tight", [(1.0, math.inf), (2.0, 0.1)]))])
    ((result,), _) = BENCHMARK.from_json(path)
    assert math.isnan(result.measurements[0].curves[0][0][1])
    assert result.measurements[0].seconds_to(1.0) == 2.0


@pytest.mark.parametrize(("have", "size"), [((9, 9), 5), ((9, 8, 3), 6), ((4, 5), 15), ((3, 20), 8)])
def test_pictures_are_cropped_or_mirrored(have, size):
    picture = np.random.default_rng(0).random(have)
    result = fit(picture, size)
    assert result.shape == (size, size, *have[2:])
    assert np.isin(result, picture).all()
    if min(have[:2]) >= size:
        row, column = ((n - size) // 2 for n in have[:2])
        assert np.array_equal(result, picture[row : row + size, column : column + size])


def test_reference_reports_each_iteration(gray):
    y = torch.rand(1, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    seen = []
    result = reference_reconstruct(y, gray, sigma=5, max_outer=3, callback=seen.append)
    assert [s.iterations for s in seen] == [1, 2, 3]
    assert seen[-1] == result


def test_time_in_the_recorder_does_not_count(monkeypatch):
    clock = iter([0.0, 10.0, 13.0, 20.0, 21.0])  # start, then arrival and end of each recording
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    recorder = speed.Recorder(torch.device("cpu"), None)
    truth = torch.ones(1, 1, 2, 2, dtype=torch.float64)
    for x in (0 * truth.float(), truth.float()):
        recorder.record(speed.TimedRun(x, 1, 1))
    assert recorder.curve(truth) == [(10.0, 1.0), (17.0, 0.0)]


def test_a_whole_run(deal, tmp_path):
    code, out, err = deal(*QUICK, "--save", "a.json", "--plot", "a.png")
    assert code == 0
    for word in ("paper-literal", "tight reference", "ours, default", "s to 1e-3", "float64", "CONVERGED", "PSNR"):
        assert word in out
    assert "20 x 20 gray, sigma 5: ours, run 1 of 1" in err
    ((result,), settings) = BENCHMARK.from_json(tmp_path / "a.json")
    ours, default = result.measurement("ours"), result.measurement("default")
    assert ours.status == "CONVERGED"
    assert ours.end_distance < 1e-4
    assert default.end_distance < 1e-3
    assert len(ours.curves[0]) == ours.iterations + 1
    assert ours.cg_iterations > ours.iterations > default.iterations > 2
    assert 0 < ours.seconds_to(1e-2) < ours.total_seconds
    assert result.measurement("paper-literal").end_distance < 0.05  # the same fixed point
    assert ours.psnr > result.noisy_psnr
    assert settings["weights"]["gray"]["sha256"] == card("gray")["sha256"]
    assert Image.open("a.png").size[0] > 500


def test_earlier_results_are_shown_without_measuring(deal, tmp_path):
    stopped = measured("tight", [(50.0, 5e-2), (100.0, 5e-3)], stopped=True)
    results = [problem(OURS, stopped, measured("default", [(n / 9, 1e-4)]), size=n) for n in (32, 64)]
    write(tmp_path / "a.json", results)
    code, out, err = deal("--from", "a.json", "--plot", "b.svg")
    assert code == 0
    assert err == ""
    assert "> 100 (> 25 x)" in out
    assert "stopped after 100 s at distance 5.0e-03" in out
    assert "<svg" in (tmp_path / "b.svg").read_text()
    assert json.loads(deal("--from", "a.json", "--json")[1]) == json.loads((tmp_path / "a.json").read_text())


def test_a_baseline_is_stopped(deal, tmp_path):
    options = ("--methods", "paper-literal", "--max-seconds", 1e-6, "--save", "a.json")
    assert deal(*LOOSE, *options)[0] == 0
    ((result,), _) = BENCHMARK.from_json(tmp_path / "a.json")
    baseline = result.measurement("paper-literal")
    assert baseline.stopped
    assert baseline.iterations == len(baseline.curves[0]) == 1


def test_an_interrupted_run_keeps_what_it_has(deal, monkeypatch, tmp_path):
    solve = speed.solve

    def interrupted(method, *arguments, **options):
        if method == "paper-literal":
            raise KeyboardInterrupt
        return solve(method, *arguments, **options)

    monkeypatch.setattr(speed, "solve", interrupted)
    options = ("--methods", "default,paper-literal", "--save", "a.json")
    code, out, err = deal(*LOOSE, *options)
    assert code == 130
    assert out == ""
    assert "Interrupted" in err
    ((result,), _) = BENCHMARK.from_json(tmp_path / "a.json")
    assert [m.method for m in result.measurements] == ["default"]


def test_an_image_of_ones_own_in_colour(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    assert np.allclose(read_picture("color", path), pixels / 255)
    gray = read_picture("gray", path)
    assert np.allclose(gray, np.asarray(Image.open(path).convert("L")) / 255, atol=1 / 255)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "ours,magic"], "there is no method 'magic'"),
        (["--methods", ","], "no method is left"),
        (["--size", "14"], "size must be at least 15"),
        (["--size", "-3"], "size must be at least 15"),
        (["--sigma", "-1"], "sigma must be finite"),
        (["--repeats", "0"], "repeats must be at least 1"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--max-seconds", "0"], "max-seconds must be above 0"),
        (["--image", "missing.png"], "missing.png: no such file"),
        (["--image", "gray.png", "--kind", "color"], "the image is gray"),
        (["--model", "color"], "the model has 3 channels"),
        (["--model", "grey"], "no weights at grey"),
        (["--plot", "a.xyz"], "unknown format for a plot"),
        (["--plot", "no/a.png"], "does not exist"),
        (["--save", "no/a.json"], "does not exist"),
        (["--from", "missing.json"], "missing.json"),
        (["--from", "other.json"], "does not hold results"),
    ],
)
def test_bad_input_is_one_clear_line(deal, tmp_path, arguments, message):
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / "gray.png")
    (tmp_path / "other.json").write_text('{"a": 1}')
    code, out, err = deal(*arguments)
    assert code == 1
    assert out == ""
    assert err.startswith("Error: ")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_runs_on_a_bare_machine(bare_machine, tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8)).save(tmp_path / "a.png")
    done = bare_machine("speed", "--image", "a.png", "--save", "a.json", "--methods", "default", *LOOSE)
    assert done.returncode == 0, done.stderr
    assert "ours, default: " in done.stderr
    assert "| ours, default |" in done.stdout
    ((result,), _) = BENCHMARK.from_json(tmp_path / "a.json")
    assert result.measurement("default").end_distance < 1e-2
