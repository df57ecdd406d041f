"""Which batch each step sees: a pool of batches, each visited a few times, with the points that were reached."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators import Blur, Identity, Mask, Operator
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.training.config import IterationConfig, TaskConfig
from torchdeal.training.data import ImageSet


@dataclass(frozen=True)
class Batch:
    """Clean patches, what was measured of them, and the noise levels on the 0..255 scale."""

    clean: Tensor
    operator: Operator
    measured: Tensor
    sigma: Tensor


@dataclass(frozen=True)
class Visit:
    """What a step sees."""

    slot: int  # of the pool
    number: int  # of the batch
    first: bool


def visit(step: int, iterations: IterationConfig) -> Visit:
    """The visit of a step: the slots take turns, and each gets a new batch after `visits` rounds.

    Not all in the same round: about the same number of first visits, which take longest, falls in every round.
    """
    round_number, slot = divmod(step, iterations.pool)
    age = round_number + slot % iterations.visits
    first = round_number == 0 or age % iterations.visits == 0
    return Visit(slot, slot + iterations.pool * (age // iterations.visits), first)


def draw(images: ImageSet, task: TaskConfig, size: int, seed: int) -> Batch:
    """The batch of that seed, the same each time."""
    device = images.pixels.device
    generator = torch.Generator(device).manual_seed(seed)
    clean = images.draw(size, generator)
    low, high = task.sigma
    sigma = low + (high - low) * torch.rand(size, generator=generator, device=device)
    operator = make_operator(task, clean, generator)
    measured = operator.forward(clean)
    noise = torch.randn(measured.shape, generator=generator, device=device)
    return Batch(clean, operator, measured + sigma.view(-1, *[1] * (measured.ndim - 1)) / 255 * noise, sigma)


def make_operator(task: TaskConfig, image: Tensor, generator: torch.Generator) -> Operator:
    """`H` for images like this one; what is random in it comes from the generator."""
    if task.operator == "identity":
        return Identity()
    if task.operator == "blur":
        kernel = torch.tensor(task.kernel) if task.kernel else gaussian_kernel(task.blur_sigma)
        return Blur(kernel).to(image.device, image.dtype)
    shape = len(image), 1, *image.shape[-2:]
    known = torch.rand(shape, generator=generator, device=image.device) < task.known
    return Mask(known).to(image.device, image.dtype)


def seed_of(*numbers: int) -> int:
    """One seed of several numbers, such as the seed of the run, the process and the number of a batch."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
