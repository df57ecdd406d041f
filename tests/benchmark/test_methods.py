"""Methods by name: which there are for a problem, and which cannot run there."""

from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import picture, relative

import torchdeal as td
from torchdeal.benchmark.core import Cell
from torchdeal.benchmark.methods import check_names, default_methods, find_method, with_parameters
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable, grid
from torchdeal.io.checkpoint import checksum
from torchdeal.operators import Blur

KINDS = ("denoising", "deblur", "superres", "mri", "ct")
OPTIONS = BenchmarkOptions(out=Path(), device="cpu", max_iterations=2)


def cell(kind, channels=1, **how):
    return Cell("cell", "table", "column", kind, channels, list, **how)


def test_names_are_checked():
    with pytest.raises(Unavailable, match="there is no method wccr here; choose from deal, wcrr, deepinv:CLASS"):
        check_names(["deal", "wccr"], ["deal", "wcrr"])
    check_names(["deepinv:DRUNet", "wcrr"], ["wcrr"])


@pytest.mark.parametrize("kind", KINDS)
def test_ours_come_first_and_a_trial_leaves_out_what_is_slow(kind):
    names = default_methods(kind, quick=False)
    assert names[:2] == ["deal", "deal-light"]
    assert set(names) - set(default_methods(kind, quick=True)) == {"mmr", "epll", "deal-mean"} & set(names)
    for name in ("deal", "tv"):
        assert find_method(name, cell(kind), OPTIONS)


@pytest.mark.parametrize(
    ("name", "where", "reason"),
    [
        ("fbp", cell("denoising"), "not for denoising"),
        ("fbp", cell("mri"), "not for mri"),
        ("bm3d", cell("ct"), "not for ct"),
        ("deal-rule", cell("denoising"), "not for denoising"),
        ("deal-paper", cell("mri"), "the paper states no sigma and lam for it"),
        ("crr", cell("denoising", 3), "crr is for gray images, these have 3 channels"),
        ("deal", cell("denoising", 4), "there are no weights for 4 channels"),
        ("wcrr", cell("ct"), "--peers-dir"),
    ],
)
def test_what_cannot_run_says_why(name, where, reason):
    with pytest.raises(Unavailable, match=reason):
        find_method(name, where, OPTIONS)


def test_ours_are_the_reconstruction_of_the_package(gray, kernel):
    operator, clean = Blur(torch.from_numpy(kernel).float()), picture(size=24)
    y = operator.forward(clean)
    where = cell("deblur", paper=(15.0, 0.5))
    reconstruct = partial(td.reconstruct, y, operator, model=gray, max_iterations=2, data_range=1.0)
    paper = find_method("deal-paper", where, OPTIONS)(y, operator, 0.01)
    assert relative(paper.x, reconstruct(sigma=15 / 255, lam=0.5).x) < 1e-6
    rule = find_method("deal-rule", where, OPTIONS)(y, operator, 0.01)
    assert relative(rule.x, reconstruct(noise=0.01).x) < 1e-6
    ours = find_method("deal", where, OPTIONS)
    assert ours.weights == {"gray": checksum("gray")}
    strong = with_parameters(ours, {"sigma": 10.0, "strength": 4.0})
    lam = 4.0 * float(strong.rule_lam(y, operator, 0.01))
    assert relative(strong(y, operator, 0.01).x, reconstruct(sigma=10 / 255, lam=lam).x) < 1e-5
    assert with_parameters(ours, {}) is ours


def test_only_what_is_chosen_on_tuning_images_has_a_grid():
    where = cell("deblur", paper=(15.0, 0.5))
    grids = {name: set(grid(find_method(name, where, OPTIONS))) for name in ("deal", "deal-rule", "deal-paper")}
    assert grids == {"deal": {"sigma", "strength"}, "deal-rule": set(), "deal-paper": set()}
    assert grid(find_method("deal", cell("denoising"), OPTIONS)) == {}
