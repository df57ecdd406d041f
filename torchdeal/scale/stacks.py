"""Stacks, videos and folders: many images, reconstructed in batches that fill the device."""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.estimation import DataRange, unless_automatic
from torchdeal.io.checkpoint import default_weights, load, on_device
from torchdeal.io.images import ImageFormat
from torchdeal.io.measurements import measurements_to_tensor, positive_integer, refuse_gradients, with_channels
from torchdeal.model import DEAL
from torchdeal.operators import Identity, Operator, as_operator
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.reconstruction import PosedEquation, Reconstruction
from torchdeal.scale.batches import Batches, batch_size

Numbers = float | str | None | Iterable[float]


def reconstruct_many(
    measurements: Iterable[Any],
    H: Any = None,
    *,
    model: DEAL | str | os.PathLike[str] | None = None,
    sigma: Numbers = None,
    lam: Numbers = None,
    noise: Numbers = None,
    tolerance: float = DEFAULT_TOLERANCE,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    device: torch.device | str | None = None,
    data_range: float | str | None = None,
    channelwise: bool = False,
    alpha: bool = False,
    symmetries: int = 1,
    batch: int | None = None,
) -> Iterator[Reconstruction]:
    """Reconstruct many images, of any sizes; those of one size together, as many as fill a GPU.

    Answers come in the order of the measurements, each with its own statistics, and are those of `reconstruct` within
    the tolerance. Measurements are taken from the iterable as they are needed: it may be a generator that reads files.
    Each result holds its problem, on the device; keep `rec.x` alone where there are many.

    Args:
        measurements: each as `reconstruct` takes it, of one image: numpy `(H, W)` or `(H, W, C)`, torch `(C, H, W)`.
        H: one operator for all of them; None is the identity (denoising).
        model: as in `reconstruct`.
        sigma: the noise level, in the units of the data: a number for all, or an iterable with one for each.
        lam: the strength, likewise.
        noise: the standard deviation of the noise in the measurements, likewise. Where none is given it is estimated.
        tolerance: as in `reconstruct`.
        max_iterations: likewise.
        device: likewise.
        data_range: likewise.
        channelwise: likewise.
        alpha: likewise.
        symmetries: likewise.
        batch: how many are solved together at most. By default as many as fill the device; on the CPU 1.

    Yields:
        a `Reconstruction` for each.
    """
    most = None if batch is None else positive_integer("batch", batch)
    operator = Identity() if H is None else as_operator(H)
    limits = {"tolerance": tolerance, "max_iterations": max_iterations}
    options = {**limits, "channelwise": channelwise, "symmetries": symmetries}
    placed = on_device(model, device) if isinstance(model, DEAL) else model  # once, and not for each batch
    many = _Many(operator, DataRange.of(data_range, operator), placed, device, data_range, most, options)
    knobs = (_one_for_each(name, value) for name, value in (("sigma", sigma), ("lam", lam), ("noise", noise)))
    return many.answers(map(partial(many.sample, alpha=alpha), measurements, *knobs))


@dataclass(frozen=True, eq=False)
class _Sample:
    """The measurements of one image, with white at 1 where that is known, and what goes along with them."""

    y: Tensor
    image_format: ImageFormat
    sigma: float | None
    lam: float | None
    noise: float | None

    @property
    def knobs(self) -> dict[str, float | None]:
        return {"sigma": self.sigma, "lam": self.lam, "noise": self.noise}


