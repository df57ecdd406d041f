"""Tables of methods and cells: what is measured, what is left out and why, with which parameters."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from conftest import small_model
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio

import torchdeal as td
from torchdeal.benchmark import comparison, methods, tuning
from torchdeal.benchmark.peers import DENOISERS
from torchdeal.benchmark.peers.base import Peer, Unavailable
from torchdeal.io.checkpoint import checksum

CELL = "BSD68, sigma 25"
KINDS = {"denoising": "BSD68, sigma 5", "deblur": "image 01, kernel 1", "superres": "x2", "mri": "4x", "ct": "30"}


def pixels(path):
    return np.asarray(Image.open(path)) / 255


def parameters_as_they_ship(monkeypatch, tmp_path, content):
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path / "parameters.json")
    tuning.SHIPPED.write_text(json.dumps(content))
    tuning._shipped.cache_clear()


@pytest.fixture(autouse=True)
def _parameters_as_before():
    yield
    tuning._shipped.cache_clear()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Untrained models with few filters, which are quick."""
    path = tmp_path_factory.mktemp("weights")
    for channels in (1, 3):
        td.save(small_model(channels, features=4, dtype=torch.float32), path / f"{channels}.safetensors")
    return path


def test_a_run_follows_the_protocol(command, folder, weights):
    model = weights / "1.safetensors"
    done = command(
        *("denoising", "--data", folder, "--cells", CELL, "--methods", "deal", "tv"),
        *("--model", model, "--limit", 2, "--max-iterations", 3, "--quick"),
    )
    assert done.code == 0, done.err
    results = done.results
    assert list(results.cells) == [CELL]
    assert results.cells[CELL] == {"table": "Denoising, gray: BSD68", "column": "sigma 25", "problems": 2}
    assert results.weights["deal"] == {"gray": checksum(model)}
    assert results.settings["model"] == checksum(model)
    rows = results.select(CELL, "deal")
    assert [row.image for row in rows] == ["a", "b"]
    for row in rows:
        clean = pixels(folder / f"test/BSD68/{row.image}.png")[8:32, 8:32].astype(np.float32)
        np.random.seed(0)
        noisy = clean[None] + np.random.normal(0, 25 / 255, (1, *clean.shape)).astype(np.float32)
        solution = td.reconstruct(
            torch.from_numpy(noisy)[None], model=td.load(model), sigma=25 / 255, max_iterations=3, data_range=1.0
        )
        expected = peak_signal_noise_ratio(clean, solution.x[0, 0].clip(0, 1).numpy(), data_range=1)
        assert row.values["psnr"] == pytest.approx(expected, abs=1e-3)
        assert row.values["iterations"] == 3
        assert row.values["status"] == "MAX_ITERATIONS"
        assert row.values["batch"] == 1
    assert f"{np.mean([row.values['psnr'] for row in rows]):.2f}" in done.out
    assert f"{CELL}, tv, b: " in done.err


@pytest.mark.parametrize("name", KINDS)
def test_every_experiment(command, folder, scaled, name):
    done = command(name, "--data", folder, "--cells", KINDS[name], "--methods", "scaled", "--quick")
    assert done.code == 0, done.err
    for cell, place in done.results.cells.items():
        problems = place.get("problems")
        if problems is None:
            assert "licensed" in done.results.reasons[cell]["deal"]
        else:
            assert len(done.results.select(cell, "scaled")) == problems > 0
            assert math.isfinite(done.results.select(cell, "scaled")[0].values["psnr"])
    assert "scaled" in done.out
    assert scaled.calls


def test_a_method_that_cannot_run_says_why(command, folder, scaled, monkeypatch, tmp_path):
    def refused(*_):
        raise Unavailable("it needs a licence: ask for one")

    monkeypatch.setitem(DENOISERS, "licensed", Peer(refused, "nobody", ("denoising",)))
    names = ("licensed", "scaled", "wcrr", "fbp", "deal-rule", "deal-paper")
    done = command("denoising", "--data", folder, "--cells", CELL, "CBSD68, sigma 25", "--methods", *names, "--quick")
    assert done.code == 0, done.err
    reasons = done.results.reasons[CELL]
    assert reasons["licensed"] == "it needs a licence: ask for one"
    assert "--peers-dir" in reasons["wcrr"]
    assert {reasons[name] for name in ("fbp", "deal-rule", "deal-paper")} == {"not for denoising"}
    assert "scaled" not in reasons
    assert "wcrr is for gray images" in done.results.reasons["CBSD68, sigma 25"]["wcrr"]
    assert "it needs a licence: ask for one" in done.out
    for report in ("report.md", "report.html"):
        assert "it needs a licence" in (tmp_path / "out" / report).read_text()


