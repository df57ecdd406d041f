"""Denoisers and reconstructors of the real DeepInverse as competitors, with weights in its own files."""

from dataclasses import replace
from functools import partial

import deepinv
import pytest
import torch
from conftest import noisy, picture, relative

from torchdeal.benchmark.peers import Unavailable, find_denoiser, find_solver
from torchdeal.benchmark.peers.deepinverse import DeepInverseSolver
from torchdeal.benchmark.peers.plug_and_play import PlugAndPlay
from torchdeal.operators import Blur, Fourier

models = deepinv.models

SMALL = {"nc": (4, 4, 8, 8), "nb": 1}
SIZE, SIGMA = 32, 25.0
KINDS = {1: "gray", 3: "color"}
H = Blur(torch.ones(3, 3) / 9)


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch):
    """And networks of few channels, so that the files are small: otherwise they are what DeepInverse makes."""

    def refuse(*_, **__):
        raise AssertionError("a download")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    monkeypatch.setattr("torch.hub.download_url_to_file", refuse)
    monkeypatch.setattr(models, "DRUNet", partial(models.DRUNet, **SMALL))
    monkeypatch.setattr(models, "GSDRUNet", partial(models.GSDRUNet, **SMALL))


def untrained(name, channels=1):
    torch.manual_seed(0)
    return getattr(models, name)(in_channels=channels, out_channels=channels, pretrained=None).eval()


def save(model, folder, name, channels=1, wrapped=False):
    state = model.state_dict()
    torch.save({"state_dict": state} if wrapped else state, folder / f"deepinv_{name}_{KINDS[channels]}.pth")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("name", "builder", "wrapped"),
    [
        ("DRUNet", "DRUNet", False),
        ("DnCNN", "DnCNN", False),
        ("GSDRUNet", "GSDRUNet", False),
        ("GSPnP", "GSDRUNet", True),
    ],
)
def test_denoisers_do_what_they_do_in_deepinverse(name, builder, wrapped, channels, tmp_path):
    model = untrained(builder, channels)
    save(model, tmp_path, name, channels, wrapped)
    y = noisy(picture("camera" if channels == 1 else "astronaut", size=SIZE), SIGMA)
    expected = model(y.clone(), SIGMA / 255).detach()
    found = find_denoiser(f"deepinv:{name}").make(tmp_path, channels, "cpu")(y, SIGMA)
    assert relative(found, expected) < 1e-6
    assert relative(found, y) > 1e-3
    assert (found.requires_grad, y.requires_grad) == (False, False)


def test_a_denoiser_is_told_sigma(tmp_path):
    save(untrained("DRUNet"), tmp_path, "DRUNet")
    denoiser = find_denoiser("deepinv:DRUNet").make(tmp_path, 1, "cpu")
    y = picture(size=SIZE)
    assert relative(denoiser(y, 10.0), denoiser(y, 50.0)) > 1e-3


def test_a_network_whose_class_reads_no_file_is_not_measured_untrained(tmp_path):
    with pytest.raises(Unavailable, match=r"needs its weights as deepinv_UNet_gray\.pth"):
        find_denoiser("deepinv:UNet").make(tmp_path, 1, "cpu")
    torch.manual_seed(1)
    model = models.UNet(in_channels=1, out_channels=1).eval()
    save(model, tmp_path, "UNet")
    y = noisy(picture(size=SIZE), SIGMA)
    assert relative(find_denoiser("deepinv:UNet").make(tmp_path, 1, "cpu")(y, SIGMA), model(y).detach()) < 1e-6


def test_a_denoiser_solves_inverse_problems_by_plug_and_play(tmp_path):
    save(untrained("DnCNN"), tmp_path, "DnCNN")
    solver = find_solver("deepinv:DnCNN").make(tmp_path, 1, "cpu")
    y = noisy(H.forward(picture(size=SIZE)), 5.0)
    assert isinstance(solver, PlugAndPlay)
    assert replace(solver, iterations=2)(y, H, 5 / 255).shape == y.shape


