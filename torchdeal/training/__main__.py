"""Training without the packages of the command line: `python -m torchdeal.training CONFIG --output FOLDER`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from torchdeal.training.run import Options, train
from torchdeal.training.trainer import DivergedError, Listener, Report
from torchdeal.training.validation import Score


def show_report(report: Report) -> None:
    print(
        f"step {report.step}/{report.steps}  loss {report.loss:.3f}  PSNR {report.psnr:.2f}  lr {report.lr:.1e}  "
        f"gradient {report.gradient:.0f}  outer {report.iterations:.1f}  {report.steps_per_second:.2f} steps/s  "
        f"{report.seconds:.0f} s",
        flush=True,
    )


def show_scores(step: int, scores: list[Score], best: bool) -> None:
    texts = [f"sigma {s.sigma:g}: {s.psnr:.3f} dB ({s.converged}/{s.images}, {s.iterations:.0f} outer)" for s in scores]
    print(f"validation at step {step}: {', '.join(texts)}{'  best' if best else ''}", flush=True)


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
    quiet = os.environ.get("RANK", "0") != "0"
    message = (lambda text: None) if quiet else (lambda text: print(text, flush=True))
    try:
        progress, reason = train(
            Options(**vars(given)), Listener(report=show_report, validated=show_scores, message=message)
        )
    except (ValueError, OSError, DivergedError) as error:
        sys.exit(f"Error: {error}")
    message(f"stopped at step {progress.step} ({reason}): go on with --resume" if reason else "done")
    sys.exit({"SIGTERM": 143, "SIGINT": 130}.get(reason or "", 0))


if __name__ == "__main__":
    main()