@dataclass(frozen=True, eq=False)
class _Many:
    """What the problems of one call have in common."""

    operator: Operator
    white: DataRange
    model: DEAL | str | os.PathLike[str] | None
    device: torch.device | str | None
    data_range: float | str | None
    most: int | None
    options: dict[str, Any]
    _models: dict[int, DEAL] = field(default_factory=dict)  # by the channels of their images

    def answers(self, samples: Iterable[_Sample]) -> Iterator[Reconstruction]:
        for _, answer in Batches(self._kind, self._size, self._solve).answers(samples):
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def sample(self, y: Any, sigma: Any, lam: Any, noise: Any, *, alpha: bool) -> _Sample:
        refuse_gradients(y=y)
        operator = self.operator
        tensor, image_format = measurements_to_tensor(
            y,
            white=self.white.given,
            images=operator.measures_images,
            check_range=operator.is_identity,
            shape=operator.measurement_shape,
            alpha=alpha,
        )
        if len(tensor) > 1:
            raise ValueError(
                f"the measurements of shape {tuple(np.shape(y))} are those of {len(tensor)} images: give them one by "
                "one, as in reconstruct_many(stack), or use reconstruct"
            )
        level, strength, deviation = (_number(value) for value in (sigma, lam, noise))
        level, deviation = (None if v is None else v / image_format.data_range for v in (level, deviation))
        return _Sample(tensor, image_format, level, strength, deviation)

    def _kind(self, sample: _Sample) -> Hashable:
        given = tuple(value is None for value in sample.knobs.values())
        return tuple(sample.y.shape), sample.y.dtype, sample.y.device, given

    def _size(self, sample: _Sample) -> int:
        if self.most is not None or self.operator.batch is not None:
            return self.most or 1
        model, image = self._model_for(sample.y)
        return batch_size(image[0, 0].numel(), model.features, model.kappa.device)

    def _model_for(self, y: Tensor) -> tuple[DEAL, Tensor]:
        """The one for such measurements, and an image of their size."""
        image = y if self.operator.is_identity else self.operator.to(y.device, y.real.dtype).adjoint(y)
        if isinstance(self.model, DEAL):
            return self.model, image
        if image.shape[1] not in self._models:
            name = self.model or default_weights(image.shape[1], self.options["channelwise"])
            self._models[image.shape[1]] = load(name, device=y.device if self.device is None else self.device)
        return self._models[image.shape[1]], image

    def _solve(self, samples: Sequence[_Sample]) -> list[Reconstruction]:
        columns = {name: [sample.knobs[name] for sample in samples] for name in samples[0].knobs}
        found = reconstruct(
            torch.cat([sample.y for sample in samples]),
            self.operator,
            model=self._model_for(samples[0].y)[0],
            device=self.device,
            data_range=self.data_range if self.white.estimated else 1.0,
            **{name: None if None in values else values for name, values in columns.items()},
            **self.options,
        )
        return [sample_of(found, index, sample.image_format) for index, sample in enumerate(samples)]


def sample_of(found: Reconstruction, index: int, image_format: ImageFormat) -> Reconstruction:
    """One sample of a batch as a result of its own, in a format of its own.

    Where each sample has an operator of its own (a noise map), the result does not hold its problem.
    """
    equation, image = found.posed()
    here, image_format = slice(index, index + 1), with_channels(image_format, image.shape[1])
    movement = found.movement
    if movement is not None:
        movement = replace(movement, **{name: getattr(movement, name)[here] for name in MOVEMENT_COLUMNS})
    units = image_format.data_range / equation.image_format.data_range
    own = _equation_of(equation, here, image_format) if equation.operator.batch is None else None
    return Reconstruction(
        x=image_format.restore(image[here] * equation.scale[here].view(-1, 1, 1, 1)),
        statuses=found.statuses[here],
        distance=found.distance[here],
        contraction=found.contraction[here],
        iterations=found.iterations[here],
        cg_iterations=found.cg_iterations[here],
        residuals=_of_run(found.residuals[:, here], int(found.iterations[index])),
        movement=movement,
        sigma=_part_of(found.sigma, here) * units,
        lam=_part_of(found.lam, here),
        equation=own,
        image=None if own is None else image[here],
        symmetries=found.symmetries,
    )


MOVEMENT_COLUMNS = ("relative", "settled", "row", "column")


def _equation_of(equation: PosedEquation, here: slice, image_format: ImageFormat) -> PosedEquation:
    per_sample = {name: getattr(equation, name)[here] for name in ("y", "b", "sigma", "lam", "scale")}
    noise = None if equation.noise is None else equation.noise[here]
    return replace(equation, **per_sample, noise=noise, image_format=image_format)


def _of_run(residuals: Tensor, iterations: int) -> Tensor:
    """Of one sample, without the iterations of the others after it ended. Where it diverged the last may be NaN."""
    made = residuals[~residuals.isnan().all(1)]
    return made if len(made) == iterations else residuals[:iterations]


def _part_of(values: Tensor, here: slice) -> Tensor:
    """Of one per sample, or one for all."""
    return values[here] if len(values) > 1 else values


def _one_for_each(name: str, values: Any) -> Iterator[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str) or getattr(values, "ndim", 1) == 0:
        yield from itertools.repeat(values)
    count = 0
    for value in values:
        yield value
        count += 1
    raise ValueError(f"{name} has fewer values than there are images: {count}")


def _number(value: Any) -> float | None:
    value = unless_automatic(value)
    return None if value is None else float(value)
