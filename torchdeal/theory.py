"""What the theory of the method says about one problem, as numbers, per sample.

The statements are those of the paper, corrected: `lam` stands in `lambda_eps`, and it is `||H^T y||` that bounds T.

* Each step has one answer, and there is a fixed point, if H and W have no common kernel: `kernels`.
* The plain iteration `x -> T(x)` converges from near a fixed point if the spectral radius of `T'` is below 1 there.
  Bounds need more: a norm in which T contracts, that is, in which `||T'|| <= q < 1` between the points in question. Any
  norm will do. The paper takes the Euclidean one. That of the energy, `||v||_A^2 = <v, A v>` with A frozen at x, shows
  a contraction more often: `contraction`.
* Near x, `||x - x*|| <= ||T(x) - x|| / (1 - q)`, and an answer moves by at most `||H|| / ((1 - q) lambda_min)` times
  the change of the measurements, both in the Euclidean norm. From a contraction in the norm of the energy follow
  `||x - x*|| <= ||T(x) - x||_A / ((1 - q) lambda_min^(1/2))` and `1 / ((1 - q) lambda_min^(1/2))`, since
  `||A^-1/2 H^T|| <= 1`.
* Everywhere, T contracts by `lam ||W||^2 L ||H^T y|| / lambda_eps^2`, with L the Lipschitz constant of `M^2` and
  `lambda_eps = lambda_min(H^T H + lam floor^2 W^T W)`: `everywhere`. Only where this is below 1 is the fixed point
  proven to be the only one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from torchdeal.derivative import Derivative, white_noise_like
from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.boundary import fold
from torchdeal.model.filters import REACH, Bank, squared_norm
from torchdeal.model.spline import PHI_END
from torchdeal.operators import Operator
from torchdeal.solvers import System, conjugate_gradient, sample_norms
from torchdeal.solvers.cg import inner_products
from torchdeal.solvers.spectrum import largest_eigenpair, spectral_radius
from torchdeal.system import AttentiveSystem

CHEAP_STEPS = 30  # products with H or A alone cost little
SOLVE_ACCURACY, SOLVE_LIMIT = 1e-2, 300  # of solves within an eigenvalue
FLOOR_LIMIT = 50  # of solves for lambda_eps: where they would take longer, what follows from it is vacuous anyway
ROUNDING = 20  # machine epsilons: relative to the largest eigenvalue, smaller ones are rounding


@dataclass(frozen=True)
class Kernels:
    """Whether H and W have a common kernel: it is `{0}` where `smallest` is above `resolution`."""

    constants: Tensor  # ||H 1|| / ||1||: W maps constants to 0 (with a reflecting boundary)
    smallest: Tensor  # eigenvalue of H^T H + W^T W, from above
    resolution: Tensor  # smaller eigenvalues are rounding errors

    @property
    def apart(self) -> Tensor:
        return self.smallest > self.resolution


@dataclass(frozen=True)
class Contraction:
    """How T' changes lengths at x. The norms are from below; the radius is an estimate."""

    radius: Tensor  # the largest modulus of an eigenvalue
    euclidean: Tensor  # ||T'||
    energy: Tensor  # the same in the norm <v, A v>^(1/2)


@dataclass(frozen=True)
class Everywhere:
    """The contraction of T between any two images."""

    smallest: Tensor  # lambda_eps, from above
    contraction: Tensor  # a bound, as good as lambda_eps is known
    unique_below: Tensor  # lam up to which lambda_min(H^T H) alone proves a contraction; 0 where H has a kernel


def smallest_eigenvalue(system: System, start: Tensor, steps: int, limit: int = SOLVE_LIMIT) -> Tensor:
    """By Lanczos on the inverse; the Rayleigh quotient of what it finds, so from above however rough solves are."""

    def inverse(v: Tensor) -> Tensor:
        options = {"tolerance": SOLVE_ACCURACY, "error_tolerance": SOLVE_ACCURACY, "max_iterations": limit}
        return conjugate_gradient(system.apply, v, preconditioner=system.preconditioner, **options).x

    _, vector = largest_eigenpair(inverse, start, steps)
    return _rayleigh(system, vector)


def kernels(weights: Weights, operator: Operator, like: Tensor, steps: int) -> Kernels:
    """For images like that, `(B, C, H, W)`."""
    constants = _constants(weights, like)
    seen = torch.stack([sample_norms(operator.forward(one)) / sample_norms(one) for one in constants]).amin(0)
    system = _with_constant_masks(weights, operator, like, 1.0, lam=like.real.new_ones(len(like), 1, 1, 1))
    start = white_noise_like(like)
    largest, _ = largest_eigenpair(system.apply, start, steps)
    resolution = ROUNDING * torch.finfo(like.dtype).eps * largest
    # Where a constant is in both kernels, A has no inverse that Lanczos could ask.
    found = [smallest_eigenvalue(system, start, steps), *(_rayleigh(system, one) for one in constants)]
    return Kernels(seen, torch.stack([value.nan_to_num(nan=torch.inf) for value in found]).amin(0), resolution)


