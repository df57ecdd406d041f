"""Random commands and calls; what must not happen is shown, with how to make it happen again."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from torchdeal.fuzz import calls, command_lines, commands

Attempt = Callable[[Any], str]  # how a case ended


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torchdeal.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files of commands that went wrong there")
    options = parser.parse_args()
    counts, faults = fuzz(60 * options.minutes, Random(options.seed), options.keep)
    for (what, how), number in sorted(counts.items()):
        print(f"{number:6} {what:13} {how}")
    print(f"{sum(counts.values()):6} in all, {len(faults)} kinds of faults")
    sys.exit(bool(faults))


def fuzz(seconds: float, random: Random, keep: Path | None) -> tuple[Counter[tuple[str, str]], dict[str, str]]:
    """Random cases until the time is over: how many of what ended how, and an example of each fault."""
    counts: Counter[tuple[str, str]] = Counter()
    faults: dict[str, str] = {}
    kinds: list[tuple[Callable[[Random], Any], Attempt]] = [
        (command_lines.any_command, partial(_run, keep=keep)),
        (calls.any_call, calls.check),
        (calls.gain_call, calls.check_gain),
        (calls.truth_call, calls.check_truth),
    ]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        make, attempt = random.choices(kinds, weights=[6, 2, 1, 1])[0]
        case = make(random)
        what = f"deal {case.arguments[0]!a}" if isinstance(case, commands.Command) else attempt.__name__
        try:
            how = attempt(case)
        except commands.FaultError as fault:
            how, kind = "FAULT", re.sub(r"\d+", "N", str(fault).partition("\n")[0])[:50]  # whatever the numbers in it
            if kind not in faults:
                faults[kind] = str(case)
                print(f"FAULT {fault}\n  {case}", flush=True)
        counts[what, how] += 1
    return counts, faults


def _run(command: commands.Command, keep: Path | None) -> str:
    with commands.folder_for(command, keep) as folder:
        return f"exit code {commands.check(command, folder).code}"


if __name__ == "__main__":
    main()
