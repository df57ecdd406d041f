"""Work that takes seconds or minutes: one errand at a time, the others wait in a short queue. Each can be cancelled."""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from torchdeal.choice import Choice
from torchdeal.cli.shared import complain, in_words, is_foreseeable

MOST_WAITING = 16
UNFORESEEN = "Something went wrong that should not. The terminal in which deal app runs has the details."


class State(Choice):
    """How far an errand is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CancelledError(BaseException):
    """Not an `Exception`: nothing on the way is to take it for an error of its own and go on."""


class BusyError(Exception):
    """Too many are waiting already."""


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
        if self._stop.is_set():
            raise CancelledError
        return func(*args, **(kwargs or {}))


@dataclass(eq=False)
class Errand:
    """One thing to do.

    Attributes:
        work: does it, and returns what is wanted. It may write into `progress`.
        words: what is told of an error.
        progress: how far it is, for the page.
        number: by which the page tells it from others.
    """

    work: Callable[[Errand], Any]
    words: Callable[[str], str] = str
    progress: dict[str, Any] = field(default_factory=dict)
    state: State = State.WAITING
    error: str = ""
    result: Any = None
    begun: float = 0.0
    seconds: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    number: int = field(default_factory=itertools.count(1).__next__)

    @property
    def ended(self) -> bool:
        return self.state not in (State.WAITING, State.RUNNING)

    def cancel(self) -> None:
        """At once for whoever asks; the work ends with the operation that it is at."""
        self.stop.set()
        if not self.ended:
            self.state = State.CANCELLED

    def run(self) -> None:
        if self.stop.is_set():
            return
        self.state, self.begun = State.RUNNING, time.monotonic()
        try:
            with Interruptible(self.stop), torch.no_grad():
                self.result = self.work(self)
            ending, error = State.DONE, ""
        except CancelledError:
            ending, error = State.CANCELLED, ""
        except Exception as reason:
            ending, error = State.FAILED, self._told(reason)
        self.seconds = time.monotonic() - self.begun
        if not self.stop.is_set():
            self.error, self.state = error, ending

    def _told(self, reason: Exception) -> str:
        if is_foreseeable(reason):
            return self.words(in_words(reason))
        complain("Error", f"{type(reason).__name__}: {reason}")
        traceback.print_exc()
        return UNFORESEEN


class Errands:
    """A queue and the thread that works it off."""

    def __init__(self, tidy: Callable[[], None] = lambda: None, pause: float = 20.0):
        """`tidy` is called every `pause` seconds or so, when there is nothing to do, and after each errand."""
        self._waiting: deque[Errand] = deque()
        self._current: Errand | None = None
        self._change = threading.Condition()
        self._closed = False
        self._tidy, self._pause = tidy, pause
        self._thread = threading.Thread(target=self._work, name="deal-app", daemon=True)
        self._thread.start()

    def put(self, errand: Errand) -> Errand:
        """To be done after those that wait already. Raises BusyError if these are too many."""
        with self._change:
            self._forget_cancelled()
            if len(self._waiting) >= MOST_WAITING:
                raise BusyError("Too many people are waiting already. Try again in a minute.")
            self._waiting.append(errand)
            self._change.notify()
        return errand

    def ahead(self, errand: Errand) -> int:
        """How many errands come before this one, with the one that runs."""
        with self._change:
            self._forget_cancelled()
            if errand not in self._waiting:
                return 0
            return list(self._waiting).index(errand) + (self._current is not None)

    def close(self) -> None:
        """Cancel everything and wait for the thread."""
        with self._change:
            self._closed = True
            for errand in filter(None, (*self._waiting, self._current)):
                errand.cancel()
            self._change.notify()
        self._thread.join(timeout=10)

    def _forget_cancelled(self) -> None:
        self._waiting = deque(errand for errand in self._waiting if not errand.ended)

    def _work(self) -> None:
        while (errand := self._next()) is not None:
            errand.run()
            with self._change:
                self._current = None

    def _next(self) -> Errand | None:
        """The next one, when there is one; None at the end."""
        while True:
            self._tidy()
            with self._change:
                if not self._waiting and not self._closed:
                    self._change.wait(self._pause)
                if self._closed:
                    return None
                self._forget_cancelled()
                if self._waiting:
                    self._current = self._waiting.popleft()
                    return self._current
