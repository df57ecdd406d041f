"""Tables of methods and cells: means, differences with intervals, how runs ended, beside the values of the paper.

What was measured and what the paper reports never share a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from torchdeal.benchmark.methods import default_methods
from torchdeal.benchmark.paper import BY_PUBLIC_CODE, DEAL, PAPER, papers_value
from torchdeal.benchmark.peers.published import PUBLISHED, QUOTED, RECIPE
from torchdeal.benchmark.reporting.known import KnownValues
from torchdeal.benchmark.reporting.labels import LABELS, OURS, OURS_FIRST, label
from torchdeal.benchmark.reporting.summary import bootstrap_interval, image_means, paired_differences
from torchdeal.benchmark.reporting.tables import Best, Section, Table, number, signed, without_empty_columns
from torchdeal.benchmark.results import Results, Row

STANDING = {  # compared with the paper
    "deal": "DEAL",
    "deal-rule": "DEAL with sigma and lam from the noise",
    "deal-mean": "DEAL as the mean over 8 symmetries",
}
ON_CPU = ("bm3d", "nlm", "wavelets", "fbp")  # wherever the others run
CONVERGED = "CONVERGED"

PSNR_TITLE = "PSNR in dB, measured here"
PAPER_TITLE = "As the paper reports it (not measured here)"
PUBLIC_CODE_TITLE = "By the public code of the paper (not measured here)"
TO_PAPER_TITLE, TO_CODE_TITLE = "DEAL here minus DEAL in the paper, in dB", "DEAL here minus the public code, in dB"
TO_OTHERS_TITLE = "DEAL minus each other method, in dB"
RUNS_TITLE = "How it ran"
ALSO_KNOWN = {"TV": "Total variation", "Zero-fill": "Zero-filling"}  # methods in the paper, by their names here
READING = [
    "PSNR is the mean over the images of a column; the best measured one is bold. Ours come first, then the others by "
    "their means. Where only some of the problems are measured yet, their number stands in place of the mean. Values "
    "of the paper have tables of their own.",
    "Brackets hold 95 % intervals of the mean, found by resampling the images 2000 times. Two methods are compared "
    "image by image. The paper has no values of single images: there the interval is that of our mean, and is wide "
    "because images differ.",
    "Iterations and seconds are medians; the most iterations are in brackets. Seconds are those of a batch, divided by "
    "the number of images that were solved at once. Where there are none, other work ran on the machine; deal "
    "benchmark time measures times.",
    "Parameters of all methods are chosen on other images than those that are reported.",
]


def not_measured(results: Results, cell: str) -> list[str]:
    """A sentence for each method that has no value in a cell, with the reason."""
    return [f"{label(name)}: not measured: {reason}" for name, reason in results.reasons.get(cell, {}).items()]


def is_trial(results: Results) -> bool:
    """Whether it is of fewer images, or of smaller ones, than the protocol has."""
    return bool(results.settings.get("quick") or results.settings.get("limit"))


def comparison_sections(results: Results) -> Iterator[Section]:
    """A section for each table of an experiment, and one for the cells of the paper that are not there."""
    for title, columns in results.tables().items():
        yield Standings(results, title, columns).section()
    missing = [cell for cell in PAPER.get(results.experiment, {}) if cell not in results.cells]
    if missing:
        yield Section("Not measured", notes=[f"{cell}: not measured." for cell in missing])


@dataclass(frozen=True)
class CellScore:
    """What a method reached in a cell."""

    images: Mapping[str, float]  # PSNR of each
    problems: int

    @property
    def mean(self) -> float:
        return fmean(self.images.values())


class Standings:
    """One table of an experiment: its cells, and the methods in them."""

    def __init__(self, results: Results, title: str, columns: Mapping[str, str]):
        self.results, self.title, self.columns = results, title, columns
        self.rows: dict[tuple[str, str], list[Row]] = {}
        for row in results.rows:
            if row.cell in columns:
                self.rows.setdefault((row.cell, row.method), []).append(row)
        self.most = {cell: max((s.problems for s in self._scores(cell)), default=0) for cell in columns}
        self.wanted = {cell: results.cells.get(cell, {}).get("problems", self.most[cell]) for cell in columns}
        self.by_public_code = bool(BY_PUBLIC_CODE.intersection(columns))
        self.methods = self._ranked()

    def section(self) -> Section:
        """All that is known about it."""
        measured = [cell for cell in self.columns if self.most[cell]]
        known = KnownValues(self.columns, [] if is_trial(self.results) else self.methods, self._levels)
        beside = [known.table(PUBLISHED, QUOTED), known.table(RECIPE)]
        further = [self.paper(), self.to_paper(), self.to_others(measured), *beside, self.runs()]
        details = [self.runs_of_cells(), self.parameters(), *map(self.values_of_images, measured)]
        return Section(
            self.title,
            tables=[self.psnr(measured)] if measured else [],
            further=[table for table in further if table.rows],
            details=[table for table in details if table.rows],
            notes=[*self.standing(), *known.notes(), *self.reasons(), *self.not_yet(), *self.quoted_only()],
        )

    def psnr(self, cells: Sequence[str]) -> Table:
        """Means; the best are bold. None where problems are missing: it could not be compared."""
        best = {
            cell: max((round(s.mean, 2) for s in self._scores(cell) if self._all(cell, s)), default=0) for cell in cells
        }
        rows = []
        for method in self.methods:
            scores = {cell: self.score(cell, method) for cell in cells}
            rows.append([label(method), *(self._mean(cell, score, best[cell]) for cell, score in scores.items())])
        return Table(["", *(self.columns[cell] for cell in cells)], rows, PSNR_TITLE)

    def paper(self) -> Table:
        """Quoted: all methods that the paper has in these cells."""
        values = {cell: PAPER.get(self.results.experiment, {}).get(cell, {}) for cell in self.columns}
        cells = [cell for cell in self.columns if values[cell]]
        fullest_first = sorted(cells, key=lambda cell: -len(values[cell]))  # it has them in the paper's order
        methods = dict.fromkeys(method for cell in fullest_first for method in values[cell])
        rows = [
            [method, *(f"{values[cell][method]:.2f}" if method in values[cell] else "" for cell in cells)]
            for method in methods
        ]
        source = PUBLIC_CODE_TITLE if self.by_public_code else PAPER_TITLE
        return Table(["", *(self.columns[cell] for cell in cells)], rows, source, quoted=True)

    def to_paper(self) -> Table:
        """Our mean minus the paper's, for each set of parameters that we have."""
        cells = [cell for cell in self.columns if self.most[cell] and self._papers(cell) is not None]
        rows = []
        for method in OURS_FIRST:
            scores = [self.score(cell, method) for cell in cells]
            if any(scores):
                entries = [
                    _difference(self._over_paper(cell, s)) if s and self._all(cell, s) else ""
                    for cell, s in zip(cells, scores, strict=True)
                ]
                rows.append([label(method), *entries])
        return Table(
            ["", *(self.columns[cell] for cell in cells)],
            rows,
            TO_CODE_TITLE if self.by_public_code else TO_PAPER_TITLE,
        )

    def to_others(self, cells: Sequence[str]) -> Table:
        """`deal` minus the others, image by image."""
        rows = []
        for method in self.methods:
            entries = [
                _difference(list(paired_differences(self._of(cell, OURS), self._of(cell, method)).values()))
                for cell in cells
            ]
            if method != OURS and any(entries):
                rows.append([label(method), *entries])
        return Table(["", *(self.columns[cell] for cell in cells)], rows, TO_OTHERS_TITLE)

    def runs(self) -> Table:
        """How the runs of each method ended, over all cells of the table."""
        rows = [
            [label(method), *self._run(method, [row for cell in self.columns for row in self._of(cell, method)])]
            for method in self.methods
        ]
        return without_empty_columns(Table(["", *RUN_HEAD], rows, f"{RUNS_TITLE}, over all columns"))

    def runs_of_cells(self) -> Table:
        """The same for each cell."""
        rows = [
            [label(method), column, *self._run(method, self._of(cell, method))]
            for cell, column in self.columns.items()
            for method in self.methods
            if self._of(cell, method)
        ]
        return without_empty_columns(Table(["", "column", *RUN_HEAD], rows, f"{RUNS_TITLE}, in each column"))

    def parameters(self) -> Table:
        """Those that were chosen on tuning images for problems of this table."""
        rows = [
            [group, label(method), ", ".join(f"{name} {value:.4g}" for name, value in values.items())]
            for group, methods in self.results.parameters.items()
            for method, values in methods.items()
            if values and any(group in cell for cell in self.columns)
        ]
        return Table(["chosen for", "method", "parameters"], rows, "Parameters chosen on the tuning images")

    def values_of_images(self, cell: str) -> Table:
        """PSNR of each image; of one that occurs several times the mean."""
        methods = [method for method in self.methods if self.score(cell, method)]
        values = {method: self._whole_images(cell, method) for method in methods}
        images = dict.fromkeys(image for found in values.values() for image in found)
        if len(images) == 1:  # the table of means has it
            images = {}
        rows = [
            [image, *(f"{values[method][image]:.2f}" if image in values[method] else "" for method in methods)]
            for image in images
        ]
        return Table(["image", *map(label, methods)], rows, f"PSNR of each image: {cell}")

    def _whole_images(self, cell: str, method: str) -> dict[str, float]:
        """Of those images of which no variant is missing that another method has."""
        variants = {one: Counter(row.image for row in self._of(cell, one)) for one in self.methods}
        means = image_means(self._of(cell, method)).items()
        return {
            image: mean for image, mean in means if variants[method][image] == max(v[image] for v in variants.values())
        }

    def reasons(self) -> list[str]:
        """Why a method has no value, in one sentence for all cells with that reason."""
        cells_of: dict[tuple[str, str], list[str]] = {}
        for cell in self.columns:
            for method, reason in self.results.reasons.get(cell, {}).items():
                key = (label(method) if self.most[cell] else "", reason)  # where nothing was measured it is the cell
                cells_of.setdefault(key, []).append(cell)
        found = []
        for (method, reason), cells in cells_of.items():
            where = (
                "" if len(cells) == len(self.columns) and method else "; ".join(self.columns[cell] for cell in cells)
            )
            found.append(f"{', '.join(filter(None, [method, where]))}: not measured: {reason.rstrip('.')}.")
        blank = [cell for cell in self.columns if not self.most[cell] and not self.results.reasons.get(cell)]
        return found + [f"{self.columns[cell]}: not measured." for cell in blank]

    def not_yet(self) -> list[str]:
        """Methods that could be here, and have neither a value nor a reason; for whole runs of a protocol."""
        if is_trial(self.results):
            return []
        missing: dict[str, list[str]] = {}
        for method in default_methods(self.results.experiment, quick=False):
            for cell in (cell for cell, most in self.most.items() if most):
                if not self._of(cell, method) and method not in self.results.reasons.get(cell, {}):
                    missing.setdefault(label(method), []).append(self.columns[cell])
        whole = sum(map(bool, self.most.values()))
        found = [name if len(cells) == whole else f"{name} ({', '.join(cells)})" for name, cells in missing.items()]
        return [f"Not measured yet: {'; '.join(found)}."] if found else []

    def quoted_only(self) -> list[str]:
        """Methods of the paper that are none here."""
        quoted = [row[0] for row in self.paper().rows] if any(self.most.values()) else []
        names = [name for name in quoted if ALSO_KNOWN.get(name, name) not in LABELS.values()]
        return [f"Quoted, not measured: {', '.join(names)}. Their weights are not at hand."] if names else []

    def standing(self) -> list[str]:
        """In how many columns we have at least what the paper has, by each way of choosing the parameters."""
        return [line for method in STANDING if (line := self._standing_of(method))]

    def _standing_of(self, method: str) -> str | None:
        scores = {cell: self.score(cell, method) for cell in self.columns}
        pairs = [(s, self._papers(cell)) for cell, s in scores.items() if s and self._all(cell, s)]
        known = [(round(score.mean, 2), value) for score, value in pairs if value is not None]
        if not known:
            return None
        reached = sum(ours >= value for ours, value in known)
        source = "the public code" if self.by_public_code else "the paper"
        return f"{STANDING[method]} has at least the value of {source} in {reached} of {len(known)} columns."

    def score(self, cell: str, method: str) -> CellScore | None:
        """None where nothing was measured."""
        rows = self._of(cell, method)
        images = image_means(rows)
        return CellScore(images, sum(row.values.get("psnr") is not None for row in rows)) if images else None

    def _levels(self, cell: str, method: str) -> tuple[Mapping[str, float], bool] | None:
        score = self.score(cell, method)
        return (score.images, self._all(cell, score)) if score else None

    def _scores(self, cell: str) -> list[CellScore]:
        return list(filter(None, (self.score(cell, method) for place, method in self.rows if place == cell)))

    def _of(self, cell: str, method: str) -> list[Row]:
        return self.rows.get((cell, method), [])

    def _all(self, cell: str, score: CellScore) -> bool:
        return score.problems == self.wanted[cell]

    def _papers(self, cell: str) -> float | None:
        """Of DEAL, where ours is of the same images."""
        return None if is_trial(self.results) else papers_value(self.results.experiment, cell, DEAL)

    def _over_paper(self, cell: str, score: CellScore) -> list[float]:
        value = self._papers(cell)
        assert value is not None
        return [level - value for level in score.images.values()]

    def _mean(self, cell: str, score: CellScore | None, best: float) -> str:
        if score is None:
            return ""
        if not self._all(cell, score):
            return f"({score.problems} of {self.wanted[cell]})"
        return (Best if round(score.mean, 2) == best else str)(f"{score.mean:.2f}")

    def _ranked(self) -> list[str]:
        """Ours, then the others by their means; those that have values in all cells before those that do not."""
        methods = dict.fromkeys(method for _, method in self.rows)

        def place(method: str) -> tuple[int, int, float]:
            if method in OURS_FIRST:
                return OURS_FIRST.index(method), 0, 0.0
            scores = {cell: self.score(cell, method) for cell in self.columns}
            means = [score.mean for cell, score in scores.items() if score and self._all(cell, score)]
            return len(OURS_FIRST), -len(means), -fmean(means) if means else 0.0

        return sorted(methods, key=place)

    def _run(self, method: str, rows: Sequence[Row]) -> list[str]:
        ended = [row.values["status"] for row in rows if "status" in row.values]
        outer = [row.values["iterations"] for row in rows if "iterations" in row.values]
        inner = [row.values["cg_iterations"] for row in rows if "cg_iterations" in row.values]
        seconds = [row.values["seconds"] for row in rows if "seconds" in row.values]
        sizes = sorted({row.values["batch"] for row in rows if "batch" in row.values})
        return [
            str(len(rows)),
            f"{ended.count(CONVERGED)} of {len(ended)}" if ended else "",
            f"{median(outer):g} ({max(outer)})" if outer else "",
            f"{median(inner):g} ({max(inner)})" if inner else "",
            number(median(seconds)) if seconds else "",
            " to ".join(dict.fromkeys(map(str, (sizes[0], sizes[-1])))) if sizes else "",
            ", ".join(sorted({self._device(method, row) for row in rows})),
        ]

    def _device(self, method: str, row: Row) -> str:
        known = self.results.environments[row.environment] if row.environment < len(self.results.environments) else {}
        on_cpu = known.get("device") == "cpu" or method in ON_CPU
        return "CPU" if on_cpu else str(known.get("device_name", ""))


RUN_HEAD = ["problems", "converged", "iterations (most)", "CG (most)", "s per image", "at once", "device"]


def _difference(values: Sequence[float]) -> str:
    """Their mean and its interval."""
    if not values:
        return ""
    interval = bootstrap_interval(values)
    return signed(fmean(values)) + (f" ({signed(interval[0])} to {signed(interval[1])})" if interval else "")
