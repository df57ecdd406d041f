"""`Radon` as a sparse matrix: the same numbers, about twenty times faster on a CPU."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from torchdeal.operators import Operator, Radon


class RadonMatrix(Operator):
    """The matrix of a `Radon` operator, and its transpose, in rows (CSR), float32.

    It takes about 24 bytes for each of about `angles * H * W * 2.2` weights: 60 angles of 256 x 256 need 210 MB.
    """

    def __init__(self, radon: Radon):
        self.image_shape, self.measurement_shape = radon.image_shape, radon.measurement_shape
        self.size, self.sinogram = radon.size, (len(radon.angles), radon.bins)
        with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(False):
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            weights = _weights(radon)
            self.matrix = weights.to_sparse_csr()
            self.transpose = weights.t().coalesce().to_sparse_csr()

    def _forward(self, x: Tensor) -> Tensor:
        return _multiply(self.matrix, x, self.sinogram)

    def _adjoint(self, y: Tensor) -> Tensor:
        return _multiply(self.transpose, y, self.size)


def _multiply(matrix: Tensor, images: Tensor, shape: tuple[int, ...]) -> Tensor:
    columns = images.flatten(2).flatten(0, 1).T
    return (matrix @ columns.contiguous()).T.reshape(*images.shape[:2], *shape)


def _weights(radon: Radon) -> Tensor:
    """Of each pixel in each ray: bilinear interpolation at the points where `Radon` samples the rays."""
    height, width = radon.size
    rows, columns, values = [], [], []
    double = torch.zeros(1, dtype=torch.float64)
    for number, angle in enumerate(radon.angles):
        places = (radon._grid(angle[None], double)[0] + 1) / 2  # (bins, bins, 2), the corner pixels at 0 and 1
        x, y = places[..., 0] * (width - 1), places[..., 1] * (height - 1)
        ray = (number * radon.bins + torch.arange(radon.bins)).expand(radon.bins, -1)
        for column in (x.floor(), x.floor() + 1):
            for row in (y.floor(), y.floor() + 1):
                weight = (1 - (x - column).abs()) * (1 - (y - row).abs())
                inside = (column >= 0) & (column < width) & (row >= 0) & (row < height) & (weight > 0)
                rows.append(ray[inside])
                columns.append((row * width + column)[inside].long())
                values.append(weight[inside].float())
    indices = torch.stack([torch.cat(rows), torch.cat(columns)])
    size = (len(radon.angles) * radon.bins, height * width)
    return torch.sparse_coo_tensor(indices, torch.cat(values), size).coalesce()
