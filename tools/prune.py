"""Weights with fewer filters, to begin the training of a smaller model with: those that matter most of a larger one.

    python tools/prune.py color bsd400.tar --features 64 --output color64.safetensors
    deal train light.toml --from color64.safetensors --output run     # with features = 64

On patches of the images, with noise, at the fixed points of the larger model:

- a filter of W counts by its energy times the mean of its squared mask, its share of the penalty;
- a hidden channel of the masks counts by the spread of its activation times the norm of the kernels that read it.

What remains stands in for what is left out: the kernels that read hidden channels are fitted again, by least squares,
to what the larger model computed, and kappa takes in the norm that W has lost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.io.checkpoint import load, save
from torchdeal.metrics import psnr
from torchdeal.model import DEAL, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.boundary import reflect
from torchdeal.model.filters import impulse_responses, squared_norm, valid_convolutions, zero_mean
from torchdeal.model.spline import even_spline
from torchdeal.reconstruct import reconstruct
from torchdeal.training import read_images
from torchdeal.training.batches import Batch, draw
from torchdeal.training.config import TaskConfig

RIDGE = 1e-4  # of the mean square of the activations: keeps the fit from large kernels that cancel each other
TOLERANCE = 1e-2  # of the fixed points: only means are taken of them


@dataclass(frozen=True)
class Layers:
    """What the masks of some images are computed from. (Beyond the borders the images are mirrored in any case.)"""

    first: Tensor  # phi1(W_mask x), (B, N, H + 4, W + 4)
    second: Tensor  # phi2(mix1 first), (B, N, H + 2, W + 2)
    mask: Tensor  # (B, N, H, W)


@dataclass(frozen=True)
class Kept:
    """Which channels stay, by their number."""

    filters: Tensor  # of W, and of the masks
    first: Tensor
    second: Tensor
    share: float  # of the penalty that the filters have


def prune(model: DEAL, batch: Batch, features: int) -> tuple[DEAL, Kept]:
    """The model with the `features` most important of its filters, as the batch shows them, and which these are."""
    if not 1 <= features < model.features:
        raise ValueError(f"features must be from 1 to {model.features - 1}, fewer than the model has, got {features}")
    with torch.no_grad():
        weights = model.weights()
        layers = layers_of(weights, fixed_points(model, batch), batch.sigma)
        kept = choose(weights, layers, features)
        return pruned(model, layers, kept), kept


def fixed_points(model: DEAL, batch: Batch) -> Tensor:
    """What the model makes of the batch."""
    return reconstruct(batch.measured, model=model, sigma=batch.sigma / 255, tolerance=TOLERANCE, data_range=1.0).x


def layers_of(weights: Weights, x: Tensor, sigma: Tensor) -> Layers:
    """What `weights.mask(x, alpha)` computes on its way."""
    phi1, phi2, phi3 = weights.phi
    first = even_spline(valid_convolutions(reflect(x, MASK_REACH), weights.mask_filters), phi1)
    second = even_spline(F.conv2d(first, weights.mix[0]), phi2)
    mask = even_spline(F.conv2d(second, weights.mix[1]) * weights.alpha(sigma), phi3).clamp(MASK_FLOOR, 1)
    return Layers(first, second, mask)


def choose(weights: Weights, layers: Layers, features: int) -> Kept:
    """The most important channels of each kind."""
    energy = impulse_responses(weights.filters).square().sum((1, 2, 3))
    importance = energy * layers.mask.square().mean((0, 2, 3))
    filters = _largest(importance, features)
    second = _largest(_spread(layers.second) * _reading(weights.mix[1][filters]), features)
    first = _largest(_spread(layers.first) * _reading(weights.mix[0][second]), features)
    return Kept(filters, first, second, float(importance[filters].sum() / importance.sum()))


def pruned(model: DEAL, layers: Layers, kept: Kept) -> DEAL:
    """The model with these channels alone."""
    small = DEAL(model.channels, model.boundary, len(kept.filters)).requires_grad_(False).eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    state["filters.2"] = state["filters.2"][kept.filters]
    state["mask_filters.2"] = state["mask_filters.2"][kept.first]
    state["mix.0"] = refitted(state["mix.0"][kept.second], layers.first, kept.first)
    state["mix.1"] = refitted(state["mix.1"][kept.filters], layers.second, kept.second)
    state["scaling"] = state["scaling"][kept.filters]
    small.load_state_dict(state)
    # W is divided by its norm, which is smaller now: the penalty would grow.
    small.kappa.mul_(squared_norm(zero_mean(tuple(small.filters))) / squared_norm(zero_mean(tuple(model.filters))))
    return small


def refitted(kernel: Tensor, activations: Tensor, kept: Tensor) -> Tensor:
    """The 3 x 3 kernel that makes of the kept channels, as nearly as possible, what `kernel` makes of all.

    `min_k sum |k * a_kept - kernel * a|^2 + ridge |k - kernel_kept|^2`, by its normal equations.
    """
    outputs, channels = kernel.shape[:2]
    taps = kernel[0, 0].numel()
    gram = _gram(activations)
    rows = (kept[:, None] * taps + torch.arange(taps)).flatten()
    left_out = torch.ones(channels * taps, dtype=torch.bool).index_fill(0, rows, False)
    old = kernel.double().reshape(outputs, -1)
    within = gram[rows][:, rows]
    within = within + RIDGE * within.diagonal().mean() * torch.eye(len(rows), dtype=gram.dtype)
    change = torch.linalg.solve(within, gram[rows][:, left_out] @ old[:, left_out].t()).t()
    return (old[:, rows] + change).reshape(outputs, len(kept), *kernel.shape[2:]).to(kernel.dtype)


def _gram(activations: Tensor) -> Tensor:
    """The products of all pairs of numbers that a 3 x 3 kernel reads, `(9 N, 9 N)`, mean over all places."""
    total, places = torch.zeros((), dtype=torch.float64), 0
    for image in activations:
        columns = F.unfold(image[None], 3)[0].double()
        total, places = total + columns @ columns.t(), places + columns.shape[1]
    return total / places


def _largest(importance: Tensor, count: int) -> Tensor:
    return importance.topk(count).indices.sort().values


def _spread(activations: Tensor) -> Tensor:
    return activations.std((0, 2, 3))


def _reading(kernel: Tensor) -> Tensor:
    """The norm of what reads each input channel."""
    return kernel.square().sum((0, 2, 3)).sqrt()


def main(arguments: Sequence[str] | None = None) -> None:
    """Prune, save, and say what it cost on the patches."""
    parser = argparse.ArgumentParser(
        prog="python tools/prune.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", help="a weights file, or the name of bundled ones")
    parser.add_argument("images", nargs="+", type=Path, help="folders or tar files of images")
    parser.add_argument("--features", type=int, required=True, help="how many filters stay")
    parser.add_argument("--output", type=Path, required=True, help="a new .safetensors file")
    parser.add_argument("--patches", type=int, default=24, help="how many (default: 24)")
    parser.add_argument("--patch", type=int, default=96, help="their height and width (default: 96)")
    parser.add_argument("--seed", type=int, default=0, help="of patches and noise (default: 0)")
    given = parser.parse_args(arguments)
    try:
        _run(given)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")


def _run(given: argparse.Namespace) -> None:
    if given.output.exists() or given.output.suffix != ".safetensors":
        raise ValueError(f"{given.output}: --output must name a .safetensors file that does not exist yet")
    model = load(given.weights)
    images = read_images(given.images, channels=model.channels, patch=given.patch)
    batch = draw(images, TaskConfig(), given.patches, given.seed)
    small, kept = prune(model, batch, given.features)
    save(small, given.output)
    before, after = (psnr(fixed_points(one, batch), batch.clean) for one in (model, small))
    print(f"{given.features} of {model.features} filters have {100 * kept.share:.1f} % of the penalty")
    print(f"PSNR on the patches: {before:.2f} dB with all, {after:.2f} dB without the others, before any training")


if __name__ == "__main__":
    main()
