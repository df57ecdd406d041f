"""Linear splines: the learned one-dimensional functions of the model."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

PHI_KNOTS = 31
PHI_END = 3.0  # phi1, phi2, phi3 have their knots on [0, 3]
SIGMA_START, SIGMA_END = -1.0, 51.0  # kappa and the scalings have theirs on [-1, 51]


def non_decreasing(coefficients: Tensor) -> Tensor:
    """Values at the knots with every negative slope replaced by 0 and the mean kept."""
    steps = coefficients.diff(dim=-1).clamp_min(0)
    rise = torch.cat([steps.new_zeros((*steps.shape[:-1], 1)), steps.cumsum(-1)], dim=-1)
    return rise + (coefficients - rise).mean(-1, keepdim=True)


def non_increasing(coefficients: Tensor) -> Tensor:
    """Values at the knots with every positive slope replaced by 0 and the mean kept."""
    return -non_decreasing(-coefficients)


def even_spline(x: Tensor, coefficients: Tensor) -> Tensor:
    """`phi(|x|)` for knots equally spaced on [0, 3], linearly extended beyond.

    Args:
        x: any shape.
        coefficients: `(K,)`, the values at the knots.
    """
    return _function_of(x, coefficients).apply(x, coefficients)  # pyright: ignore[reportReturnType]


def even_values(x: Tensor, coefficients: Tensor) -> Tensor:
    """The same where nothing is differentiated, and within transforms of `torch.func`."""
    slope, intercept = _pieces(coefficients)
    magnitude = x.abs().to(coefficients.dtype)
    index = _piece_index(magnitude, coefficients.numel())
    return torch.take(slope, index).mul_(magnitude).add_(torch.take(intercept, index)).to(x.dtype)


def _function_of(x: Tensor, coefficients: Tensor) -> type[torch.autograd.Function]:
    """On CUDA one Triton kernel does all of it, where there is Triton."""
    if x.is_cuda:
        with contextlib.suppress(ImportError):
            from torchdeal.backends.cuda import triton_spline

            if triton_spline.supports(x, coefficients):
                return triton_spline.TritonSpline
    return _EvenSpline


class _EvenSpline(torch.autograd.Function):
    """The gradient of the coefficients is a histogram: each `x` adds to its two knots.

    Autograd's own backward of `coefficients[index]` sorts or serialises all of `x`; `bincount` does not.
    """

    @staticmethod
    def forward(ctx, x: Tensor, coefficients: Tensor) -> Tensor:
        ctx.save_for_backward(x, coefficients)
        return even_values(x, coefficients)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:  # pyright: ignore
        x, coefficients = ctx.saved_tensors
        knots = coefficients.numel()
        magnitude, grad = x.abs().to(coefficients.dtype), grad.to(coefficients.dtype)
        index = _piece_index(magnitude, knots)
        grad_x = grad_coefficients = None
        if ctx.needs_input_grad[0]:
            grad_x = (torch.take(_pieces(coefficients)[0], index) * grad * torch.sign(x)).to(x.dtype)
        if ctx.needs_input_grad[1]:
            to_right = ((magnitude * ((knots - 1) / PHI_END) - index) * grad).flatten()
            to_left = grad.flatten() - to_right
            index = index.flatten()
            histogram = torch.bincount(index, to_left, knots) + torch.bincount(index + 1, to_right, knots)
            grad_coefficients = histogram.to(coefficients.dtype)
        return grad_x, grad_coefficients


def _piece_index(magnitude: Tensor, knots: int) -> Tensor:
    """Which linear piece `|x|` lies on; the last one goes on to infinity. (NaN counts as the first.)"""
    return (magnitude * ((knots - 1) / PHI_END)).long().clamp_(0, knots - 2)


def _pieces(coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and intercept of each linear piece."""
    knots = torch.linspace(0, PHI_END, coefficients.numel(), dtype=coefficients.dtype, device=coefficients.device)
    slope = coefficients.diff() * ((coefficients.numel() - 1) / PHI_END)
    return slope, coefficients[:-1] - slope * knots[:-1]


def sigma_knots(coefficients: Tensor) -> Tensor:
    """The noise levels at which a spline in sigma has its knots, `(K,)`."""
    count, device = coefficients.shape[-1], coefficients.device
    return torch.linspace(SIGMA_START, SIGMA_END, count, dtype=torch.double, device=device)  # whole numbers, exactly


def sigma_spline(coefficients: Tensor, sigma: Tensor) -> Tensor:
    """A spline in the noise level, knots on [-1, 51], linearly extended beyond.

    Args:
        coefficients: `(..., K)`, the values at the knots.
        sigma: `(B,)`, on the 0..255 scale.

    Returns:
        `(..., B)`.
    """
    knots = coefficients.shape[-1]
    position = (sigma - SIGMA_START) * ((knots - 1) / (SIGMA_END - SIGMA_START))
    index = position.floor().clamp(0, knots - 2)
    fraction, index = position - index, index.long()
    return coefficients[..., index] * (1 - fraction) + coefficients[..., index + 1] * fraction
