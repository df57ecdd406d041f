"""Many problems at once: those of one kind in batches that fill the device, answers in the order of the problems.

A small picture uses a small part of a GPU. Several of one shape, solved together, take hardly longer than one. The
samples of a batch stop on their own, each with its own statistics.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from torchdeal.memory import is_out_of_memory, memory_of
from torchdeal.operators import Operator

# A batch of so many pixels keeps a large GPU busy; tools/batch_sizes.py measures it.
FILLING = 2**21
BYTES = 24  # of GPU memory for each pixel and filter of a batch, about: masks, responses and what is between
SHARE = 0.7  # of the free memory that a batch may take
MOST = 64  # in a batch
SMALL = 2**22  # numbers of a tensor that is compared by its content
WINDOW = 4  # batches that may wait at once, so that memory is bounded where kinds alternate

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def batch_size(pixels: int, features: int, device: torch.device | str) -> int:
    """How many images of so many pixels are solved together: as many as fill the device and fit into its memory.

    On the CPU it is 1: a single picture uses all of its cores, and more at once were measured to be no faster.
    """
    if not str(device).startswith("cuda"):
        return 1
    fitting = int(SHARE * (memory_of(device) or 0) / (BYTES * features * pixels))
    return max(1, min(MOST, FILLING // pixels, fitting))


def kind_of(operator: Operator) -> Hashable:
    """Equal for operators that are made of the same numbers; large tensors must be the same ones, while they exist."""
    if operator.batch is not None:
        return id(operator)
    return type(operator), *((name, _part(value)) for name, value in sorted(vars(operator).items()))


def _part(value: Any) -> Hashable:
    if isinstance(value, Operator):
        return kind_of(value)
    if isinstance(value, Tensor):
        small = value.numel() <= SMALL and value.device.type == "cpu"
        content = hashlib.sha256(value.contiguous().numpy().tobytes()).digest() if small else value.data_ptr()
        return content, tuple(value.shape), value.stride(), value.dtype, value.device
    if isinstance(value, tuple):
        return tuple(_part(part) for part in value)
    return value if isinstance(value, (int, float, str, type(None))) else id(value)


def attempt(
    solve: Callable[[Sequence[Item]], Sequence[Answer]],
    items: Sequence[Item],
    halved: Callable[[int], object] = lambda half: None,
    *,
    all_or_none: bool = False,
) -> list[Answer | Exception]:
    """Answers for items of one kind, with the error of an item in place of an answer.

    Where `solve` raises, each of them is solved alone, so that one that is broken fails alone; where memory runs out,
    they are solved in two halves, and `halved` is told of how many. Where `all_or_none` are wanted, an error is raised,
    unless halves help.
    """
    try:
        return list(solve(items))
    except Exception as error:
        short = is_out_of_memory(error)  # the error itself holds on to all that memory: it ends here
        if all_or_none and not (short and len(items) > 1):
            raise
        if len(items) == 1:
            return [error]
    if not short:
        return [answer for item in items for answer in attempt(solve, [item], halved)]
    gc.collect()  # what knows itself, as a backend that computes without CUDA graphs does, is not gone yet
    half = len(items) // 2
    halved(half)
    parts = items[:half], items[half:]
    return [answer for part in parts for answer in attempt(solve, part, halved, all_or_none=all_or_none)]


class Batches(Generic[Item, Answer]):
    """Solves items in batches of one kind, and answers in their order, with the error of an item in place of an answer.

    Args:
        kind: items of equal kinds can be solved together; None: this one cannot, with any other.
        size: how many items like this one at most.
        solve: answers for items of one kind, see `attempt`; where memory runs out, later batches of this kind are as
            small as those that fit.
    """

    def __init__(
        self,
        kind: Callable[[Item], Hashable | None],
        size: Callable[[Item], int],
        solve: Callable[[Sequence[Item]], Sequence[Answer]],
    ) -> None:
        self._kind, self._size, self._solve = kind, size, solve
        self._waiting: dict[Hashable, list[int]] = {}  # numbers of items by their kind, the oldest kind first
        self._items: dict[int, Item] = {}  # what was taken and not given back
        self._answers: dict[int, Answer | Exception] = {}
        self._most: dict[Hashable, int] = {}  # where memory ran out

    def answers(self, items: Iterable[Item]) -> Iterator[tuple[Item, Answer | Exception]]:
        """Each item with its answer. No more items are taken than are needed to fill a batch of each waiting kind."""
        given = 0
        for number, item in enumerate(items):
            kind = self._kind(item)
            key = ("alone", number) if kind is None else kind
            self._items[number] = item
            self._waiting.setdefault(key, []).append(number)
            size = 1 if kind is None else min(self._size(item), self._most.get(key, MOST))
            if len(self._waiting[key]) >= size:
                self._solve_waiting(key)
            elif len(self._items) >= WINDOW * size:
                self._solve_waiting(next(iter(self._waiting)))
            while given in self._answers:
                yield self._items.pop(given), self._answers.pop(given)
                given += 1
        while self._waiting:
            self._solve_waiting(next(iter(self._waiting)))
        for number in sorted(self._answers):
            yield self._items.pop(number), self._answers.pop(number)

    def _solve_waiting(self, key: Hashable) -> None:
        numbers = self._waiting.pop(key)
        found = attempt(self._solve, [self._items[n] for n in numbers], lambda half: self._most.update({key: half}))
        self._answers.update(zip(numbers, found, strict=True))
