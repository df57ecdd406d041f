"""What `deal benchmark` can be told: one parser for all experiments."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

ALL, REPORT, FIGURES = "all", "report", "figures"
MOST_THREADS = 1024  # torch does not survive many more
DEFAULT_SECONDS = 180.0  # of a training
QUICK_IMAGES, QUICK_ITERATIONS = 1, 40  # of a trial


class UsageError(ValueError):
    """Arguments that do not belong to the command."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """What is to be measured, where, and where it is kept. Raises ValueError for what cannot be."""

    out: Path
    data: Path | None = None
    methods: tuple[str, ...] = ()  # none: all of them
    cells: tuple[str, ...] = ()  # parts of their names; none: all
    limit: int | None = None
    quick: bool = False
    resume: bool = False
    tune: bool = False
    images: Path | None = None
    also: Path | None = None
    seconds: float = DEFAULT_SECONDS
    sigmas: tuple[float, ...] = ()
    model: str | None = None
    peers_dir: Path | None = None
    pictures: int = 0
    tolerance: float = DEFAULT_TOLERANCE
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    repeats: int = 3
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.device == "auto":
            object.__setattr__(self, "device", "cuda" if torch.cuda.is_available() else "cpu")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("no CUDA device is available: use --device cpu")
        for name in ("data", "images", "also", "peers_dir"):
            folder = getattr(self, name)
            if folder is not None and not folder.is_dir():
                raise ValueError(f"{folder}: no such folder; see --{name.replace('_', '-')}")
        least = {"limit": 1, "pictures": 0, "max_iterations": 1, "repeats": 1, "threads": 1}
        for name, bound in least.items():
            number = getattr(self, name)
            if number is not None and number < bound:
                raise ValueError(f"{name.replace('_', '-')} must be at least {bound}, got {number}")
        if self.threads is not None and self.threads > MOST_THREADS:
            raise ValueError(f"threads must be at most {MOST_THREADS}, got {self.threads}")
        for name, number in [
            ("tolerance", self.tolerance),
            ("seconds", self.seconds),
            *(("sigmas", sigma) for sigma in self.sigmas),
        ]:
            if not 0 < number < math.inf:
                raise ValueError(f"{name} must be finite and above 0, got {number:g}")

    def folder(self, *names: str) -> Path:
        """A folder or file of the data."""
        if self.data is None:
            raise ValueError("give the folder that holds test/ and kernels/: --data DIR")
        return self.data.joinpath(*names)

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Those of the cells that are to be measured: named as a whole, or else in part. Raises if there is none."""
        exact, parts = set(self.cells) & set(names), [part.casefold() for part in self.cells if part not in names]
        found = [
            name for name in names if not self.cells or name in exact or any(part in name.casefold() for part in parts)
        ]
        if not found:
            raise Unavailable(f"there is no such cell; choose from {'; '.join(names)}")
        return found

    def images_at_most(self, names: Sequence[Any]) -> list[Any]:
        """The first of a list, as many as are wanted."""
        return list(names[: self.limit or (QUICK_IMAGES if self.quick else None)])


def parse(arguments: Sequence[str], prog: str, experiments: Mapping[str, str]) -> tuple[str, BenchmarkOptions, bool]:
    """The experiment, its options, and whether results are to be printed as JSON."""
    parser = _Parser(
        prog,
        description="Measure the tables and figures of the documents, beside other methods, and keep what was found.",
        epilog="\n".join(f"  {name:12} {about}" for name, about in experiments.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("experiment", choices=list(experiments), metavar="EXPERIMENT", help="one of those below")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results and report go (default: benchmark)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of tables")
    for flags, settings in _OPTIONS.items():
        parser.add_argument(flags, **settings)
    if "" in arguments:  # an empty path would be the folder that one is in
        parser.error("an argument is empty: give a name, or leave it out")
    given = vars(parser.parse_args(arguments))
    name, as_json = given.pop("experiment"), given.pop("json", False)
    if given.get("quick"):
        given.setdefault("max_iterations", QUICK_ITERATIONS)
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    if "methods" in lists:  # with commas, too
        lists["methods"] = tuple(part for text in lists["methods"] for part in text.split(",") if part)
    return name, BenchmarkOptions(**{"out": Path("benchmark"), **given, **lists}), as_json


_OPTIONS: dict[str, dict[str, Any]] = {
    "--data": {"type": Path, "metavar": "DIR", "help": "the folder that holds test/, train/ and kernels/"},
    "--methods": {"nargs": "+", "metavar": "NAME", "help": "only these; by default ours and all competitors"},
    "--cells": {"nargs": "+", "metavar": "TEXT", "help": "only the cells of tables whose names contain one of these"},
    "--limit": {"type": int, "metavar": "N", "help": "the first so many images of each set only"},
    "--quick": {"action": "store_true", "help": "small crops of few images, in minutes: a trial, not the protocol"},
    "--resume": {"action": "store_true", "help": "go on with what is in the folder of --out"},
    "--tune": {"action": "store_true", "help": "choose the parameters of all methods anew, on the tuning images"},
    "--images": {"type": Path, "metavar": "DIR", "help": "your own folder of clean images; speed, time: its first"},
    "--also": {
        "type": Path,
        "metavar": "DIR",
        "help": "finetune: pictures of another kind, where something may be lost",
    },
    "--seconds": {"type": float, "metavar": "S", "help": f"finetune: of the training (default: {DEFAULT_SECONDS:g})"},
    "--sigmas": {"nargs": "+", "type": float, "metavar": "S", "help": "denoising, speed, noise: levels, 0..255 scale"},
    "--model": {"metavar": "FILE", "help": "weights in place of the bundled ones"},
    "--peers-dir": {"type": Path, "metavar": "DIR", "help": "weights of competitors"},
    "--pictures": {"type": int, "metavar": "N", "help": "keep the answers for the first N images of each cell"},
    "--tolerance": {"type": float, "metavar": "T", "help": f"of our runs (default: {DEFAULT_TOLERANCE:g})"},
    "--max-iterations": {"type": int, "metavar": "N", "help": f"of our runs (default: {DEFAULT_MAX_ITERATIONS})"},
    "--repeats": {"type": int, "metavar": "N", "help": "runs of which times are medians (default: 3)"},
    "--device": {"choices": ("auto", "cpu", "cuda"), "help": "auto, the default, takes CUDA where there is one"},
    "--threads": {"type": int, "metavar": "N", "help": "CPU threads; by default those of torch"},
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")