@dataclass(frozen=True, eq=False)
class Constant:
    """The same answer to everything."""

    value: float

    def __call__(self, y, sigma):
        return torch.full_like(y, self.value)


def test_numbers_without_a_value(command, folder, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    for name in "ab":
        Image.fromarray(np.full((24, 24), 255, np.uint8)).save(tmp_path / "mine" / f"{name}.png")
    for name, value in (("exact", 1.0), ("lost", math.nan)):
        monkeypatch.setitem(DENOISERS, name, Peer(lambda *_, value=value: Constant(value), "nobody", ("denoising",)))
    given = ("denoising", "--images", "mine", "--sigmas", 15, "--methods", "exact", "lost", "--resume")
    for _ in range(2):
        done = command(*given)
        assert done.code == 0, done.err
        assert len(done.results.rows) == 4
        (tmp_path / "mine" / "b.png").rename(tmp_path / "mine" / "c.png")
        done = command(*given)  # beside what was read from the file
        assert done.code == 0, done.err
        (tmp_path / "mine" / "c.png").rename(tmp_path / "mine" / "b.png")
        (tmp_path / "out" / "denoising.json").unlink()


def test_parameters_of_the_package_are_used(command, folder, scaled, monkeypatch, tmp_path):
    parameters_as_they_ship(monkeypatch, tmp_path, {"ct": {"30 angles": {"scaled": {"strength": 0.125}}}})
    done = command("ct", "--data", folder, "--cells", "30", "--methods", "scaled", "--limit", 1)
    assert done.results.parameters["30 angles"] == {"scaled": {"strength": 0.125}}
    assert len(scaled.calls) == 1


def test_parameters_are_chosen_on_the_tuning_images(command, folder, scaled, monkeypatch, tmp_path):
    parameters_as_they_ship(monkeypatch, tmp_path, {"denoising": {"gray, sigma 25": {"scaled": {"strength": 0.25}}}})
    done = command("denoising", "--data", folder, "--cells", CELL, "--methods", "scaled", "--tune")
    assert done.code == 0, done.err
    (chosen,) = (methods["scaled"] for methods in done.results.parameters.values())
    assert 0.5 < chosen["strength"] <= 1.0  # a bit less than the noisy image
    assert [y.shape[-1] for y, _ in scaled.calls[-3:]] == [40] * 3  # of the images that are reported
    assert {y.shape[-1] for y, _ in scaled.calls[:-3]} == {32}  # centres of the training images
    assert f"tuning gray, sigma 25: {{'strength': {chosen['strength']}}}" in done.err
    tried = len(scaled.calls)
    done = command(
        "denoising", "--data", folder, "--cells", "BSD68, sigma", "--methods", "scaled", "--tune", "--resume"
    )
    assert done.results.parameters["gray, sigma 25"] == {"scaled": chosen}  # not again
    assert len(scaled.calls) > tried


def test_a_trial_tunes_nothing(command, folder, scaled, monkeypatch, tmp_path):
    parameters_as_they_ship(monkeypatch, tmp_path, {})
    done = command("ct", "--data", folder, "--cells", "30", "--methods", "scaled", "--quick")
    assert len(scaled.calls) == len(done.results.rows) == 1


def test_without_training_images_there_is_a_reason(command, folder, scaled, monkeypatch, tmp_path):
    parameters_as_they_ship(monkeypatch, tmp_path, {})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test").symlink_to(folder / "test")
    done = command("denoising", "--data", "data", "--cells", CELL, "--methods", "scaled", "nlm")
    assert done.code == 0, done.err
    assert "put bsd400.tar into DATA/train" in done.results.reasons[CELL]["scaled"]


def test_light_weights_and_the_mean_take_the_parameters_of_the_others(folder, weights, tmp_path, monkeypatch, command):
    assert methods.TUNED_AS == {"deal-light": "deal", "deal-mean": "deal"}
    monkeypatch.setattr(methods, "_weights", lambda name, channels, options: str(weights / f"{channels}.safetensors"))
    chosen = {"sigma": 28.0, "strength": 4.0}
    parameters_as_they_ship(monkeypatch, tmp_path, {"ct": {"30 angles": {"deal": chosen}}})
    given = ("ct", "--data", folder, "--cells", "30", "--limit", 1, "--max-iterations", 2)
    names = "deal-light", "deal", "deal-rule", "deal-mean"
    done = command(*given, "--methods", *names)
    assert done.code == 0, done.err
    assert {name: values for name, values in done.results.parameters["30 angles"].items() if values} == {"deal": chosen}
    light, full, rule, mean = (done.results.select("30 angles", name)[0].values for name in names)
    assert light["psnr"] == full["psnr"] != rule["psnr"]
    assert (full["iterations"], mean["iterations"]) == (2, 16)


def test_parameters_are_never_chosen_with_the_light_weights(folder, weights, monkeypatch, command):
    monkeypatch.setattr(methods, "_weights", lambda name, channels, options: str(weights / f"{channels}.safetensors"))
    asked = []
    found = methods.find_method
    monkeypatch.setattr(comparison, "find_method", lambda name, *rest: asked.append(name) or found(name, *rest))
    monkeypatch.setattr(comparison, "tuned_parameters", lambda method, *_: {"sigma": 28.0, "strength": 4.0})
    given = ("ct", "--data", folder, "--cells", "30", "--limit", 1, "--max-iterations", 2)
    done = command(*given, "--methods", "deal-light", "--tune")
    assert asked == ["deal-light", "deal"]
    assert done.results.parameters["30 angles"] == {"deal": {"sigma": 28.0, "strength": 4.0}}


def test_pictures_are_kept(command, folder, scaled, tmp_path):
    given = ("--data", folder, "--methods", "scaled", "--pictures", 1)
    assert command("denoising", *given, "--cells", CELL, "--quick").code == 0
    kept = tmp_path / "out" / "pictures" / "denoising" / CELL
    assert [path.name for path in kept.iterdir() if path.is_dir()] == ["a"]  # the first image only
    found = {path.stem: pixels(path) for path in (kept / "a").iterdir()}
    assert found.keys() == {"clean", "measured", "scaled"}
    clean = pixels(folder / "test/BSD68/a.png")[8:32, 8:32]
    noisy = (clean + np.random.RandomState(0).normal(0, 25 / 255, clean.shape)).clip(0, 1)
    assert np.array_equal(found["clean"], clean)
    assert np.abs(found["measured"] - noisy).max() <= 0.51 / 255
    assert np.array_equal(found["scaled"], found["measured"])
    assert command("mri", *given, "--cells", "4x single coil, knee", "--quick").code == 0
    kept = tmp_path / "out" / "pictures" / "mri" / "4x single coil, knee" / "a"
    assert {path.stem for path in kept.iterdir()} == {"clean", "scaled"}  # k-space is no picture


def test_own_images_take_their_channels_from_the_first(command, scaled, tmp_path, folder):
    (tmp_path / "a gray folder").mkdir()
    Image.open(folder / "test/CBSD68/0000.png").save(tmp_path / "a gray folder" / "a.png")
    done = command("denoising", "--images", "a gray folder", "--sigmas", 15, "--methods", "scaled")
    assert done.code == 0, done.err
    assert list(done.results.cells) == ["a gray folder, sigma 15"]
    assert scaled.calls[0][0].shape == (1, 3, 40, 40)
    assert done.results.settings["images"] == "a gray folder"


def test_the_model_must_fit(folder, weights, tmp_path, command):
    given = ("denoising", "--data", folder, "--cells", "sigma 25", "--methods", "deal", "--limit", 1, "--quick")
    done = command(*given, "--model", weights / "3.safetensors", "--max-iterations", 1)
    assert done.code == 0, done.err
    assert "3.safetensors is for images of 3 channels" in done.results.reasons[CELL]["deal"]
    assert done.results.select("CBSD68, sigma 25", "deal")
    assert str(weights) not in (tmp_path / "out" / "denoising.json").read_text()
