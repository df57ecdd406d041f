"""`deal info`."""

from __future__ import annotations

import json
import platform
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table
from rich.text import Text

import torchdeal
from torchdeal.cli.shared import output, print_json
from torchdeal.io.checkpoint import BUNDLED, card, checksum, last_run, load, weights_path


def info(
    weights: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WEIGHTS",
            help=f"{', '.join(BUNDLED)}, or files: then also how their last training run was configured.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show versions, devices, and weights with their cards."""
    facts = _environment()
    known = {source: _known(source) for source in weights or BUNDLED}
    if as_json:
        print_json({**facts, "weights": known})
        return
    output.print(_table(facts))
    for source, content in known.items():
        output.print(Text(f"\nweights {source}", style="bold"))
        output.print(_table(_readable(content)))
        config = content["last_run"].get("config")
        if weights and isinstance(config, dict):
            output.print("\n[bold]config of the last run[/bold]")
            output.print(_toml(config), highlight=False, markup=False, soft_wrap=True)


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


def _known(source: str) -> dict[str, Any]:
    """What the weights are; of bundled ones the card, and whether the file is the one that it describes."""
    file, sha256 = {"file": str(weights_path(source))}, checksum(source)
    if source in BUNDLED:
        content = card(source)
        intact = sha256 == content["sha256"]
        run = last_run(source) if intact else {}
        return file | content | {"intact": "yes" if intact else "NO: reinstall", "last_run": run}
    model = load(source)
    facts = {
        "channels": model.channels,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "boundary": model.boundary.value,
        "sha256": sha256,
    }
    return file | facts | {"last_run": last_run(source)}


def _readable(content: dict[str, Any]) -> dict[str, str]:
    """As texts, the PSNR of the paper beside ours, and of the last run what is not its config."""
    paper = content.get("psnr_paper", {})
    texts = {key: str(value) for key, value in content.items() if key not in ("name", "psnr", "psnr_paper", "last_run")}
    if "psnr" in content:
        beside = {name: f" (paper {paper[name]:.2f})" if name in paper else "" for name in content["psnr"]}
        texts["psnr"] = "\n".join(f"{name}: {value:.2f}{beside[name]}" for name, value in content["psnr"].items())
    run = {key: value for key, value in content["last_run"].items() if key != "config" and value is not None}
    if run:
        texts["last run"] = ", ".join(f"{key.replace('_', ' ')} {_short(value)}" for key, value in run.items())
    return texts


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _table(rows: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")  # paths and checksums whole
    for key, value in rows.items():
        table.add_row(Text(key), Text(value))  # not markup, whatever a file says
    return table


def _toml(config: dict[str, Any]) -> str:
    """Sections of settings, as a config file has them; JSON's numbers, texts and lists are TOML's too."""
    sections = [
        "\n".join(
            [f"[{name}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items())]
        )
        for name, settings in config.items()
        if isinstance(settings, dict)
    ]
    return "\n\n".join(sections)
