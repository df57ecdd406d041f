"""Speed: the arithmetic on made-up curves, and short real runs as a user starts them."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from torchdeal.benchmark import command, curves, speed
from torchdeal.benchmark.curves import FIXED_POINT, Runs, curve_values, seconds_to
from torchdeal.benchmark.images import fit, read_picture
from torchdeal.benchmark.results import Results, Row
from torchdeal.io.checkpoint import card
from torchdeal.reference import ReferenceResult, reference_reconstruct

GRAY = "20 x 20 gray, sigma 5"
TO_1E2, TO_1E3, TO_1E4 = curves.THRESHOLDS


def runs(method, *found, stopped=False, **values):
    rest = {"iterations": 10, "cg_iterations": 50, "psnr": 30.0, "stopped": stopped, **values}
    return Runs(method, [{**curve_values(list(curve)), **rest} for curve in found])


OURS = runs("ours", [(1.0, 5e-2), (2.0, 5e-3), (4.0, 5e-4), (5.0, 5e-5)], status="CONVERGED", estimate=8e-5)


def made_up(*measured):
    results = Results("speed", {}, cells={"a": {"table": "Speed", "column": "a"}})
    truth = {"noisy_psnr": 20.0, "dtype": "float64", "status": "CONVERGED", "estimate": 5e-6}
    results.add(Row("a", "camera", FIXED_POINT, truth))
    for one in measured:
        for count, values in enumerate(one.values):
            results.add(Row("a", "camera", one.method, values, f"run {count + 1}"))
    return results


@pytest.fixture
def benchmark(tmp_path, capsys, monkeypatch):
    """`deal benchmark speed` on pictures of 20 x 20: exit code, what was printed, and the results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "QUICK_SIZES", (20,))
    monkeypatch.setattr(speed, "SIZES", {"cpu": (20,)})

    def run(*arguments):
        code = 0
        try:
            command.main(["speed", "--device", "cpu", "--out", "out", "--sigmas", "5", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code
        path, captured = tmp_path / "out" / "speed.json", capsys.readouterr()
        return code, captured.out, captured.err, Results.load(path) if path.exists() else None

    return run


def test_a_threshold_counts_from_where_the_curve_stays_below():
    curve = [(1.0, 0.5), (2.0, 0.009), (3.0, 0.02), (4.0, 0.01), (5.0, 0.001)]
    assert seconds_to(curve, 1e-2) == 4.0
    assert seconds_to(curve, 1e-1) == 2.0
    assert seconds_to(curve, 1) == 1.0
    assert seconds_to(curve, 1e-3) == 5.0
    assert seconds_to(curve, 1e-4) is None
    assert seconds_to([(1.0, 1e-3), (2.0, math.nan)], 1e-2) is None
    assert seconds_to([(1.0, 1e-3), (2.0, 2e-2)], 1e-2) is None


@pytest.mark.parametrize("length", [1, 39, 40, 41, 100, 1000])
def test_few_points_of_a_curve_are_kept_and_all_of_them_count(length):
    curve = [(float(k), 2.0 ** (-k / 10)) for k in range(length)]
    values = curve_values(curve)
    assert len(values["curve"]) <= 40
    assert values["curve"][-1] == curve[-1]
    assert set(values["curve"]) <= set(curve)
    assert (values["total_seconds"], values["end_distance"]) == curve[-1]
    passed = [seconds for seconds, distance in curve if distance <= 1e-3]
    assert values["seconds_to_1e-3"] == (passed[0] if passed else None)


def test_median_over_repeats():
    found = [[(t, 1e-3), (2 * t, 1e-5)] for t in (1.0, 5.0, 2.0)]
    result = runs("ours", *found)
    assert result.seconds(TO_1E2) == 2.0
    assert result.seconds(TO_1E4) == 4.0
    assert result.total_seconds == 4.0
    assert runs("ours", *found, [(1.0, 0.1)]).seconds(TO_1E2) is None  # one of them never gets there
    assert runs("ours", [(1.0, 1e-3)], [(1.0, 1e-2)], [(1.0, 1e-4)]).end_distance == 1e-2
    assert math.isnan(runs("ours", [(1.0, 1e-3)], [(1.0, math.nan)]).end_distance)


def test_ratios():
    slow = runs("tight", [(50.0, 5e-2), (100.0, 5e-3), (400.0, 5e-4)])
    assert slow.ratio(OURS, TO_1E2) == "50 x"
    assert slow.ratio(OURS, TO_1E3) == "100 x"
    assert slow.ratio(OURS, TO_1E4) == ""  # it ended without getting there
    assert slow.ratio(None, TO_1E2) == ""
    assert slow.time(OURS, TO_1E3) == "400 (100 x)"
    assert slow.time(OURS, TO_1E4) == "never"
    assert runs("tight", [(8.04, 5e-3)]).ratio(OURS, TO_1E2) == "4.0 x"


def test_ratios_of_a_stopped_reference_are_lower_bounds():
    stopped = runs("tight", [(50.0, 5e-2), (100.0, 5e-3)], stopped=True)
    assert stopped.ratio(OURS, TO_1E2) == "50 x"
    assert stopped.ratio(OURS, TO_1E3) == "> 25 x"
    assert stopped.time(OURS, TO_1E3) == "> 100 (> 25 x)"
    (section,) = speed.EXPERIMENT.sections(made_up(OURS, stopped))
    assert [row[:4] for row in section.tables[0].rows] == [
        ["tight reference", "100 (50 x)", "> 100 (> 25 x)", "> 100 (> 20 x)"],
        ["ours", "2", "4", "5"],
    ]
    assert "tight reference: stopped after 100 s at distance 5.0e-03; > marks lower bounds." in section.notes
    assert "ours: CONVERGED, estimated distance 8.0e-05, true distance 5.0e-05." in section.notes


def test_results_survive_their_file(tmp_path):
    results = made_up(OURS, runs("tight", [(1.0, math.inf), (2.0, math.nan)], stopped=True))
    results.save(tmp_path)
    loaded = Results.load(tmp_path / "speed.json")
    (section,) = speed.EXPERIMENT.sections(loaded)
    assert [row[4] for row in section.tables[0].rows] == ["nan", "5.0e-05"]


def test_plot(tmp_path):
    curves.plot(made_up(OURS, runs("tight", [(1.0, 0.2), (2.0, 0.1)], stopped=True)), tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").size[0] > 500


@pytest.mark.parametrize(("have", "size"), [((9, 9), 5), ((9, 8, 3), 6), ((4, 5), 15), ((3, 20), 8)])
def test_pictures_are_cropped_or_mirrored(have, size):
    picture = np.random.default_rng(0).random(have)
    result = fit(picture, size)
    assert result.shape == (size, size, *have[2:])
    assert np.isin(result, picture).all()
    if min(have[:2]) >= size:
        row, column = ((n - size) // 2 for n in have[:2])
        assert np.array_equal(result, picture[row : row + size, column : column + size])


def test_an_image_of_ones_own_in_colour(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    assert np.allclose(read_picture("color", path), pixels / 255)
    assert np.allclose(read_picture("gray", path), np.asarray(Image.open(path).convert("L")) / 255, atol=1 / 255)


def test_reference_reports_each_iteration(gray):
    y = torch.rand(1, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    seen = []
    result = reference_reconstruct(y, gray, sigma=5, max_outer=3, callback=seen.append)
    assert [s.iterations for s in seen] == [1, 2, 3]
    assert seen[-1] == result


def test_time_in_the_recorder_does_not_count(monkeypatch):
    clock = iter([0.0, 10.0, 13.0, 20.0, 21.0])  # start, then arrival and end of each recording
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    recorder = speed.Recorder(torch.device("cpu"))
    truth = torch.ones(1, 1, 2, 2, dtype=torch.float64)
    for x in (0 * truth.float(), truth.float()):
        recorder.record(ReferenceResult(x, 1, 1, 0.0))
    assert recorder.curve(truth) == [(10.0, 1.0), (17.0, 0.0)]


def test_a_whole_run_and_what_is_missing_later(benchmark):
    code, out, err, first = benchmark("--cells", "gray", "--repeats", 2, "--methods", "default")
    assert code == 0
    assert [(row.method, row.variant) for row in first.rows] == [
        (FIXED_POINT, ""),
        ("default", "run 1"),
        ("default", "run 2"),
    ]
    code, out, err, results = benchmark("--cells", "gray", "--repeats", 2, "--resume")
    assert code == 0
    assert results.rows[:3] == first.rows
    assert [(row.method, row.variant) for row in results.rows[3:]] == [
        ("ours", "run 1"),
        ("ours", "run 2"),
        ("paper-literal", "run 1"),
        ("tight", "run 1"),
    ]
    for word in ("paper-literal", "tight reference", "ours, default", "s to 1e-3", "float64", "CONVERGED", "PSNR"):
        assert word in out
    assert f"{GRAY}: ours, run 2: " in err

    truth, default, ours, literal = (
        results.select(GRAY, method)[0].values for method in (FIXED_POINT, "default", "ours", "paper-literal")
    )
    assert ours["status"] == "CONVERGED"
    assert ours["end_distance"] < 1e-4
    assert default["end_distance"] < 1e-3
    assert len(ours["curve"]) == ours["iterations"] + 1
    assert ours["cg_iterations"] > ours["iterations"] > default["iterations"] > 2
    assert 0 < ours["seconds_to_1e-2"] < ours["total_seconds"]
    assert literal["end_distance"] < 0.05  # the same fixed point
    assert ours["psnr"] > truth["noisy_psnr"]
    clean = fit(read_picture("gray", None), 20)
    noise = np.random.RandomState(0).normal(0, 5 / 255, clean.shape)
    shown = (clean + noise).clip(0, 1)
    assert truth["noisy_psnr"] == pytest.approx(-10 * np.log10(np.mean((shown - clean) ** 2)), abs=1e-3)
    assert results.weights["ours"] == {"gray": card("gray")["sha256"]}


def test_a_reference_is_stopped(benchmark, monkeypatch):
    monkeypatch.setattr(speed, "QUICK_REFERENCE_SECONDS", 1e-6)
    code, out, _, results = benchmark("--quick", "--cells", "gray", "--methods", "paper-literal,default")
    assert code == 0
    (row,) = results.select(GRAY, "paper-literal")
    assert row.values["stopped"] is True
    assert row.values["iterations"] == len(row.values["curve"]) == 1
    assert "paper-literal: stopped after" in out


def test_an_interrupted_run_keeps_what_it_has(benchmark, monkeypatch):
    solve = speed.TimedProblem.solve

    def interrupted(self, method, *arguments, **options):
        if method == "paper-literal":
            raise KeyboardInterrupt
        return solve(self, method, *arguments, **options)

    monkeypatch.setattr(speed.TimedProblem, "solve", interrupted)
    code, out, err, results = benchmark("--quick", "--cells", "gray", "--methods", "default,paper-literal")
    assert code == 130
    assert out == ""
    assert "go on with --resume" in err
    assert [row.method for row in results.rows] == [FIXED_POINT, "default"]


def test_cells_that_cannot_be_measured_say_why(benchmark, tmp_path):
    (tmp_path / "mine").mkdir()
    Image.fromarray(np.full((24, 24), 100, np.uint8)).save(tmp_path / "mine" / "gray.png")
    code, out, err, results = benchmark("--quick", "--images", "mine", "--methods", "default")
    assert code == 0
    assert "20 x 20 colour, sigma 5: gray.png: the image is gray" in err
    assert [row.image for row in results.rows] == ["gray", "gray"]
    assert "ours, default: not measured: gray.png: the image is gray" in out
    _, _, err, _ = benchmark("--quick", "--out", "other", "--cells", "gray", "--model", "color")
    assert "color is for images of 3 channels" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "magic"], "there is no method magic here; choose from paper-literal, tight, ours, default"),
        (["--cells", "99 x 99"], "there is no such cell"),
        (["--model", "grey"], "no weights at grey"),
        (["--images", "missing"], "missing: no such folder"),
        (["--images", "."], "no images in this folder"),
    ],
)
def test_bad_input_is_one_clear_line(benchmark, arguments, message):
    code, out, err, _ = benchmark("--quick", *arguments)
    assert code == 1
    assert out == ""
    lines = err.strip().splitlines()
    assert [line for line in lines if line.startswith("Error: ")] == lines[-1:]
    assert message in lines[-1]


def test_seconds_of_another_machine_are_not_added(benchmark, monkeypatch):
    assert benchmark("--quick", "--cells", "gray", "--methods", "default")[0] == 0
    monkeypatch.setattr(speed, "device_name", lambda device: "another processor")
    code, _, err, _ = benchmark("--quick", "--cells", "gray", "--methods", "default", "--resume")
    assert code == 1
    assert "was measured with another device" in err


def test_a_picture_that_is_too_large_for_the_memory(benchmark, monkeypatch):
    def too_large(self):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    monkeypatch.setattr(speed.TimedProblem, "find_fixed_point", too_large)
    code, out, _, results = benchmark("--quick", "--cells", "gray", "--methods", "default")
    assert code == 0
    assert results.reasons == {GRAY: {"default": "not enough memory on cpu"}}
    assert "ours, default: not measured: not enough memory on cpu" in out


def test_runs_on_a_bare_machine(tmp_path):
    (tmp_path / "mine").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (20, 20), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "mine" / "a.png")
    script = (
        "import sys; missing = ['typer', 'rich', 'matplotlib', 'skimage', 'tifffile', 'scipy'];"
        "sys.modules.update(dict.fromkeys(missing));"
        "from torchdeal.benchmark import command, speed; speed.QUICK_SIZES = (20,);"
        "command.main(['speed', '--quick', '--methods', 'default', '--device', 'cpu', *sys.argv[1:]])"
    )

    def run(*arguments):
        options = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
        return subprocess.run([sys.executable, "-c", script, *arguments], **options)

    assert "| ours, default |" in run("--images", "mine", "--out", "a").stdout
    assert "pip install 'torchdeal[demo]', or give a folder by --images" in run("--out", "b").stderr
