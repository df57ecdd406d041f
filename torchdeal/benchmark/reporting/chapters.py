"""What a report tells: a chapter for each experiment of a folder, with its pictures. How it looks is told elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from torchdeal.benchmark import EXPERIMENTS
from torchdeal.benchmark.options import ALL, FIGURES, REPORT
from torchdeal.benchmark.reporting.labels import label
from torchdeal.benchmark.reporting.side_by_side import Gallery, Picture, galleries
from torchdeal.benchmark.reporting.standings import is_trial
from torchdeal.benchmark.reporting.tables import Section, Table
from torchdeal.benchmark.results import FORMAT, Results

TITLES = {
    "denoising": "Denoising",
    "superres": "Super-resolution",
    "deblur": "Deblurring",
    "mri": "MRI",
    "ct": "CT",
    "speed": "Speed",
    "time": "Time and memory",
    "load": "Load",
    "serve": "Serving",
    "robustness": "Robustness",
    "convergence": "Convergence",
    "reach": "Reach",
    "large": "Large pictures",
    "tune": "Automatic parameters",
    "uncertainty": "Error bars",
    "noise": "Noise levels",
    "fidelity": "Other noise",
    "finetune": "Fine-tuning",
}
MEASURED = [name for name in EXPERIMENTS if name not in (ALL, REPORT, FIGURES)]
TRIAL = (
    "This was a trial, with fewer or smaller images than the protocol has: do not compare it with the values of the "
    "paper."
)


@dataclass(frozen=True)
class Chapter:
    """An experiment, or the figures."""

    name: str
    title: str
    paragraphs: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    galleries: list[Gallery] = field(default_factory=list)
    details: list[Table] = field(default_factory=list)


def stored_results(folder: Path) -> dict[str, Results]:
    """All results in a folder by the names of their files, in the order of the experiments.

    Raises ValueError for a file of ours that is damaged. Other JSON files are left alone.
    """
    found = {path.stem: Results.load(path) for path in sorted(folder.glob("*.json")) if _is_ours(path)}
    for name, results in found.items():
        if results.experiment not in MEASURED:
            raise ValueError(f"{folder / name}.json: there is no experiment {results.experiment}")
    return dict(sorted(found.items(), key=lambda item: (MEASURED.index(item[1].experiment), item[0])))


def sections(results: Results) -> list[Section]:
    """What an experiment says about its results."""
    return list(import_module(f"torchdeal.benchmark.{results.experiment}").EXPERIMENT.sections(results))


def opening(results: Results) -> list[str]:
    """What the experiment is about, how and where it was measured."""
    places = dict.fromkeys(_place(known) for known in _used_environments(results))
    texts = [
        import_module(f"torchdeal.benchmark.{results.experiment}").EXPERIMENT.about,
        str(results.settings.get("protocol", "")),
        TRIAL if is_trial(results) else "",
        f"Measured on {'; '.join(places)}." if places else "",
    ]
    return [text for text in texts if text]


def chapters(folder: Path, pictures: bool = True) -> Iterator[Chapter]:
    """Of the results in a folder, then of its figures."""
    for name, results in stored_results(folder).items():
        yield Chapter(
            name,
            TITLES[results.experiment] + (f" ({name})" if name != results.experiment else ""),
            opening(results),
            sections(results),
            [*_plots(folder, results), *galleries(folder, results)] if pictures else [],
            [Table(["", ""], list(_circumstances(results)), "Settings, versions and weights")],
        )
    shown = [Picture(path, _about(path.stem)) for path in sorted((folder / FIGURES).glob("*.png"))] if pictures else []
    if shown:
        yield Chapter(FIGURES, "Figures", galleries=[Gallery("", shown)])


def _is_ours(path: Path) -> bool:
    """By its name, or its first line."""
    return path.stem in MEASURED or FORMAT.encode() in path.read_bytes()[:200]


def _used_environments(results: Results) -> list[dict[str, Any]]:
    used = {row.environment for row in results.rows}
    return [known for index, known in enumerate(results.environments) if index in used]


def _place(known: dict[str, Any]) -> str:
    threads = f", threads: {known['threads']}" if known.get("device") == "cpu" and "threads" in known else ""
    return f"{known.get('device_name', known.get('device', 'an unknown machine'))}{threads}"


def _circumstances(results: Results) -> Iterator[list[str]]:
    for name, value in results.settings.items():
        if name != "protocol":
            yield [name.replace("_", " "), _short(value)]
    for known in _used_environments(results):
        date, *others = (
            known.get(name) for name in ("date", "device_name", "torchdeal", "source", "torch", "numpy", "python")
        )
        names = ("", "torchdeal ", "source ", "torch ", "numpy ", "Python ")
        versions = [f"{name}{value}" for name, value in zip(names, others, strict=True) if value]
        yield [f"run of {date}", ", ".join(versions)]
    for method, files in results.weights.items():
        for name, checksum in files.items():
            yield [f"weights of {label(method)}", f"{name}: SHA-256 {checksum}"]


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _plots(folder: Path, results: Results) -> Iterator[Gallery]:
    """Distances against time; nothing without matplotlib."""
    if results.experiment != "speed" or not results.rows:
        return
    from torchdeal.benchmark.curves import plot

    path = folder / "pictures" / "speed.png"
    path.parent.mkdir(exist_ok=True)
    with suppress(ImportError):
        plot(results, path)
        yield Gallery("", [Picture(path, "Distance to the fixed point against time")])


def _about(name: str) -> str:
    from torchdeal.benchmark.figures import FIGURES as KNOWN

    return f"{name}: {KNOWN[name].about}" if name in KNOWN else name
