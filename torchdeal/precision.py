"""Arithmetic that can be certified."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch


def full_precision() -> AbstractContextManager:
    """CUDA convolutions without TF32, whose errors would drown the residual, with algorithms that repeat their bits."""
    return torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
    )