def test_a_reconstructor_is_given_operator_and_noise(tmp_path):
    """DEAL as DeepInverse has it, against the same model with physics of DeepInverse."""
    torch.manual_seed(0)
    model = models.DEAL(pretrained=None, device="cpu", inner_iter=20, outer_iter=3)
    torch.save(model.model.state_dict(), tmp_path / "deepinv_DEAL_gray.pth")
    solver = find_solver("deepinv:DEAL").make(tmp_path, 1, "cpu")
    assert isinstance(solver, DeepInverseSolver)
    short = replace(
        solver, model=models.DEAL(pretrained=str(tmp_path / "deepinv_DEAL_gray.pth"), inner_iter=20, outer_iter=3)
    )
    y = noisy(H.forward(picture(size=SIZE)), 5.0)
    physics = deepinv.physics.Blur(torch.ones(1, 1, 3, 3) / 9, padding="circular")
    y = torch.cat([y, y.flip(-1)])  # it takes one image at a time
    with torch.no_grad():
        expected = torch.cat([model(one, physics) for one in y.split(1)])
    assert relative(short(y, H, 5 / 255), expected) < 1e-4


def test_a_reconstructor_for_all_operators(tmp_path):
    """RAM, whose channels are several: a denoiser too, which is told sigma by its name."""
    torch.manual_seed(0)
    model = models.RAM(pretrained=False, device="cpu").eval()
    torch.save(model.state_dict(), tmp_path / "deepinv_RAM_gray.pth")
    y = noisy(H.forward(picture(size=16)), 5.0)
    physics = deepinv.physics.Blur(torch.ones(1, 1, 3, 3) / 9, padding="circular")
    physics.noise_model = deepinv.physics.GaussianNoise(0.04)
    with torch.no_grad():
        reconstructed, denoised = model(y, physics), model(y, sigma=0.04)
    solver = find_solver("deepinv:RAM").make(tmp_path, 1, "cpu")
    assert relative(replace(solver, noise_factor=2.0)(y, H, 0.02), reconstructed) < 1e-4
    assert relative(find_denoiser("deepinv:RAM").make(tmp_path, 1, "cpu")(y, 0.04 * 255), denoised) < 1e-5


def test_weights_of_another_model_and_damaged_ones(tmp_path):
    save(untrained("DnCNN"), tmp_path, "DRUNet")
    with pytest.raises(Unavailable, match=r"deepinv:DRUNet: .*loading state_dict"):
        find_denoiser("deepinv:DRUNet").make(tmp_path, 1, "cpu")
    (tmp_path / "deepinv_DnCNN_gray.pth").write_bytes(b"no weights")
    with pytest.raises(Unavailable, match="deepinv:DnCNN: "):
        find_denoiser("deepinv:DnCNN").make(tmp_path, 1, "cpu")


@pytest.mark.parametrize("name", ["GSDRUNet", "DRUNet", "DnCNN"])
def test_weights_that_are_missing(name, tmp_path):
    with pytest.raises(Unavailable, match=rf"needs its weights as deepinv_{name}_gray\.pth"):
        find_denoiser(f"deepinv:{name}").make(tmp_path, 1, "cpu")


@pytest.mark.parametrize("name", ["ArtifactRemoval", "PDNet", "WaveletDenoiser", "Reconstructor", "Nothing"])
def test_what_is_no_denoiser_says_so(name, tmp_path):
    with pytest.raises(Unavailable, match=f"deepinv:{name}"):
        find_denoiser(f"deepinv:{name}").make(tmp_path, 1, "cpu")


def test_an_operator_that_a_reconstructor_is_not_for():
    solver = find_solver("deepinv:WienerDeconvolution").make(None, 1, "cpu")
    mask = torch.ones(SIZE, SIZE)
    with pytest.raises(Unavailable, match=r"deepinv:WienerDeconvolution: .*BlurFFT"):
        solver(Fourier(mask).forward(picture(size=SIZE)), Fourier(mask), 0.01)
