"""Libraries that are installed only where they are wanted."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional(module: str, purpose: str, extra: str) -> ModuleType:
    """A module that comes with the `extra` of the package; without it an ImportError that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(f"{purpose} needs {package}: pip install 'torchdeal[{extra}]'") from None
