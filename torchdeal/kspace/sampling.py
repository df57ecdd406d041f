"""Which lines of k-space a simulated scan measures."""

from __future__ import annotations

import torch
from torch import Tensor


def random_columns(size: tuple[int, int], acceleration: float, centre: float, seed: int = 0) -> Tensor:
    """A mask of whole columns, bool `(H, W)`, the zero frequency in the middle.

    `W / acceleration` of them are measured: the share `centre` of all, in the middle, and others at random.
    """
    height, width = size
    if not 1 <= acceleration <= width:
        raise ValueError(f"the acceleration must be from 1 to the number of columns, {width}, got {acceleration:g}")
    if not 0 <= centre <= 1 / acceleration:
        raise ValueError(
            f"the share in the centre must be from 0 to 1 / acceleration = {1 / acceleration:.3g}, got {centre:g}"
        )
    total, middle = round(width / acceleration), round(width * centre)
    columns = torch.zeros(width, dtype=torch.bool)
    columns[(width - middle + 1) // 2 :][:middle] = True
    others = (~columns).nonzero().flatten()
    order = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
    columns[others[order[: total - middle]]] = True
    return columns.expand(height, width).clone()
