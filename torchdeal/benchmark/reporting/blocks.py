"""Parts of README.md and of the documents that are made of results: tables, and sentences with numbers in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import NamedTuple

from torchdeal.benchmark.curves import runs_of
from torchdeal.benchmark.paper import papers_value
from torchdeal.benchmark.reporting.chapters import opening, sections
from torchdeal.benchmark.reporting.known import TO_PUBLISHED_TITLE, TO_RECIPE_TITLE
from torchdeal.benchmark.reporting.labels import label
from torchdeal.benchmark.reporting.standings import CONVERGED, RUNS_TITLE, Standings
from torchdeal.benchmark.reporting.tables import Section, Table, markdown_text, number
from torchdeal.benchmark.results import Results, Row

BESIDE = ("deal", "deal-light", "bm3d", "dncnn")  # in the summary
WEIGHTS = {"gray": ("gray", "gray-light"), "colour": ("color", "color-light")}
SPEED_CELL, SPEED_TO = "512 x 512 gray, sigma 25", "seconds_to_1e-3"


class Block(NamedTuple):
    """What a page shows, and the file in `results/` that it is made of."""

    file: str
    write: Callable[[Results], str]


def section_block(results: Results, part: str = "") -> str:
    """The sections whose titles contain the text: where it was measured, the tables, the notes.

    Differences and values of single images are in the report.
    """
    chosen = [section for section in sections(results) if part.casefold() in section.title.casefold()]
    if not chosen:
        raise ValueError(f"the results of {results.experiment} have no part {part!r}")
    heads = len(chosen) > 1 or not part
    texts = [*opening(results)[1:], *(text for section in chosen for text in _section(section, heads))]
    return "\n\n".join(filter(None, texts))


def summary(results: Results) -> str:
    """Of denoising: a row for each set and noise level."""
    rows = []
    for standings in _tables(results):
        for cell, column in standings.columns.items():
            quoted = papers_value(results.experiment, cell)
            ours, *others = (_mean(standings, cell, method) for method in BESIDE)
            rows.append([cell.rpartition(",")[0], column, ours, f"{quoted:.2f}" if quoted else "", *others])
    ours, *others = map(label, BESIDE)
    return Table(["images", "noise", ours, "DEAL in the paper", *others], rows).grid()


def convergence(results: Results) -> str:
    """Of denoising: how many runs of ours converged, and in how many iterations."""
    sentences = []
    for method in BESIDE[:2]:
        rows = [row for row in results.rows if row.method == method]
        if rows:
            ended = sum(row.values.get("status") == CONVERGED for row in rows)
            share = "all" if ended == len(rows) else f"{ended} of"
            most = max(row.values["iterations"] for row in rows)
            words = f"{share} {len(rows)} runs converge, with at most {most} outer iterations."
            sentences.append(f"{label(method)}: {words}")
    return "\n".join(sentences)


def weights(results: Results) -> str:
    """Of denoising: what each of the bundled weights reaches."""
    rows, head = [], []
    for standings in _tables(results):
        head = ["", *standings.columns.values()]
        images = next(iter(standings.columns)).rpartition(",")[0]
        for name, method in _bundled(standings):
            rows.append([f"{name}, {images}", *(_mean(standings, cell, method) for cell in standings.columns)])
    return Table(head, rows).grid()


def iterations(results: Results) -> str:
    """Of denoising: outer iterations, the mean and the most, then the mean number of CG iterations."""
    rows, head = [], []
    for standings in _tables(results)[:2]:  # whole images, gray and colour
        head = ["", *standings.columns.values()]
        for name, method in _bundled(standings):
            rows.append([name, *(_effort(results.select(cell, method)) for cell in standings.columns)])
    return Table(head, rows).grid()


def speed_sentence(results: Results) -> str:
    """Seconds to the fixed point beside the method as the paper writes it."""
    found = runs_of(results, SPEED_CELL)
    if not {"ours", "paper-literal"} <= set(found):
        raise ValueError(f"ours and paper-literal were not both measured in {SPEED_CELL}")
    ours, reference = found["ours"], found["paper-literal"]
    size, _, noise = SPEED_CELL.partition(" gray, ")
    place = results.select(SPEED_CELL, "ours")[0].environment
    device = results.environments[place]["device_name"]
    seconds = ours.seconds(SPEED_TO)
    if seconds is None:
        raise ValueError(f"ours never reaches the distance of the sentence in {SPEED_CELL}")
    slow = reference.seconds(SPEED_TO)
    wait = f"more than {number(reference.total_seconds)} s" if slow is None else f"{number(slow)} s"
    times = reference.ratio(ours, SPEED_TO).removesuffix(" x").replace("> ", "more than ")
    return (
        f"On one {device}, {size} gray pixels with noise of {noise} are within 1e-3 of the fixed point after "
        f"{number(seconds)} s.\nThe method as the paper writes it takes {wait}, {times} times as long."
    )


BLOCKS = {
    "denoising-summary": Block("denoising", summary),
    "denoising-convergence": Block("denoising", convergence),
    "denoising-weights": Block("denoising", weights),
    "denoising-iterations": Block("denoising", iterations),
    "speed-sentence": Block("speed-cuda", speed_sentence),
}


def _section(section: Section, head: bool) -> Iterator[str]:
    if head:
        yield f"**{markdown_text(section.title)}**"
    yield markdown_text(section.text)
    titles = RUNS_TITLE, TO_PUBLISHED_TITLE, TO_RECIPE_TITLE
    shown = [table for table in section.further if table.quoted or table.title.startswith(titles)]
    for table in [*section.tables, *shown]:
        yield str(table)
    yield "\n".join(f"- {markdown_text(note)}" for note in section.notes)


def _tables(results: Results) -> list[Standings]:
    return [Standings(results, title, columns) for title, columns in results.tables().items()]


def _bundled(standings: Standings) -> list[tuple[str, str]]:
    """The names of weights and methods, for the images of a table."""
    return list(zip(WEIGHTS["gray" if "gray" in standings.title else "colour"], BESIDE[:2], strict=True))


def _mean(standings: Standings, cell: str, method: str) -> str:
    score = standings.score(cell, method)
    return f"{score.mean:.2f}" if score else ""


def _effort(rows: list[Row]) -> str:
    outer, inner = (
        [row.values[name] for row in rows if name in row.values] for name in ("iterations", "cg_iterations")
    )
    return f"{fmean(outer):.1f}, {max(outer)}; {fmean(inner):.0f}" if outer and inner else ""