def contraction(derivative: Derivative, steps: int) -> Contraction:
    """At x, by so many steps of Lanczos, and twice as many of Arnoldi."""
    noise = white_noise_like(derivative.x)
    euclidean, longest = largest_eigenpair(lambda v: derivative.step_transposed(derivative.step(v)), noise, steps)

    def energy(v: Tensor) -> Tensor:  # A^-1 K^T A^-1 K, symmetric in <u, A v>
        return -derivative.frozen(derivative.masks_transposed(derivative.step(v)))

    # What T' makes longest is a better start than noise.
    energetic, _ = largest_eigenpair(energy, longest, steps, metric=derivative.system.apply)
    radius = spectral_radius(derivative.step, longest, 2 * steps)
    return Contraction(radius, euclidean.clamp_min(0).sqrt(), energetic.clamp_min(0).sqrt())


def everywhere(
    weights: Weights, operator: Operator, b: Tensor, sigma: Tensor, lam: Tensor, steps: int
) -> Everywhere:  # fmt: skip
    """For `b = H^T y`; sigma and lam as in `Derivative.at`."""
    floor = _with_constant_masks(weights, operator, b, MASK_FLOOR, lam)
    smallest = smallest_eigenvalue(floor, white_noise_like(b), steps, FLOOR_LIMIT)
    shape = b.shape[-2], b.shape[-1]
    slope = mask_lipschitz(weights, weights.alpha(sigma), shape)
    slope = slope.view(-1, len(slope) // len(b) or 1).amax(1)  # of the images that the model sees in a sample
    lift = _bank_bound(weights.filters, weights.boundary, REACH, shape) ** 2 * slope * sample_norms(b)
    found = lam.flatten() * lift / smallest.clamp_min(torch.finfo(smallest.dtype).tiny).square()
    return Everywhere(smallest, found, smallest_of_normal(operator, b).square() / lift)


def operator_norm(operator: Operator, like: Tensor) -> Tensor:
    """`||H||`, `(B,)`, from below."""
    return largest_eigenpair(operator.normal, white_noise_like(like), CHEAP_STEPS)[0].clamp_min(0).sqrt()


def smallest_of_normal(operator: Operator, like: Tensor) -> Tensor:
    """The smallest eigenvalue of `H^T H`, from above."""
    shift = 1.1 * operator_norm(operator, like).square()
    column = shift.view(-1, 1, 1, 1)
    largest, _ = largest_eigenpair(lambda v: column * v - operator.normal(v), white_noise_like(like), CHEAP_STEPS)
    smallest = shift - largest
    return torch.where(smallest > ROUNDING * torch.finfo(like.dtype).eps * shift, smallest, 0)


def mask_lipschitz(weights: Weights, alpha: Tensor, shape: tuple[int, int]) -> Tensor:
    """L with `max |M^2(u) - M^2(v)| <= L ||u - v||`, one per image that the model sees: each layer at its steepest."""
    slopes = [phi.diff().abs().max() * ((len(phi) - 1) / PHI_END) for phi in weights.phi]
    responses = _bank_bound(weights.mask_filters, weights.boundary, MASK_REACH, shape)
    # The last layer makes single numbers: what counts is the length of each of its filters.
    last = (alpha.flatten(2).amax(2) * weights.mix[1].flatten(1).norm(dim=1)).amax(1)
    return 2 * slopes[0] * slopes[1] * slopes[2] * responses * _layer_bound(weights.mix[0]) * last  # 2: of the square


def _rayleigh(system: System, v: Tensor) -> Tensor:
    """`<v, A v> / <v, v>`, at least the smallest eigenvalue."""
    return inner_products(v, system.apply(v)) / inner_products(v, v)


def _bank_bound(bank: Bank, boundary: Boundary, reach: int, shape: tuple[int, int]) -> Tensor:
    """At least `||W||`."""
    if boundary is Boundary.ZERO:
        return reduce(torch.mul, (_layer_bound(kernel) for kernel in bank))
    padded = bank[0].new_ones(1, 1, *(side + 2 * reach for side in shape))
    mirrored = fold(padded, reach).max()  # how often the model sees a pixel: the squared norm of mirroring
    return (squared_norm(bank) * mirrored).sqrt()


def _layer_bound(kernel: Tensor) -> Tensor:
    """At least the norm of a convolution: the sum of those of its taps."""
    return torch.linalg.matrix_norm(kernel.flatten(2).movedim(-1, 0), 2).sum()


def _constants(weights: Weights, like: Tensor) -> list[Tensor]:
    """An image for each image that the model sees in one (but for imaginary parts): 1 there, else 0."""
    channels = weights.filters[0].shape[1]
    found = []
    for first in range(0, like.shape[1], channels):
        one = torch.zeros_like(like)
        one[:, first : first + channels] = 1
        found.append(one)
    return found


def _with_constant_masks(weights: Weights, operator: Operator, like: Tensor, mask: float, lam: Tensor) -> System:
    """`H^T H + lam mask^2 W^T W`."""
    flat = replace(weights, phi=(*weights.phi[:2], torch.full_like(weights.phi[2], mask)))
    alpha = like.real.new_ones(len(like), len(weights.log_scaling), 1, 1)
    return AttentiveSystem.of(flat, operator, like, lam, alpha).precise(like)
