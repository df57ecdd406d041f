"""Time and weight of `import torchdeal`, each time in a process of its own, beside those of `import torch`."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from frame import Given, Say, Tool, arguments_of

MODULES, RUNS = ("torch", "torchdeal"), 5
CHILD = "import time, sys; t = time.perf_counter(); import {}; print(time.perf_counter() - t, len(sys.modules))"


@dataclass(frozen=True)
class ImportCost:
    """The median of the seconds, and how many modules are loaded then."""

    module: str
    seconds: float
    modules: int


def measure(given: Given, say: Say) -> Iterator[list[ImportCost]]:
    """One module after the other; the first run, which compiles, does not count."""
    found: list[ImportCost] = []
    for module in MODULES:
        command = [sys.executable, "-c", CHILD.format(module)]
        runs = [subprocess.check_output(command).split() for _ in range(RUNS + 1)]
        found.append(ImportCost(module, median(float(seconds) for seconds, _ in runs[1:]), int(runs[0][1])))
        yield found


TOOL = Tool(arguments_of("imports", __doc__), measure)

if __name__ == "__main__":
    TOOL.main()
