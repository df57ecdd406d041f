"""Arithmetic in full precision, for what is reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast; CUDA without TF32, and with convolutions that repeat their bits.

    The errors of TF32 and of half precision would drown the residual.
    """
    # Older versions of torch have no autocast on some devices.
    known = torch.amp.is_autocast_available(device.type)
    with torch.autocast(device.type, enabled=False) if known else nullcontext():
        if device.type != "cuda":
            yield
        else:
            with _full_precision_on_cuda:
                yield


class _FullPrecisionOnCuda:
    """The settings are those of the process: the first thread that needs them sets them, the last one restores."""

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            settings = _precise_settings()
            if self._within == 0:
                self._before = [(owner, name, getattr(owner, name)) for owner, name, _ in settings]
            _apply(settings)  # each time: somebody may have changed them meanwhile
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                _apply(self._before)


_full_precision_on_cuda = _FullPrecisionOnCuda()


def _apply(settings: list[tuple[Any, str, Any]]) -> None:
    for owner, name, value in settings:
        setattr(owner, name, value)


def _precise_settings() -> list[tuple[Any, str, Any]]:
    cudnn = torch.backends.cudnn
    return [(cudnn, "benchmark", False), (cudnn, "deterministic", True), *_without_tf32()]


def _without_tf32() -> list[tuple[Any, str, Any]]:
    """The settings that turn TF32 off; torch refuses to mix its older names for them with its newer ones."""
    convolution = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolution, "fp32_precision"):
        return [(convolution, "fp32_precision", "ieee"), (torch.backends.cuda.matmul, "fp32_precision", "ieee")]
    return [(torch.backends.cudnn, "allow_tf32", False), (torch.backends.cuda.matmul, "allow_tf32", False)]
