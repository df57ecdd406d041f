"""CUDA graphs: one launch in the place of many."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor


class Replays:
    """Functions of tensors: computed at first, captured when they are asked for again, replayed from then on.

    All is captured in one stream, where it was computed at first, since what is made at the first use in a stream must
    not be captured.

    Args:
        stream: that stream; by default that of the thread.
        calls: how often a function is computed before it is captured, which takes as long as dozens of its launches.
    """

    def __init__(self, stream: torch.cuda.Stream | None = None, calls: int = 1) -> None:
        self._replays: dict[Hashable, Replay | None] = {}
        self._calls: Counter[Hashable] = Counter()
        self._stream, self._enough = stream, calls

    def run(self, key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """The function of that key, of inputs that have the same shapes each time, on a CUDA device."""
        if torch.cuda.is_current_stream_capturing():  # it becomes part of another graph
            return function(*inputs)
        self._stream = self._stream or _of_thread.stream()
        if self._calls[key] < self._enough:
            self._calls[key] += 1
            self._replays[key] = None
            return _in_stream(self._stream, function, *inputs)
        replay = self._replays[key]
        if replay is None:
            replay = self._replays[key] = Replay(function, inputs, self._stream)
        return replay(*inputs)


class Replay:
    """A function of tensors of fixed shapes as a CUDA graph.

    What else the function reads must stay where it is. If it cannot be captured it is simply called. A result that is a
    tensor, or several, is the caller's. What holds tensors otherwise is overwritten by the next call, and by other
    graphs of this stream.

    Args:
        function: what is captured; it was called in the stream before.
        inputs: like those that it will be called with.
        stream: where it is captured.
    """

    def __init__(self, function: Callable[..., Any], inputs: tuple[Tensor, ...], stream: torch.cuda.Stream):
        self.inputs: list[Tensor] = []
        self.function, before, pool = None, torch.cuda.current_stream(), None
        graph = torch.cuda.CUDAGraph()
        try:
            self.inputs = [value.clone() for value in inputs]
            pool = _of_thread.pool()
            # Not `torch.cuda.graph`, which waits for the device and gives back all unused memory each time.
            with torch.cuda.stream(stream):
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    self.output = function(*self.inputs)
                finally:
                    graph.capture_end()
            self.graph = graph  # one that failed ends here: it would hold on to its memory
        except RuntimeError as error:
            torch.cuda.set_stream(before)  # a capture that fails leaves its own behind
            if pool is not None:
                _of_thread.abandon(pool)
            warnings.warn(f"computing without a CUDA graph, which is slower: {error.__context__ or error}")
            # Kept only where it is needed: it knows the backend, and a cycle would keep the memory of both.
            self.inputs, self.output, self.function = [], None, function

    def __call__(self, *inputs: Tensor) -> Any:
        if self.function is not None:
            return self.function(*inputs)
        for place, value in zip(self.inputs, inputs, strict=True):
            place.copy_(value)
        self.graph.replay()
        return _copied(self.output)


class _OfThread(threading.local):
    """What the graphs of a thread compute in, on each device. They run one after the other, so all use the same.

    It outlives them: the graphs of the next image find it again, where it would have to be asked for anew.
    """

    def __init__(self) -> None:
        self._holders: dict[int, torch.cuda.CUDAGraph] = {}
        self._streams: dict[int, torch.cuda.Stream] = {}

    def stream(self) -> torch.cuda.Stream:
        """That of the present device. Torch has 32 streams, and hands them out in turn.

        If each image took a new one, it would soon be one in which another thread captures.
        """
        device = torch.cuda.current_device()
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream()
        return self._streams[device]

    def pool(self) -> Any:
        """Memory on the present device."""
        device = torch.cuda.current_device()
        if device not in self._holders:
            self._holders[device] = _smallest_graph()
        return self._holders[device].pool()

    def abandon(self, pool: Any) -> None:
        """Take other memory after a capture that failed: torch may believe that it still goes on in this one."""
        device = torch.cuda.current_device()
        self._holders.pop(device, None)
        with contextlib.suppress(RuntimeError, AttributeError):  # torch since 2.12 knows that it has ended
            torch._C._cuda_endAllocateToPool(device, pool)


_of_thread = _OfThread()


def _smallest_graph() -> torch.cuda.CUDAGraph:
    """As long as one graph lives, the memory stays."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            torch.zeros(1, device="cuda")
        finally:  # where memory has run out, too: nothing else works in a process that captures
            graph.capture_end()
    return graph


def _copied(output: Any) -> Any:
    """Of a graph: what it leaves in its memory, the next graph of the stream may use for something else."""
    if type(output) is tuple:
        return tuple(_copied(part) for part in output)
    return output.clone() if isinstance(output, Tensor) else output


def _in_stream(stream: torch.cuda.Stream, function: Callable[..., Any], *inputs: Tensor) -> Any:
    """Its memory is safe: whatever runs in the stream waits for the present one, and the present one for it.

    That holds where the function raises, too: what it has begun still writes, and its memory is given to others.
    """
    present = torch.cuda.current_stream()
    stream.wait_stream(present)
    try:
        with torch.cuda.stream(stream):
            return function(*inputs)
    finally:
        present.wait_stream(stream)
