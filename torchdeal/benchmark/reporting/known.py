"""Other methods beside what is known of them: values that were published, and those of the recipes of their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from torchdeal.benchmark.peers.published import PUBLISHED, QUOTED, RECIPE, WHOLE, Expected, known_values
from torchdeal.benchmark.reporting.labels import OURS, label
from torchdeal.benchmark.reporting.tables import Table, signed

TO_PUBLISHED_TITLE = "Other methods: measured here minus the published value (in brackets), in dB"
TO_RECIPE_TITLE = (
    "Other methods that nothing is published for: measured here minus the value of their recipe (in brackets), in dB"
)
ABOUT_PUBLISHED = {  # by method and source, or by source
    PUBLISHED: "Values are those of the authors, or of others where that is said. Here answers are clipped to 0..1 and "
    "not rounded; what their authors did differs.",
    RECIPE: "A recipe has what the same weights reached on the first eight images when they were converted for such "
    "comparisons: it checks the code, not the method.",
    ("bm3d", PUBLISHED): "BM3D: as the authors of DnCNN report it. The package bm3d is newer.",
    ("dncnn", PUBLISHED): "DnCNN: its authors' code rounds answers to 8 bits, which loses some 0.06 dB at 40 dB.",
    ("epll", PUBLISHED): "EPLL: as in the paper of DnCNN. The mixture is one that was fitted here.",
    ("ffdnet", PUBLISHED): "FFDNet: the weights are those of Tassano et al., not those of its authors.",
    ("bm3d", QUOTED): "BM3D in the paper of DEAL: which code that was, and which noise, is not said.",
    ("dncnn", QUOTED): "DnCNN in the paper of DEAL: which weights is not said. Here each noise level has its own.",
}

Levels = Callable[[str, str], tuple[Mapping[str, float], bool] | None]


@dataclass(frozen=True)
class KnownValues:
    """Of one table.

    Args:
        columns: its cells, and the heads of their columns.
        methods: those in it, in their order.
        levels: of a cell and a method the PSNR of each image, and whether that is all of them; None if not measured.
    """

    columns: Mapping[str, str]
    methods: Sequence[str]
    levels: Levels

    def table(self, *sources: str) -> Table:
        """Are the other methods what their authors say? Where both are means over the same images."""
        known = {key: values for key, values in self._values.items() if key[1] in sources}
        cells = [cell for cell in self.columns if any(cell in values for values in known.values())]
        rows = []
        for (method, source), values in known.items():
            name = label(method) + (f", in the {QUOTED}" if source == QUOTED else "")
            rows.append([name, *(self._beside(cell, values.get(cell)) for cell in cells)])
        title = TO_RECIPE_TITLE if sources == (RECIPE,) else TO_PUBLISHED_TITLE
        return Table(["", *(self.columns[cell] for cell in cells)], rows, title)

    def notes(self) -> Iterator[str]:
        """Where these values are from, and which methods have none."""
        known = self._values
        if not known:
            return
        for key in dict.fromkeys([*(source for _, source in known), *known]):
            if key in ABOUT_PUBLISHED:
                yield ABOUT_PUBLISHED[key]
        checked = {method for method, _ in known}
        others = [method for method in self.methods if not method.startswith(OURS) and method not in checked]
        measured = [label(method) for method in others if any(self.levels(cell, method) for cell in self.columns)]
        if measured:
            yield f"No published value for these images is known here: {', '.join(measured)}."

    @cached_property
    def _values(self) -> dict[tuple[str, str], dict[str, Expected]]:
        """By method and source, where there is a measured one for the same images.

        Recipes only for methods that nothing was published for.
        """
        known = known_values()
        kept = {key: values for key, values in known.items() if any(self._beside(c, values[c]) for c in values)}
        others = {method for method, source in kept if source != RECIPE}
        chosen = [key for key in kept if key[0] in self.methods and (key[1] != RECIPE or key[0] not in others)]
        return {key: kept[key] for key in sorted(chosen, key=lambda key: self.methods.index(key[0]))}

    def _beside(self, cell: str, expected: Expected | None) -> str:
        """What was measured minus a value, and the value; empty where it was not measured for these images."""
        found = self.levels(cell, expected.method) if expected and cell in self.columns else None
        if found is None or expected is None:
            return ""
        levels, complete = found
        images = sorted(levels)[: expected.images]
        if len(images) < expected.images and not (expected.images == WHOLE and complete):
            return ""
        return f"{signed(fmean(levels[name] for name in images) - expected.value)} ({expected.value:.2f})"
