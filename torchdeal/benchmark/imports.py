"""Time and weight of `import torchdeal`, each time in a process of its own, beside those of `import torch`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from torchdeal.benchmark.common import Say
from torchdeal.benchmark.frame import Benchmark
from torchdeal.benchmark.plan import Plan, option

MODULES = ("torch", "torchdeal")
CHILD = "import json, sys, time; start = time.perf_counter(); import {}; seconds = time.perf_counter() - start;"
CHILD += "print(json.dumps([seconds, len(sys.modules)]))"


@dataclass(frozen=True)
class ImportCost:
    """The median of the seconds, and how many modules are loaded then."""

    module: str
    seconds: float
    modules: int


@dataclass(frozen=True, kw_only=True)
class ImportsPlan(Plan):
    """How often."""

    repeats: int = option(5, "processes for each, of which the median is taken", least=1)


def measure(plan: ImportsPlan, say: Say) -> Iterator[list[ImportCost]]:
    """One module after the other."""
    found: list[ImportCost] = []
    for module in MODULES:
        command = [sys.executable, "-c", CHILD.format(module)]
        runs = [json.loads(subprocess.check_output(command)) for _ in range(plan.repeats + 1)][1:]  # the first compiles
        found.append(ImportCost(module, median(seconds for seconds, _ in runs), runs[0][1]))
        yield found


BENCHMARK = Benchmark("imports", ImportsPlan, ImportCost, measure)

if __name__ == "__main__":
    BENCHMARK.main()
