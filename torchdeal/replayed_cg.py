"""Conjugate gradients as CUDA graphs: the host starts a few iterations at once, and asks whether more are needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from torchdeal.backends.cuda.graphs import Replays
from torchdeal.solvers.cg import MIN_WINDOW, LinearMap, LinearSolution

TOGETHER = 2  # iterations of a graph: asking makes the device wait, and those beyond the end are wasted


def replayed_cg(like: Tensor) -> ReplayedCG | None:
    """For right-hand sides like this one; None where there is no such thing."""
    if not like.is_cuda or like.real.dtype is not torch.float32:
        return None
    try:
        from torchdeal.backends.cuda import triton_cg
    except ImportError:
        return None
    return ReplayedCG(triton_cg)


class ReplayedCG:
    """`conjugate_gradient` from zero, without preconditioner, for the systems of one reconstruction.

    Args:
        kernels: the module `triton_cg`.
        replays: what captures; by default an object of its own.
    """

    def __init__(self, kernels: Any, replays: Replays | None = None):
        self._kernels, self._replays = kernels, replays or Replays()
        self._rooms: dict[tuple[Hashable, ...], Any] = {}

    def __call__(
        self,
        key: Hashable,
        apply: LinearMap,
        b: Tensor,
        *,
        tolerance: Tensor,
        error_tolerance: Tensor,
        max_iterations: int,
        smallest: float = 0.0,
    ) -> LinearSolution:
        """See `conjugate_gradient`.

        What has the same key must do the same, and find all that it reads where it was before. With None the
        iterations are started one by one.
        """
        with torch.cuda.device_of(b):  # where Triton launches, and graphs are captured
            return self._solve(key, apply, b, torch.stack([tolerance, error_tolerance]), max_iterations, smallest)

    def _solve(
        self, key: Hashable, apply: LinearMap, b: Tensor, tolerances: Tensor, max_iterations: int, smallest: float
    ) -> LinearSolution:
        room = self._room(b, max_iterations)
        room.b.copy_(_real(b))
        room.tolerances.copy_(tolerances)
        complex_valued = b.is_complex()

        def begin() -> None:
            self._kernels.begin(room)

        def advance() -> None:
            for _ in range(TOGETHER):
                p = torch.view_as_complex(room.p) if complex_valued else room.p
                self._kernels.iterate(room, _real(apply(p).contiguous()), smallest, MIN_WINDOW)
            torch.any(room.table[:, self._kernels.LIVE] > 0, dim=0, out=room.going_on)

        shape = tuple(b.shape)
        run = self._replays.run if key is not None else _call
        run(("begin", shape), begin)
        for _ in range(max_iterations // TOGETHER):
            run((key, shape, smallest), advance)
            if not room.going_on.item():
                break
        return self._found(room, complex_valued)

    def _room(self, b: Tensor, max_iterations: int) -> Any:
        key = tuple(b.shape), b.is_complex(), max_iterations
        if key not in self._rooms:
            self._rooms[key] = self._kernels.Room.like(_real(b.contiguous()), max_iterations)
        return self._rooms[key]

    def _found(self, room: Any, complex_valued: bool) -> LinearSolution:
        k, table, x = self._kernels, room.table.clone(), room.x.clone()
        return LinearSolution(
            x=torch.view_as_complex(x) if complex_valued else x,
            residual=table[:, k.RESIDUAL],
            error=table[:, k.ERROR],
            iterations=table[:, k.ITERATIONS].long(),
            converged=table[:, k.DONE] > 0,
        )


def _call(key: Hashable, function: Callable[[], None]) -> None:
    function()


def _real(values: Tensor) -> Tensor:
    """The same numbers, each complex one as two."""
    return torch.view_as_real(values) if values.is_complex() else values
