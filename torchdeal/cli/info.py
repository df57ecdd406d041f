"""`deal info`."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table

import torchdeal
from torchdeal.checkpoint import BUNDLED, bundled_path, card
from torchdeal.cli.shared import output


def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    """Show versions, devices, and the bundled weights with their cards."""
    facts = _environment()
    cards = _cards()
    if as_json:
        print(json.dumps({**facts, "weights": cards}, indent=2))
        return
    table = Table.grid(padding=(0, 2))
    for key, value in facts.items():
        table.add_row(f"[bold]{key}[/bold]", str(value))
    output.print(table)
    for name, content in cards.items():
        output.print(f"\n[bold]weights {name}[/bold]")
        table = Table.grid(padding=(0, 2))
        for key, value in content.items():
            text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            table.add_row(f"  {key}", text)
        output.print(table)


def _environment() -> dict[str, str]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "torchdeal": torchdeal.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "cuda": gpu,
        "mps": "yes" if torch.backends.mps.is_available() else "none",
    }


def _cards() -> dict[str, dict[str, Any]]:
    cards = {}
    for name in BUNDLED:
        content = card(name)
        intact = hashlib.sha256(bundled_path(name).read_bytes()).hexdigest() == content["sha256"]
        cards[name] = {"file": str(bundled_path(name)), **content, "intact": "yes" if intact else "NO: reinstall"}
    return cards
