"""Eigenvalues by products alone, against those of dense matrices."""

import pytest
import torch
from conftest import random

from torchdeal.solvers.spectrum import krylov_space, largest_eigenpair, spectral_radius


def batch_of(*matrices):
    """The map of each sample, on vectors `(B, n)`."""
    stacked = torch.stack(matrices)
    return stacked, lambda v: (stacked @ v[..., None])[..., 0]


def symmetric(size, seed):
    matrix = random(size, size, seed=seed)
    return matrix @ matrix.T / size


def test_largest_eigenpair_of_each_sample():
    matrices, apply = batch_of(symmetric(30, 0), 7 * symmetric(30, 1))
    value, vector = largest_eigenpair(apply, random(2, 30, seed=2), 12)
    assert torch.allclose(value, torch.linalg.eigvalsh(matrices)[:, -1], rtol=1e-6)
    assert torch.allclose(apply(vector), value[:, None] * vector, atol=1e-3)


def test_few_steps_are_below():
    _, apply = batch_of(torch.diag(torch.linspace(0, 1, 200, dtype=torch.float64)))
    found = [float(largest_eigenpair(apply, random(1, 200) - 0.5, steps)[0]) for steps in (2, 4, 8, 16, 32)]
    assert found == sorted(found)
    assert found[0] < 0.95
    assert 0.99 < found[-1] <= 1


def test_another_metric():
    """`G^-1 S` is symmetric in `<u, G v>`; its eigenvalues are those of the pencil (S, G)."""
    S, G = symmetric(20, 0), symmetric(20, 1) + torch.eye(20, dtype=torch.float64)
    inverse = torch.linalg.inv(G)
    value, vector = largest_eigenpair(
        lambda v: v @ (inverse @ S).T, random(1, 20, seed=2), 15, metric=lambda v: v @ G
    )  # fmt: skip
    assert float(value) == pytest.approx(float(torch.linalg.eigvals(inverse @ S).real.max()), rel=1e-6)
    assert float((vector @ G @ vector.T).squeeze()) == pytest.approx(1)


def test_spectral_radius_of_a_rotation_and_of_a_matrix_that_is_not_normal():
    turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]], dtype=torch.float64)
    rotation = torch.block_diag(turn, torch.diag(torch.linspace(-0.5, 0.5, 18, dtype=torch.float64)))
    shear = torch.diag(torch.linspace(0.1, 0.6, 20, dtype=torch.float64)) + torch.triu(random(20, 20), 15)
    _, apply = batch_of(rotation, shear)
    assert float(torch.linalg.matrix_norm(shear, 2)) > 1  # its norm says nothing about the radius
    found = spectral_radius(apply, random(2, 20, seed=3) - 0.5, 20)
    assert found.tolist() == pytest.approx([0.9, 0.6], rel=1e-3)


def test_a_space_that_is_exhausted_early():
    """Three eigenvalues: after three products there is nothing new."""
    values = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64).repeat(5)
    basis, projected = krylov_space(lambda v: v * values, random(1, 15), 6)
    assert [float(vector.norm()) for vector in basis] == pytest.approx([1, 1, 1, 0, 0, 0])
    assert torch.linalg.eigvalsh(projected[0]).tolist() == pytest.approx([0, 0, 0, 1, 2, 5], abs=1e-9)
    assert float(largest_eigenpair(lambda v: 0 * v, random(1, 15), 4)[0]) == 0


def test_complex_vectors_are_vectors_of_twice_as_many_real_numbers():
    """Conjugation is linear over the reals: its eigenvalues are 1 and -1."""
    start = torch.complex(random(1, 8), random(1, 8, seed=1))
    value, vector = largest_eigenpair(lambda v: 2 * v + v.conj(), start, 4)
    assert float(value) == pytest.approx(3)
    assert float(vector.imag.norm()) < 1e-6
