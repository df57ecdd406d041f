"""Arithmetic in full precision, for what is reported."""

from __future__ import annotations

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
            with _full_precision_on_cuda():
                yield


@contextmanager
def _full_precision_on_cuda() -> Iterator[None]:
    settings: list[tuple[Any, str, Any]] = [
        (torch.backends.cudnn, "benchmark", False),
        (torch.backends.cudnn, "deterministic", True),
        *_without_tf32(),
    ]
    before = [getattr(owner, name) for owner, name, _ in settings]
    try:
        for owner, name, value in settings:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(settings, before, strict=True):
            setattr(owner, name, value)


def _without_tf32() -> list[tuple[Any, str, Any]]:
    """The settings that turn TF32 off; torch refuses to mix its older names for them with its newer ones."""
    convolution = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolution, "fp32_precision"):
        return [(convolution, "fp32_precision", "ieee"), (torch.backends.cuda.matmul, "fp32_precision", "ieee")]
    return [(torch.backends.cudnn, "allow_tf32", False), (torch.backends.cuda.matmul, "allow_tf32", False)]
