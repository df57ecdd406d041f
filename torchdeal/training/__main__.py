"""Training without the packages of the command line: `python -m torchdeal.training CONFIG --output FOLDER`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from torchdeal.training.report import Event, Example
from torchdeal.training.run import EXIT_CODES, Options, train
from torchdeal.training.trainer import DivergedError


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, train, report in lines."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.training", description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--from", dest="start")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--engine", choices=("direct", "packed"))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args(arguments)

    def tell(event: Event) -> None:
        if os.environ.get("RANK", "0") == "0" and not isinstance(event, Example):
            print(event, flush=True)

    try:
        state, reason = train(Options(**vars(given)), tell)
    except (ValueError, OSError, DivergedError) as error:
        sys.exit(f"Error: {error}")
    tell(f"stopped at step {state.step} ({reason}): go on with --resume" if reason else "done")
    sys.exit(EXIT_CODES.get(reason or "", 0))


if __name__ == "__main__":
    main()
