"""How the last correction lies to those before: what the distance estimate and the momentum look at.

All of it follows from the inner products of a few vectors. They are found in one pass over the images, and brought to
the host at once; what is decided from them is arithmetic of small numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def inner_products_of(x: Tensor, correction: Tensor, earlier: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Those of `d`, of the `x - x_i`, and of the `d - d_i`, in that order, the latest i first: `(B, m, m)`, in double.

    Differences are taken first: products of the images themselves would lose them to rounding.

    Args:
        x: the iterate.
        correction: `d = T(x) - x`.
        earlier: the same of iterates before, the latest last.
    """
    moves = [x - before for before, _ in reversed(earlier)]
    changes = [correction - before for _, before in reversed(earlier)]
    vectors = torch.stack([_rows(v) for v in (correction, *moves, *changes)], 2).double()  # (B, rows, m, columns)
    return (vectors @ vectors.mT).sum(1)


def _rows(v: Tensor) -> Tensor:
    """Real rows, `(B, rows, columns)`: many small products, which fill a GPU."""
    real = torch.view_as_real(v).flatten(-2) if v.is_complex() else v
    return real.reshape(len(v), -1, real.shape[-1])


class Geometry:
    """What the inner products of the correction d and its differences to earlier ones tell, per sample.

    With `x_i` an earlier iterate and `d_i = T(x_i) - x_i`: `x - x_i` is a move, and `d - d_i` the change that it made;
    `T(x) - T(x_i)` is the sum of both.

    Args:
        products: those of `inner_products_of`, `(B, m, m)`, on the host.
    """

    def __init__(self, products: np.ndarray):
        self._products = products
        self.earlier = products.shape[1] // 2  # how many iterates before this one are known
        self.step = np.sqrt(products[:, 0, 0])  # ||d||

    def ratios(self) -> np.ndarray:
        """`||T(x) - T(x_i)|| / ||x - x_i||`, `(B, m)`, the latest i first."""
        moved, both, changed = self._moves_and_changes()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(np.maximum(moved + 2 * both + changed, 0) / moved)

    def went_back(self) -> np.ndarray:
        """Whether `T(x) - T(x_i)` goes against `x - x_i`, `(B, m)`."""
        moved, both, _ = self._moves_and_changes()
        return moved + both < 0

    def secants(self, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """With T affine along the last steps: how far they say the fixed point is from T(x), and what of d they leave.

        The weights w of the changes are those with the smallest `||d - sum_i w_i (d - d_i)||`. The fixed point is then
        at `T(x) - sum_i w_i (T(x) - T(x_i))`. Of a sample only its `known` latest steps count, `(B,)`.
        """
        m = self.earlier
        if not m:
            return np.zeros_like(self.step), self.step
        counts = (np.arange(m) < known[:, None]).astype(float)
        pairs = counts[:, None] * counts[:, :, None]
        moves, changes = slice(1, 1 + m), slice(1 + m, 1 + 2 * m)
        among_changes = self._products[:, changes, changes] * pairs
        both = self._products[:, moves, changes] * pairs
        among_images = self._products[:, moves, moves] * pairs + both + both.swapaxes(1, 2) + among_changes
        with_d = self._products[:, changes, 0] * counts
        weights = least_squares(among_changes, with_d)
        explained = _quadratic(among_images, weights)
        left = self._products[:, 0, 0] - 2 * (weights * with_d).sum(1) + _quadratic(among_changes, weights)
        return np.sqrt(np.maximum(explained, 0)), np.sqrt(np.maximum(left, 0))

    @property
    def turned(self) -> np.ndarray:
        """Whether d goes against the last movement `T(x) - T(x_1)`."""
        return self._products[:, 0, 1] + self._products[:, 0, 1 + self.earlier] < 0

    @property
    def opposed(self) -> np.ndarray:
        """Whether d goes against the correction before."""
        return self._products[:, 0, 0] - self._products[:, 0, 1 + self.earlier] < 0

    @property
    def aitken(self) -> np.ndarray:
        """Which part of the last movement, taken back, would make the correction smallest, if T were affine."""
        change = 1 + self.earlier
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._products[:, 0, change] / self._products[:, change, change]

    def _moves_and_changes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`||x - x_i||^2`, `<x - x_i, d - d_i>` and `||d - d_i||^2`."""
        moves = np.arange(1, 1 + self.earlier)
        changes = moves + self.earlier
        products = self._products
        return products[:, moves, moves], products[:, moves, changes], products[:, changes, changes]


def host_array(values: Tensor) -> np.ndarray:
    """On the host decisions are made in numpy, whose functions of so few numbers take a tenth of the time."""
    values = values.cpu()
    try:
        return values.numpy()
    except RuntimeError:  # within transforms of torch.func, whose tensors have no memory of their own
        return np.array([value.item() for value in values.flatten()]).reshape(values.shape)


def least_squares(gram: np.ndarray, products: np.ndarray) -> np.ndarray:
    """`w`, `(B, m)`, with the smallest `||y - sum_i w_i v_i||`, from the `<v_i, v_j>` and `<v_i, y>`; v_i may be 0."""
    ridge = 1e-9 * gram.trace(axis1=1, axis2=2) + np.finfo(float).tiny
    return np.linalg.solve(gram + ridge[:, None, None] * np.eye(gram.shape[1]), products[..., None])[..., 0]


def _quadratic(matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.einsum("bi,bij,bj->b", weights, matrix, weights)
