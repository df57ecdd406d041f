"""Matrices as operators."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators.base import Linear, Operator
from torchdeal.operators.tomography import segment_sums


class Matrix(Operator):
    """`H x = A x`, for a matrix A with a column for each number of the image, in the order of `x.flatten()`.

    Measurements are vectors `(B, rows)`.

    Args:
        matrix: `(rows, columns)`; a numpy array, a torch tensor, or a sparse matrix or array of SciPy.
        image_shape: `(C, H, W)`, or `(H, W)` of a gray image.
        real: of a complex matrix, whether the image is real all the same: the adjoint then returns the real part.
    """

    trusted = True

    def __init__(self, matrix: Any, image_shape: Sequence[int], *, real: bool = False):
        values = _as_tensor(matrix)
        rows, columns = values.shape
        shape = tuple(int(size) for size in image_shape)
        if len(shape) not in (2, 3) or min(shape) < 1:
            raise ValueError(f"image_shape must be (C, H, W) or (H, W), got {tuple(image_shape)}")
        if math.prod(shape) != columns:
            raise ValueError(
                f"the matrix has {columns} columns, but an image of shape {shape} has {math.prod(shape)} numbers"
            )
        self.image_shape, self.measurement_shape = (1,) * (3 - len(shape)) + shape, (rows,)
        self.matrix = values
        self.sparse_adjoint = None if values.layout is torch.strided else _adjoint_rows(values)
        if values.is_complex():
            self.real = bool(real)

    def _forward(self, x: Tensor) -> Tensor:
        return Linear.apply(x, self._apply, False)  # pyright: ignore[reportReturnType]

    def _adjoint(self, y: Tensor) -> Tensor:
        return Linear.apply(y, self._apply, True)  # pyright: ignore[reportReturnType]

    def _apply(self, values: Tensor, transposed: bool) -> Tensor:
        matrix = self.matrix
        if transposed:
            matrix = matrix.mH if self.sparse_adjoint is None else self.sparse_adjoint
        columns = values.flatten(1).T
        if columns.is_complex() and not matrix.is_complex():
            products = torch.complex(_product(matrix, columns.real), _product(matrix, columns.imag))
        else:
            products = _product(matrix, columns.to(columns.dtype.to_complex()) if matrix.is_complex() else columns)
        if not transposed:
            return products.T
        assert self.image_shape is not None
        images = products.T.reshape(len(values), *map(int, self.image_shape))  # pyright: ignore[reportArgumentType]
        return images.real if getattr(self, "real", False) else images


def is_matrix(obj: Any) -> bool:
    """An array or tensor of two dimensions, or a sparse matrix of SciPy."""
    return _is_scipy_sparse(obj) or (isinstance(obj, (np.ndarray, Tensor)) and obj.ndim == 2)


def _is_scipy_sparse(obj: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")  # what was not imported did not make the object
    return sparse is not None and sparse.issparse(obj)


def _as_tensor(matrix: Any) -> Tensor:
    """A copy, dense or in sparse rows, in floating point; checked."""
    if not is_matrix(matrix):
        shape = f" of shape {tuple(matrix.shape)}" if hasattr(matrix, "shape") else ""
        raise TypeError(f"a matrix must be an array of two dimensions, got {type(matrix).__name__}{shape}")
    try:
        values = _as_rows(matrix)
    except TypeError:
        raise TypeError(f"the matrix has dtype {matrix.dtype}: convert it to float32, float64 or complex64") from None
    if not (values.is_floating_point() or values.is_complex()):
        values = values.to(torch.float32)
    entries = values if values.layout is torch.strided else values.to_sparse_coo().coalesce().values()
    if not bool(torch.isfinite(entries).all()):
        raise ValueError("the matrix holds NaN or infinite values")
    return values


def _as_rows(matrix: Any) -> Tensor:
    if isinstance(matrix, Tensor):
        return matrix.detach().clone() if matrix.layout is torch.strided else _in_rows(matrix.detach().to_sparse_coo())
    native = matrix.dtype.newbyteorder("=")
    if not _is_scipy_sparse(matrix):
        return torch.from_numpy(np.array(matrix, dtype=native, order="C"))
    entries = matrix.tocoo()
    places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    return _in_rows(_from_places(places, torch.from_numpy(entries.data.astype(native)), matrix.shape))


def _from_places(places: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.sparse_coo_tensor(places, values, tuple(shape), check_invariants=False)


def _in_rows(matrix: Tensor) -> Tensor:
    """Coordinates as sparse rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return matrix.coalesce().to_sparse_csr()


def _adjoint_rows(matrix: Tensor) -> Tensor:
    """The adjoint of sparse rows, as sparse rows: products with it are several times faster than with columns."""
    entries = matrix.to_sparse_coo().coalesce()
    values = entries.values().conj().resolve_conj()
    return _in_rows(_from_places(entries.indices().flip(0), values, matrix.shape[::-1]))


def _product(matrix: Tensor, columns: Tensor) -> Tensor:
    if matrix.layout is not torch.strided and matrix.is_cuda and not matrix.is_complex():
        return torch.stack([segment_sums(matrix, column) for column in columns.T], 1)  # the same bits each time
    return matrix @ columns.contiguous()
