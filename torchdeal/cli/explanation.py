"""What `deal explain` tells: sentences and pictures about one result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from torchdeal.cli import explanation_pictures as pictures
from torchdeal.cli.explanation_page import Curves, Illustration, Legend, Passage
from torchdeal.cli.pictures import LITTLE, WHITE
from torchdeal.cli.report import FileReport, array_of, in_options
from torchdeal.cli.run import Solved
from torchdeal.explain import Explanation, Pixel, WeightedMean, explain, telling_pixels
from torchdeal.reconstruction import Reconstruction

ROUGH = 1e-2  # relative residual of a row above which the page says so
METHOD = (
    "DEAL looks for the picture that agrees with the data and in which small patterns, found by {filters} learned "
    "filters, are as weak as possible.",
    "A mask, computed from the picture itself, says for each place and each pattern how strongly it is held down: "
    "noise is, edges and texture are spared.",
    "Given its masks, each pixel of the result is a weighted sum of measured pixels, and the weights can be computed: "
    "they are shown below.",
)


@dataclass(frozen=True, eq=False)
class ExplainedPixel:
    """A pixel of the picture, and what it is the mean of."""

    kind: str  # Edge, Texture, Flat; empty if a user chose it
    pixel: Pixel
    value: float  # on the 0..255 scale
    mean: WeightedMean

    @property
    def name(self) -> str:
        place = f"row {self.pixel[0]}, column {self.pixel[1]}"
        return f"{self.kind}: {place}" if self.kind else f"{place[0].upper()}{place[1:]}"

    @property
    def weights(self) -> np.ndarray:
        """`(H, W)`: of all channels of a measured pixel together."""
        return self.mean.weights[0].sum(0).double().cpu().numpy()

    @cached_property
    def window(self) -> pictures.Window:
        return pictures.window_of(self.weights, self.pixel)

    @property
    def averaged(self) -> float:
        return float(self.mean.averaged)

    def noise(self) -> str:
        """How much of it the pixel has, in words."""
        if self.averaged >= 1:
            return f"It has as little noise as the plain mean of {self.averaged:.3g} measured pixels."
        return f"It has {self.averaged**-0.5:.2f} times the noise of a measured pixel: undoing a blur amplifies noise."

    def summary(self) -> dict[str, object]:
        """For machines."""
        return {
            "pixel": list(self.pixel),
            "kind": self.kind.lower() or None,
            "value": self.value,
            "averaged": self.averaged,
            "sum_of_weights": float(self.weights.sum()),
            "largest_weight": float(self.weights.max()),
            "weight_in_window": self.window.holds,
            "window": list(self.window.size),
            "residual": float(self.mean.residual),
        }


@dataclass(frozen=True, eq=False)
class Story:
    """A result, and the pixels that are explained."""

    solved: Solved
    solution: Reconstruction
    explanation: Explanation
    pixels: Sequence[ExplainedPixel]

    @classmethod
    def of(cls, solved: Solved, wanted: Sequence[Pixel]) -> Story:
        """By default of three telling pixels. Those that are wanted are inside of the picture."""
        solution = solved.solution
        if not isinstance(solution, Reconstruction):
            raise ValueError("the picture was left as it is, so there is nothing to explain: give --sigma")
        explanation, result = explain(solution), array_of(solved.x)
        brightness = result if result.ndim == 2 else result.mean(-1)
        chosen = dict(zip(wanted, [""] * len(wanted), strict=True)) or {
            pixel: kind for kind, pixel in telling_pixels(brightness).items()
        }
        means = explanation.rows([place_in_solution(solved, pixel) for pixel in chosen])
        explained = [
            ExplainedPixel(kind, pixel, float(brightness[pixel]), mean)
            for (pixel, kind), mean in zip(chosen.items(), means, strict=True)
        ]
        return cls(solved, solution, explanation, explained)

    def opening(self, report: FileReport) -> Iterator[str]:
        """The numbers, in sentences."""
        between = ""
        if report.sigma_low is not None:
            between = f" (between {report.sigma_low:.3g} and {report.sigma_high:.3g})"
        given = "was simulated" if report.simulation else "was given"
        how = f"was estimated from the picture{between}" if report.estimated else given
        yield f"The noise in the data has a standard deviation sigma of {report.sigma:g}, where white is 255. It {how}."
        if not self.solved.problem.H.is_identity:
            yield f"The model assumed a noise level of {float(self.solution.sigma.mean()):.3g}."
        yield (
            f"The strength lam, which weighs weak patterns against the data, is {float(self.solution.lam.mean()):.3g}."
        )
        yield f"The run ended with {report.status} after {report.iterations} iterations. {in_options(report.status)}"
        if report.distance is None:
            yield "How far the result is from the fixed point is not known."
        else:
            yield (
                "The fixed point is the picture at which further iterations change nothing. The result is about "
                f"{100 * report.distance:.2g} % away from it: an estimate, relative to the size of the picture."
            )
        if report.simulation:
            yield f"The noise was simulated, so that the truth is known: {str(report.simulation).replace('->', 'to')}."

    def passages(self) -> Iterator[Passage]:
        filters = len(self.explanation.filters.channels)
        yield Passage("What the method does", [sentence.format(filters=filters) for sentence in METHOD])
        yield self._before_and_after()
        yield self._mask()
        yield self._responses()
        yield from self._averages()
        yield self._filters()
        yield self._splines()

    @cached_property
    def _range(self) -> tuple[float, float]:
        """Black and white of the pictures: those of the file, unless the picture uses little of that."""
        low, high = float(self.solved.x.min()), float(self.solved.x.max())
        return (0.0, WHITE) if high - low > LITTLE * WHITE else (low, high)

    @cached_property
    def _data(self) -> np.ndarray:
        return pictures.in_gray(array_of(self.solved.problem.y), *self._range)

    @cached_property
    def _result(self) -> np.ndarray:
        return pictures.in_gray(array_of(self.solved.x), *self._range)

    def _kept(self, values: Tensor) -> np.ndarray:
        """Of values `(P, H, W)` the mean over P, where the picture is."""
        return array_of(self.solved.problem.keep(values.mean(0)[None, None]))

    def _before_and_after(self) -> Passage:
        shown = [Illustration("picture", self._data, "The data."), Illustration("result", self._result, "The result.")]
        return Passage("The picture and the result", illustrations=shown)

    def _mask(self) -> Passage:
        mask = self._kept(self.explanation.mean_mask)
        low, high = float(mask.min()), float(mask.max())
        legend = Legend("numbers", f"{low:.2f}, protected", f"{high:.2f}, smoothed")
        sentences = (
            "The mask is 1 where a pattern is taken for noise and held down, and near 0 where it is taken for "
            "structure and spared.",
            "Shown is its mean over all filters. Dark lines are the edges that it protects.",
        )
        shown = Illustration("mask", pictures.in_colours(mask, low, high), "The mean mask of the result.", legend)
        return Passage("Where structure is protected", sentences, [shown])

    def _responses(self) -> Passage:
        means = self.explanation.means
        energies = self._kept(means.response), self._kept(means.adapted)
        (before, after), low, high = pictures.of_energies(*energies)
        legend = Legend("numbers", f"{low:.0e}", f"{high:.0e}")
        spared = 100 * (1 - float(energies[1].sum()) / max(float(energies[0].sum()), 1e-30))
        sentences = (
            "A filter responds where it finds its pattern. First, the mean strength of all responses to the result. "
            "Then what is left of them once the mask has been applied: only this is held down.",
            f"The mask spares {spared:.1f} % of the strength.",
        )
        shown = [
            Illustration("responses", before, "Squared responses, before attention.", legend),
            Illustration("responses-masked", after, "The same after attention, on the same scale.", legend),
        ]
        return Passage("What the filters see, before and after attention", sentences, shown)

    def _averages(self) -> Iterator[Passage]:
        reach = max(self._result.shape) / 60
        places = [(*explained.pixel, reach) for explained in self.pixels]
        overview = Illustration(
            "pixels", pictures.marked(self._result, places, numbered=True), "The pixels that are explained, numbered."
        )
        sentences = (
            "Each pixel below is a weighted sum of measured pixels. Along an edge weights follow the edge, in a flat "
            "place they spread, in fine texture few pixels are averaged.",
            "Pixels are counted from 0, from the top left. Colours show the size of a weight on a logarithmic scale.",
        )
        yield Passage("What a pixel is the mean of", sentences, [overview])
        for number, explained in enumerate(self.pixels, 1):
            yield self._average(number, explained)

    def _average(self, number: int, explained: ExplainedPixel) -> Passage:
        (row, column), window, weights = explained.pixel, explained.window, explained.weights
        inside = row - window.rows.start, column - window.columns.start, 0.0
        data, result = self._data[window.area], self._result[window.area]
        most = float(np.abs(weights).max())
        legend = Legend("weights", _percent(-most, 1), _percent(most, 1))
        height, width = window.size
        negative = float(-weights.clip(max=0).sum())
        sentences = [
            f"Its value is {explained.value:.1f}.",
            explained.noise(),
            f"{_percent(window.holds)} of its weight lies in the {height} x {width} pixels shown.",
            f"Its own measured value has the weight {_percent(weights[explained.pixel], 1)}.",
        ]
        if negative > 0.005:
            sentences.append(f"Orange weights are subtracted; they add up to {_percent(negative)}.")
        if float(explained.mean.residual) > ROUGH:
            sentences.append("The weights are rough: the equations that give them were not solved precisely.")
        name = f"pixel-{row}-{column}"
        shown = [
            Illustration(f"{name}-data", pictures.marked(data, [inside]), "The data around it."),
            Illustration(f"{name}-result", pictures.marked(result, [inside]), "The result around it."),
            Illustration(
                f"{name}-weights",
                pictures.marked(pictures.with_weights(result, weights[window.area]), [inside]),
                "What it was averaged from: the weights over the result.",
                legend,
            ),
        ]
        return Passage(f"{number}. {explained.name}", sentences, shown, small=True)

    def _filters(self) -> Passage:
        kernels = self.explanation.filters
        caption = "The filters of the model, 25 x 25 pixels each, the strongest first. Gray is 0."
        return Passage(
            "The filters", illustrations=[Illustration("filters", pictures.mosaic(kernels), caption)], folded=True
        )

    def _splines(self) -> Passage:
        splines = self.explanation.splines
        level, lines = next(iter(splines.phi_sigma.items()))
        sentences = (
            "The learned function that makes masks: what the mask network finds goes in, the mask comes out. The more "
            "structure it finds, the lower the mask.",
            f"Four of the filters, at the noise level {level:.3g}.",
        )
        names = [f"filter {channel}" for channel in splines.channels]
        curves = Curves(splines.input, lines, names, "what the mask network finds")
        return Passage("How a mask follows from what is found", sentences, curves=curves, folded=True)


def place_in_solution(solved: Solved, pixel: Pixel) -> Pixel:
    """Which pixel of the solution one of the picture is: a border may have been cut off."""
    height, width = solved.solution.x.shape[-2:]
    numbers = torch.arange(height * width, dtype=torch.float64).view(1, 1, height, width)
    return divmod(int(solved.problem.keep(numbers)[0, 0][pixel]), width)


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"
