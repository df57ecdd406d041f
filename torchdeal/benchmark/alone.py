"""A function in a process of its own: what it returns, the memory that it takes, or why it died."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from torchdeal.benchmark.peers.base import Unavailable

MIB = 2**20


def run_alone(function: Callable[..., Any], *arguments: Any, most_seconds: float) -> Any:
    """What the function of a module returns. Raises `Unavailable` where it fails, dies or takes too long."""
    context = fresh_processes()
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, function, arguments), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(most_seconds):
            raise Unavailable(f"it takes more than {most_seconds / 60:g} minutes")
        returned, answer = here.recv()
    except EOFError:
        process.join()
        raise Unavailable(_death(process.exitcode)) from None
    finally:
        process.kill()
        process.join()
        here.close()
    if not returned:
        raise Unavailable(answer)
    return answer


def fresh_processes() -> Any:
    """How they begin: a server that has imported all, and computed nothing, forks.

    That is quick, and no memory of this process is counted.
    """
    ways = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in ways else "spawn")
    if "forkserver" in ways:
        context.set_forkserver_preload(["torchdeal.benchmark.methods"])
    return context


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        answer = True, function(*arguments)
    except (ValueError, OSError, ImportError) as error:  # `Unavailable` is among them
        answer = False, str(error)
    except Exception as error:  # whatever it is, the other methods are measured
        answer = False, f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:  # the other process tells
        return
    connection.send(answer)


def _death(exit_code: int | None) -> str:
    if exit_code == -9:
        return "its process was killed, as systems do when memory runs out"
    return f"its process ended with code {exit_code}"


class PeakMemory:
    """The most that this process holds from now on, beyond what it holds now; of a GPU what torch has there."""

    def __init__(self, device: str):
        self.on_gpu = device == "cuda"
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        else:
            with suppress(OSError):  # Linux forgets the peak so far
                Path("/proc/self/clear_refs").write_text("5")
        self.before = self._peak()

    def mib(self) -> float | None:
        """None where the system does not tell."""
        now = self._peak()
        return None if now is None or self.before is None else (now - self.before) / MIB

    def _peak(self) -> int | None:
        if self.on_gpu:
            return torch.cuda.max_memory_allocated()
        try:
            import resource
        except ImportError:  # Windows
            return None
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
