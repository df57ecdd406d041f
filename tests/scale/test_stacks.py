"""Many images: the answers are those of one by one, in order, each with its own statistics."""

import numpy as np
import pytest
import torch
from conftest import noisy, picture, relative

import torchdeal as td
from torchdeal.operators import Blur
from torchdeal.scale import stacks

LIGHT = {"model": "gray-light", "tolerance": 1e-2}


def images():
    """Of two sizes, three types, several noise levels."""
    plain = [noisy(picture(size=24 if i % 2 else 32, row=90 + 30 * i), 8 + 6 * i, seed=i)[0, 0] for i in range(5)]
    found = [(image.clamp(0, 1) * 255).round().byte().numpy() for image in plain]
    found[3] = plain[3].double().numpy()
    return [*found, plain[4][None]]


def test_in_batches_as_one_by_one(monkeypatch):
    sizes = []

    def spy(y, *given, **options):
        sizes.append(len(y))
        return reconstruct(y, *given, **options)

    reconstruct = stacks.reconstruct
    monkeypatch.setattr(stacks, "reconstruct", spy)
    found = list(td.reconstruct_many(iter(images()), batch=3, **LIGHT))
    assert sorted(sizes) == [1, 1, 1, 3]
    for image, rec in zip(images(), found, strict=True):
        alone = td.reconstruct(image, **LIGHT)
        assert type(rec.x) is type(alone.x)
        assert (rec.x.shape, rec.x.dtype) == (alone.x.shape, alone.x.dtype)
        a, b = (torch.as_tensor(np.asarray(one.x), dtype=torch.float64) for one in (rec, alone))
        assert relative(a, b) < 2e-2
        assert rec.sigma.item() == pytest.approx(alone.sigma.item(), rel=1e-5)
        assert rec.converged
        assert float(rec.distance) < 1e-2
        assert rec.residuals.shape == (int(rec.iterations), 1)
        assert rec.iterations.shape == rec.cg_iterations.shape == rec.distance.shape == (1,)


def test_a_result_holds_its_own_problem():
    """Error bars of a sample of a batch are those of the image alone."""
    same = [image for image in images() if np.shape(image) == (32, 32)][:2]
    rec = list(td.reconstruct_many(same, batch=2, **LIGHT))[1]
    alone = td.reconstruct(same[1], **LIGHT)
    equation, image = rec.posed()
    assert image.shape == equation.b.shape == (1, 1, 32, 32)
    assert relative(equation.b, alone.posed()[0].b) == 0
    deviations = [torch.as_tensor(np.asarray(td.uncertainty(one)), dtype=torch.float64) for one in (rec, alone)]
    assert relative(*deviations) < 5e-2


def test_numbers_for_each_image():
    same = [image for image in images() if np.shape(image) == (32, 32)][:2]
    found = list(td.reconstruct_many(same, sigma=[5.0, 30.0], lam=iter([4.0, 9.0]), batch=2, **LIGHT))
    assert [rec.sigma.item() for rec in found] == pytest.approx([5, 30])
    assert [rec.lam.item() for rec in found] == pytest.approx([4, 9])


def test_an_operator_for_all():
    H = Blur(torch.ones(3, 3) / 9)
    clean = [picture(size=24, row=row) for row in (90, 150)]
    y = [noisy(H.forward(image), 3, seed=1)[0] for image in clean]
    options = {"noise": 3 / 255, "max_iterations": 6, "model": "gray-light", "tolerance": 1e-2}
    for one, rec in zip(y, td.reconstruct_many(y, H, batch=2, **options), strict=True):
        assert rec.x.shape == (1, 24, 24)
        assert relative(rec.x, td.reconstruct(one, H, **options).x) < 2e-2


def test_what_cannot_be():
    with pytest.raises(ValueError, match="those of 2 images"):
        list(td.reconstruct_many([np.zeros((2, 8, 8, 1))]))
    with pytest.raises(ValueError, match="batch must be a positive integer"):
        td.reconstruct_many([], batch=0)
    with pytest.raises(ValueError, match="NaN"):
        list(td.reconstruct_many([np.full((8, 8), np.nan)]))
    with pytest.raises(ValueError, match="sigma has fewer values than there are images: 1"):
        list(td.reconstruct_many([np.zeros((8, 8))] * 2, sigma=[0.1], **LIGHT))
    assert list(td.reconstruct_many([])) == []
