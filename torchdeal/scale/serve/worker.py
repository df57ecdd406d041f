"""The thread that computes: a bounded queue, of which pictures that can be solved together are taken together."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from torchdeal.app.errands import BusyError
from torchdeal.cancelling import CancelledError, Interruptible
from torchdeal.cli.frames import check_finite, kind_of_problem
from torchdeal.cli.memory import memory_for
from torchdeal.cli.run import Models, solve_together
from torchdeal.cli.shared import is_foreseeable
from torchdeal.scale.batches import attempt
from torchdeal.scale.serve.counters import Counters
from torchdeal.scale.serve.orders import Finished, Order
from torchdeal.solvers import Progress

LONGEST_RETRY = 60  # seconds
# Pixels: an iteration takes long then, and is interrupted, too. For less, looking costs a sixth more time.
LARGE = 2**15
SHARE = 0.2  # of the last solve in the mean over those before

log = logging.getLogger("torchdeal.serve")


class Worker:
    """A queue and the thread that works it off."""

    def __init__(self, models: Models, names: Sequence[str], waiting: int, together: int, counters: Counters):
        """Models of these names are loaded first; then at most so many orders wait, and are solved together."""
        self._models, self._names, self._most, self._together = models, names, waiting, together
        self._counters = counters
        self._waiting: deque[Order] = deque()
        self._current: Sequence[Order] = ()
        self._change = threading.Condition()
        self._closed = False
        self._pace = 1.0  # seconds of a picture, a running mean
        self.ready = False
        self._thread = threading.Thread(target=self._work, name="deal-serve", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def full(self) -> bool:
        with self._change:
            self._forget_unwanted()
            return len(self._waiting) >= self._most

    @property
    def retry_after(self) -> int:
        """Seconds after which there should be room."""
        return max(1, min(math.ceil(self._pace * (1 + len(self._waiting) / 2)), LONGEST_RETRY))

    def put(self, order: Order) -> None:
        """To be solved after those that wait already. Raises BusyError if these are too many."""
        with self._change:
            self._forget_unwanted()
            if self._closed or len(self._waiting) >= self._most:
                raise BusyError("Too many pictures are waiting already.")
            self._waiting.append(order)
            self._counters.waiting.set(len(self._waiting))
            self._change.notify()

    def stop_all(self) -> None:
        """Nobody waits for anything any more."""
        with self._change:
            for order in (*self._waiting, *self._current):
                order.stop.set()
            self._change.notify()

    def close(self) -> None:
        with self._change:
            self._closed = True
        self.stop_all()
        if self.alive:
            self._thread.join(timeout=10)

    def _forget_unwanted(self) -> None:
        for order in self._waiting:
            if order.stop.is_set():
                order.done.cancel()
        self._waiting = deque(order for order in self._waiting if not order.stop.is_set())
        self._counters.waiting.set(len(self._waiting))

    def _work(self) -> None:
        for name in self._names:
            self._models(name)
        self.ready = True
        while batch := self._next():
            started = time.monotonic()
            with torch.no_grad():
                self._solve(batch)
            seconds = time.monotonic() - started
            self._pace += SHARE * (seconds / len(batch) - self._pace)
            with self._change:
                self._current = ()

    def _next(self) -> list[Order]:
        """The first that waits, and those that can be solved with it; none at the end."""
        while True:
            with self._change:
                while not self._waiting and not self._closed:
                    self._change.wait()
                self._forget_unwanted()
                if self._closed:
                    return []
                waiting = list(self._waiting)
            batch, failed = _posed_alike(waiting, self._together)  # takes a while: others may put theirs meanwhile
            with self._change:
                taken = {id(order) for order in (*batch, *failed)}
                self._waiting = deque(order for order in self._waiting if id(order) not in taken)
                self._current = batch
                self._counters.waiting.set(len(self._waiting))
            if batch:
                return batch

    def _solve(self, batch: Sequence[Order]) -> None:
        """All at once; if that fails, in parts, so that one picture cannot spoil it for the others."""
        for order, outcome in zip(batch, attempt(self._answered, batch), strict=True):
            if isinstance(outcome, Exception):
                _fail(order, outcome)

    def _answered(self, batch: Sequence[Order]) -> Sequence[Finished | None]:
        """What they were given, at once; None where nobody waits for any of them."""
        try:
            finished = self._finished(batch)
        except CancelledError:
            for order in batch:
                order.done.cancel()
            return [None] * len(batch)
        except Exception as error:
            if len(batch) > 1:
                log.info("a batch of %d failed, it is tried in parts: %s", len(batch), error)
            raise
        for order, outcome in zip(batch, finished, strict=True):
            _give(order, outcome)
        return finished

    def _finished(self, batch: Sequence[Order]) -> list[Finished]:
        started, unwanted = time.monotonic(), _Unwanted(batch)
        large = sum(order.frame[0, 0].numel() * order.asked.magnification**2 for order in batch) > LARGE
        problems, settings = [order.problem for order in batch if order.problem], batch[0].task.settings
        with memory_for("for this picture"), Interruptible(unwanted) if large else nullcontext():
            solved = solve_together(problems, unwanted.look, settings=settings, models=self._models)
        seconds = time.monotonic() - started
        self._counters.batch_size.observe(len(batch))
        self._counters.solve_seconds.observe(seconds)
        for one in solved:
            check_finite(one, "The picture")
        waits = [started - order.placed for order in batch]
        return [Finished(one, len(batch), wait, seconds) for one, wait in zip(solved, waits, strict=True)]


def _posed_alike(waiting: Sequence[Order], most: int) -> tuple[list[Order], list[Order]]:
    """The first of those that wait, with those that can be solved with it, and those that are no problem: they fail."""
    batch: list[Order] = []
    failed: list[Order] = []
    for order in waiting:
        if len(batch) >= most:
            break
        if batch and (order.alike is None or order.alike != batch[0].alike):
            continue
        if order.problem is None and not _pose(order):
            failed.append(order)
        elif not batch or _fit(batch[0], order):
            batch.append(order)
    return batch, failed


@dataclass(frozen=True)
class _Unwanted:
    """Set when nobody waits for any of these pictures any more."""

    batch: Sequence[Order]

    def is_set(self) -> bool:
        return all(order.stop.is_set() for order in self.batch)

    def look(self, state: Progress) -> None:
        """A callback of the solver, after each outer iteration."""
        if self.is_set():
            raise CancelledError


def _fit(first: Order, other: Order) -> bool:
    """Whether both are problems that the commands would solve together."""
    one, two = (kind_of_problem(order.problem) for order in (first, other) if order.problem)
    return one is not None and one == two


def _pose(order: Order) -> bool:
    try:
        with torch.no_grad(), memory_for("for this picture"):
            order.problem = order.task.pose(order.frame)
    except Exception as error:
        _fail(order, error)
        return False
    return True


def _fail(order: Order, error: Exception) -> None:
    if not is_foreseeable(error):
        log.error("a picture could not be solved", exc_info=error)
    if order.done.set_running_or_notify_cancel():
        order.done.set_exception(error)


def _give(order: Order, outcome: Finished) -> None:
    if order.done.set_running_or_notify_cancel():
        order.done.set_result(outcome)
