"""CUDA graphs: one launch in the place of many."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor


class Replays:
    """Functions of tensors: computed at first, captured when they are asked for again, replayed from then on."""

    def __init__(self, stream: torch.cuda.Stream | None = None) -> None:
        self._replays: dict[Hashable, Replay | None] = {}
        self._stream = stream

    def run(self, key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """The function of that key, of inputs that have the same shapes each time, on a CUDA device."""
        if torch.cuda.is_current_stream_capturing():  # it becomes part of another graph
            return function(*inputs)
        if key not in self._replays:
            self._replays[key] = None
            return function(*inputs)
        replay = self._replays[key]
        if replay is None:
            replay = self._replays[key] = Replay(function, inputs, self._stream)
        return replay(*inputs)


class Replay:
    """A function of tensors of fixed shapes as a CUDA graph: one launch in the place of many.

    What else the function reads must stay where it is. If it cannot be captured it is simply called. A result that is a
    tensor is the caller's; several are overwritten by the next call.

    Args:
        function: what is captured.
        inputs: like those that it will be called with.
        stream: where it was called before. By default another one is used, and the function called once more, since
            what is made at the first use in a stream must not be captured.
    """

    def __init__(
        self, function: Callable[..., Any], inputs: tuple[Tensor, ...], stream: torch.cuda.Stream | None = None
    ):
        self.inputs = [value.clone() for value in inputs]
        if stream is None:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function(*self.inputs)
            torch.cuda.current_stream().wait_stream(stream)
        self.graph, self.function, before = torch.cuda.CUDAGraph(), None, torch.cuda.current_stream()
        try:
            with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                self.output = function(*self.inputs)
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
