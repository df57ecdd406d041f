"""Batches that shrink on a GPU. Collected everywhere, run where there is one; needs no pictures and no conftest."""

import warnings

import pytest
import torch

import torchdeal as td
from torchdeal.operators import Blur, Fourier, Mask
from torchdeal.system import AttentiveSystem

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

LEVELS = (5.0, 50.0, 25.0, 10.0, 40.0, 0.0, 15.0, 30.0)
TOLERANCE = 1e-3


def pictures(size):
    """Smooth textures of different scales with noise of different levels; one is all zeros."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for i, sigma in enumerate(LEVELS):
        rough = torch.rand(1, 1, 4 + 2 * i, 4 + 2 * i, generator=generator)
        clean = torch.nn.functional.interpolate(rough, (size, size), mode="bicubic").clamp(0, 1)
        found.append(clean + sigma / 255 * torch.randn(clean.shape, generator=generator) if sigma else 0 * clean)
    return torch.cat(found)


def problem(name, size):
    y, holes = pictures(size), torch.rand(len(LEVELS), 1, size, size, generator=torch.Generator().manual_seed(1)) < 0.6
    H = {
        "denoising": None,
        "blur": Blur(torch.ones(3, 3) / 9),
        "masks of each": Mask(holes),
        "complex": Fourier(holes | (torch.arange(size) < 6), real=False),
    }[name]
    levels = torch.tensor([max(sigma, 5.0) / 255 for sigma in LEVELS])
    options = {"sigma": levels, "lam": 10 * levels} if H is not None else {"sigma": levels}
    return (y if H is None else H.forward(y + 0j if name == "complex" else y)), H, options


# Small ones are replayed as CUDA graphs, the large ones are not.
@pytest.mark.parametrize(
    ("name", "size"), [("denoising", 48), ("denoising", 320), ("blur", 48), ("masks of each", 48), ("complex", 48)]
)
def test_a_batch_that_shrinks_has_the_answers_of_one_that_does_not(name, size, monkeypatch):
    y, H, options = problem(name, size)
    options = {**options, "model": td.load("gray", device="cuda"), "tolerance": TOLERANCE, "data_range": 1.0}
    sizes, part = [], AttentiveSystem.part

    def counted(self, some):
        sizes.append(len(some))
        found = part(self, some)
        assert found is not None, "it cannot shrink"
        return found

    monkeypatch.setattr(AttentiveSystem, "part", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a CUDA graph that could not be made
        found, again = (td.reconstruct(y.cuda(), H, **options) for _ in range(2))
    assert len(set(sizes)) >= 2
    assert torch.equal(found.x, again.x)
    monkeypatch.setattr(AttentiveSystem, "part", lambda self, some: None)
    whole = td.reconstruct(y.cuda(), H, **options)
    assert found.statuses == whole.statuses
    assert found.x[5].abs().max() == 0
    for ours, theirs in zip(found.x, whole.x, strict=True):
        assert float((ours - theirs).norm()) <= 2 * TOLERANCE * float(theirs.norm())


def test_fewer_masks_need_no_more_memory(monkeypatch):
    y, H, options = problem("denoising", 320)
    model, used = td.load("gray", device="cuda"), []
    part = AttentiveSystem.part
    for restricted in (lambda self, some: None, part):
        monkeypatch.setattr(AttentiveSystem, "part", restricted)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        td.reconstruct(y.cuda(), H, model=model, **options)
        used.append(torch.cuda.max_memory_allocated())
    assert used[1] <= 1.02 * used[0]
