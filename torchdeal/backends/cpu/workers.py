"""Pieces of work, shared among as many threads as torch has.

Torch cuts each operation into parts, one for each thread of OpenMP, and waits for all of them. For pictures that is
thousands of times a second, and each time a thread that is kept waiting, by another process say, keeps all others
waiting. Here a piece of work is some milliseconds of operations. A thread does the whole piece by itself, takes the
next one from a queue, and they meet once, when the queue is empty. A slow thread takes fewer pieces.

Pieces are the same for any number of threads, and so are the bits of what comes out of them.

`torch.set_num_threads` is about the thread that calls it, and about threads that begin later.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Piece = TypeVar("Piece")
Result = TypeVar("Result")

SMALL = 1 << 20  # numbers of an image; an operation on as many takes less than a millisecond

_local = threading.local()  # `threads`: how many the caller had, where this thread is alone within `alone`


@contextmanager
def alone() -> Iterator[int]:
    """Within, torch leaves operations of this thread to this thread. Yields how many threads it had, to share pieces.

    What is called within is within too: the number of threads is that of the outermost.
    """
    threads = getattr(_local, "threads", None)
    if threads is not None:
        yield threads
        return
    threads = torch.get_num_threads()
    try:
        _be_alone(threads)
        yield threads
    finally:
        _local.threads = None
        torch.set_num_threads(threads)


@contextmanager
def together() -> Iterator[None]:
    """Within `alone`, for what does not work in pieces: all threads of the caller again."""
    threads = getattr(_local, "threads", None)
    if threads is None:
        yield
        return
    _local.threads = None
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        _be_alone(threads)


def _be_alone(threads: int) -> None:
    """Torch has one thread here from now on, and still so many in threads that begin later."""
    _local.threads = threads
    torch.set_num_threads(1)
    _set_for_later_threads(threads)


def _set_for_later_threads(threads: int) -> None:
    """Without a change here: so another thread does it."""
    setter = threading.Thread(target=torch.set_num_threads, args=(threads,))
    with contextlib.suppress(RuntimeError):  # no thread can begin: then there are no later ones
        setter.start()
        setter.join()


def steady(image: Tensor) -> AbstractContextManager[Any]:
    """For all that a solver does with such an image: `alone`, where threads have more to wait for than to do."""
    return alone() if image.device.type == "cpu" and image.numel() <= SMALL else nullcontext()


def share(work: Callable[[Piece, int], Result], pieces: Sequence[Piece]) -> list[Result]:
    """`work(piece, worker)` of each, in this order. Workers are numbered: one number is never at work twice at a time.

    The first error of a piece is raised here, after all workers have stopped.
    """
    with alone() as threads:
        count = min(threads, len(pieces))
        if count <= 1:
            return [work(piece, 0) for piece in pieces]
        queue = _Queue(work, pieces)
        helpers = _helped(queue, count - 1)
        try:
            queue.work(0)
        finally:
            queue.close()
            # One that has not begun is not waited for: it may be busy elsewhere.
            for helper in helpers:
                if not helper.cancel():
                    helper.exception()
        return queue.finished()


class _Queue(Generic[Piece, Result]):
    """Pieces, of which each worker takes the next one."""

    def __init__(self, work: Callable[[Piece, int], Result], pieces: Sequence[Piece]):
        self._work = work
        self._left = list(enumerate(pieces))[::-1]
        self._results: list[Any] = [None] * len(pieces)
        self._errors: list[BaseException] = []
        self._modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def work(self, worker: int) -> None:
        while self._left:
            try:
                index, piece = self._left.pop()  # safe among threads: nobody can be in between
            except IndexError:  # another one was faster
                return
            self._results[index] = self._work(piece, worker)

    def help(self, worker: int) -> None:
        """The same in a thread of its own, which does not know the modes of the one that it helps."""
        gradients, inference = self._modes
        try:
            with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
                self.work(worker)
        except BaseException as error:
            self._errors.append(error)
            self.close()

    def close(self) -> None:
        self._left.clear()

    def finished(self) -> list[Any]:
        if self._errors:
            raise self._errors[0]
        return self._results


class _Pool:
    """Threads that wait for work, begun when first needed, and ended with the interpreter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._size = 0
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, queue: _Queue[Any, Any], helpers: int) -> list[Future[None]]:
        with self._lock:
            if self._executor is None or self._size < helpers:
                self._begin(helpers)
            assert self._executor is not None
            return [self._executor.submit(queue.help, worker) for worker in range(1, helpers + 1)]

    def _begin(self, size: int) -> None:
        """New threads. Each changes the number of threads for later ones: so all have begun when that is set again."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None
        executor = ThreadPoolExecutor(size, thread_name_prefix="torchdeal")
        present = threading.Barrier(size + 1)
        try:
            for _ in range(size):
                executor.submit(_begin_worker, present)
            present.wait()
        except BaseException:
            present.abort()
            executor.shutdown(wait=False)
            raise
        self._executor, self._size = executor, size
        _set_for_later_threads(_local.threads)


def _begin_worker(present: threading.Barrier) -> None:
    torch.get_num_threads()  # once in a thread this sets the number for later ones: not after the next line
    torch.set_num_threads(1)
    present.wait()


def _helped(queue: _Queue[Any, Any], helpers: int) -> list[Future[None]]:
    """As many helpers for it as there can be: none when the interpreter ends, or where no thread can begin."""
    with contextlib.suppress(RuntimeError):
        return _pool.submit(queue, helpers)
    return []


def _forget() -> None:
    """In a forked process, which has none of the threads."""
    global _pool
    _pool = _Pool()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
