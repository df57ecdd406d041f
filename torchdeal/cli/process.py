"""A command as a process: its signals, its streams, and what libraries say meanwhile."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from torchdeal.cli.shared import complain, messages

ENDING = ("SIGTERM", "SIGHUP")  # as Ctrl-C does, these end a command in order; Windows has one of them


@contextmanager
def a_command() -> Iterator[None]:
    """What holds while a command runs."""
    with ExitStack() as stack:
        for surrounding in (_open_streams(), _ended_by_signals(), _heard_libraries()):
            stack.enter_context(surrounding)
        try:
            yield
        finally:  # a signal may come while a progress bar is about to hide the cursor, and is not yet there to undo it
            with suppress(OSError):
                messages.show_cursor()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A signal raises SystemExit: temporary files are removed and the cursor comes back on the way out."""

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for name in ENDING if (number := getattr(signal, name, None))}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Ending:
    """Whether a command that runs until it is told to end was told so."""

    asked = False


@contextmanager
def ended_in_order(tell: Callable[[], None]) -> Iterator[Ending]:
    """Within, Ctrl-C or SIGTERM asks for the end, and `tell` says so. A second one ends at once, as elsewhere."""
    ending = Ending()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = {number: handler for number, handler in before.items() if callable(handler)}  # others are ignored: nohup

    def ask(number: int, frame: FrameType | None) -> None:
        if ending.asked:
            heard[signal.Signals(number)](number, frame)
        ending.asked = True
        with suppress(RuntimeError, OSError):  # in the middle of printing something else, or nobody listens any more
            tell()

    for number in heard:
        signal.signal(number, ask)
    try:
        yield ending
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


@contextmanager
def _open_streams() -> Iterator[None]:
    """Streams that were closed lead nowhere; what their encoding lacks is escaped; what they hold back is written."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            discard_output()
            if not isinstance(error, BrokenPipeError):
                complain("Error", f"the output could not be printed: {error.strerror}")
            raise SystemExit(1) from None


def discard_output() -> None:
    """Nobody reads it: Python is not to try once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _heard_libraries() -> Iterator[None]:
    """What libraries warn of or log is a warning of the command, in one line."""
    handler = _Complaining(logging.WARNING)
    shown = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: complain("Warning", _one_line(str(message)))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        warnings.showwarning = shown
        logging.getLogger().removeHandler(handler)


class _Complaining(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain("Warning", _one_line(record.getMessage()))


def _one_line(text: str) -> str:
    return " ".join(text.split())
