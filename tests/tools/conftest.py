"""The tools run on the small data of the benchmarks."""

from benchmark.conftest import command, folder, kernel

__all__ = ["command", "folder", "kernel"]
