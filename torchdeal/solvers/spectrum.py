"""Eigenvalues of linear maps that are known by their products alone, for a batch: Lanczos and Arnoldi.

A few products with a map span a small space. The map, projected onto it, is a small matrix, whose eigenvalues are
those of the map as far as the space sees them. (Lanczos's three-term recurrence saves inner products, which are cheap
beside our maps, and loses orthogonality: here all are taken.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchdeal.solvers.cg import LinearMap, inner_products, sample_norms
from torchdeal.solvers.result import per_sample_column

EXHAUSTED = 1e-4  # relative: of a product of which less is new to the space, the rest is taken for rounding


def largest_eigenpair(
    apply: LinearMap, start: Tensor, steps: int, metric: LinearMap | None = None
) -> tuple[Tensor, Tensor]:
    """The largest eigenvalue of a symmetric map, `(B,)`, and its vector of length 1, like `start`.

    An estimate from below, which grows with the steps; exact where `start` and its products span all vectors.

    Args:
        apply: `v -> A v`, symmetric and positive semidefinite.
        start: random, so that no eigenvector is missed, `(B, ...)`; real or complex. (Of a complex image real and
            imaginary part are two numbers: the map need be linear over the reals only.)
        steps: products with the map.
        metric: a symmetric positive definite G, where lengths and symmetry are meant in `<u, G v>`.
    """
    basis, projected = krylov_space(apply, start, steps, metric)
    values, vectors = torch.linalg.eigh((projected + projected.mT) / 2)
    vector = torch.stack([per_sample_column(c, v) * v for c, v in zip(vectors[..., -1].T, basis, strict=True)]).sum(0)
    return values[:, -1], vector


def spectral_radius(apply: LinearMap, start: Tensor, steps: int) -> Tensor:
    """The largest modulus of an eigenvalue of any linear map, `(B,)`: an estimate, mostly from below."""
    _, projected = krylov_space(apply, start, steps)
    return torch.linalg.eigvals(projected).abs().amax(-1)


def krylov_space(
    apply: LinearMap, start: Tensor, steps: int, metric: LinearMap | None = None
) -> tuple[list[Tensor], Tensor]:
    """Vectors of length 1, orthogonal to each other, and the map between them, `(B, steps, steps)`.

    Where a space is exhausted early, further vectors are 0.
    """
    basis, duals, products = list[Tensor](), list[Tensor](), list[Tensor]()  # v_j, G v_j, A v_j
    towards, before = start, sample_norms(start)
    for _ in range(steps):
        fresh = sample_norms(towards) > EXHAUSTED * before
        dual = metric(towards) if metric else towards
        size = inner_products(towards, dual).clamp_min(0).sqrt()
        factor = per_sample_column(torch.where(fresh & (size > 0), 1 / size, 0), towards)
        basis.append(factor * towards)
        duals.append(factor * dual)
        products.append(apply(basis[-1]))
        towards, before = products[-1], sample_norms(products[-1])
        for vector, dual in 2 * list(zip(basis, duals, strict=True)):  # twice: once is not orthogonal enough
            towards = towards - per_sample_column(inner_products(dual, towards), vector) * vector
    rows = [torch.stack([inner_products(dual, product) for product in products], -1) for dual in duals]
    return basis, torch.stack(rows, -2)
