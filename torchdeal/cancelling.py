"""Work that can be cancelled, also in the middle of a long iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode


class CancelledError(BaseException):
    """Not an `Exception`: nothing on the way is to take it for an error of its own and go on."""


class Stop(Protocol):
    """Such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether the work is not wanted any more."""
        ...


class Interruptible(TorchFunctionMode):
    """Within, each operation of torch first looks whether the work is still wanted.

    An outer iteration of a large picture takes seconds. Its operations take milliseconds: so long does it take to stop.
    """

    def __init__(self, stop: Stop):
        super().__init__()
        self._stop = stop

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # On the way out, contexts such as `no_grad` must be able to restore what was before.
        if self._stop.is_set() and func is not torch._C._set_grad_enabled:
            raise CancelledError
        return func(*args, **(kwargs or {}))
