"""CUDA graphs: one launch in the place of many."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

UNUSED_MEMORY = 2**30  # bytes that may lie idle


class Replays:
    """Functions of tensors: computed at first, captured when they are asked for again, replayed from then on.

    All is captured in one stream, where it was computed at first, since what is made at the first use in a stream must
    not be captured.

    Args:
        stream: that stream; by default one of its own.
    """

    def __init__(self, stream: torch.cuda.Stream | None = None) -> None:
        self._replays: dict[Hashable, Replay | None] = {}
        self._stream = stream

    def run(self, key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """The function of that key, of inputs that have the same shapes each time, on a CUDA device."""
        if torch.cuda.is_current_stream_capturing():  # it becomes part of another graph
            return function(*inputs)
        self._stream = self._stream or torch.cuda.Stream()
        if key not in self._replays:
            self._replays[key] = None
            return _in_stream(self._stream, function, *inputs)
        replay = self._replays[key]
        if replay is None:
            replay = self._replays[key] = Replay(function, inputs, self._stream)
        return replay(*inputs)


class Replay:
    """A function of tensors of fixed shapes as a CUDA graph.

    What else the function reads must stay where it is. If it cannot be captured it is simply called. A result that is a
    tensor is the caller's; several are overwritten by the next call.

    Args:
        function: what is captured; it was called in the stream before.
        inputs: like those that it will be called with.
        stream: where it is captured.
    """

    def __init__(self, function: Callable[..., Any], inputs: tuple[Tensor, ...], stream: torch.cuda.Stream):
        _give_back_memory()
        self.inputs = [value.clone() for value in inputs]
        self.graph, self.function, before = torch.cuda.CUDAGraph(), None, torch.cuda.current_stream()
        try:
            # Not `torch.cuda.graph`, which waits for the device and gives back all unused memory each time.
            with torch.cuda.stream(stream):
                self.graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self.output = function(*self.inputs)
                finally:
                    self.graph.capture_end()
        except RuntimeError as error:
            torch.cuda.set_stream(before)  # a capture that fails leaves its own behind
            warnings.warn(f"computing without a CUDA graph, which is slower: {error.__context__ or error}")
            # Kept only where it is needed: it knows the backend, and a cycle would keep the memory of both.
            self.function = function

    def __call__(self, *inputs: Tensor) -> Any:
        if self.function is not None:
            return self.function(*inputs)
        for place, value in zip(self.inputs, inputs, strict=True):
            place.copy_(value)
        self.graph.replay()
        return self.output.clone() if isinstance(self.output, Tensor) else self.output


def _give_back_memory() -> None:
    """What graphs that are gone have left, if it is much: nothing else can use it."""
    if torch.cuda.memory_reserved() > 2 * torch.cuda.memory_allocated() + UNUSED_MEMORY:
        torch.cuda.empty_cache()


def _in_stream(stream: torch.cuda.Stream, function: Callable[..., Any], *inputs: Tensor) -> Any:
    """Its memory is safe: whatever runs in the stream waits for the present one, and the present one for it."""
    present = torch.cuda.current_stream()
    stream.wait_stream(present)
    with torch.cuda.stream(stream):
        result = function(*inputs)
    present.wait_stream(stream)
    return result
