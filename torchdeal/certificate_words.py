"""A certificate in plain sentences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from torchdeal.starts import Agreement

if TYPE_CHECKING:
    from torchdeal.certificate import Certificate


def sentences(certificate: Certificate, sample: int) -> list[str]:
    """About one sample, a subject each."""
    of = SimpleNamespace(**certificate.numbers(sample))
    found = [_kernels(of), _eigenvalues(of), _contraction(of), _distance(of, certificate.converged[sample])]
    found += [_stability(of), _uniqueness(of)]
    if certificate.agreement:
        found.append(_agreement(certificate.agreement, sample, of.newton))
    return [*found, _how_sure(certificate.steps)]


def _kernels(of: SimpleNamespace) -> str:
    numbers = (
        f"H scales a constant image by {_number(of.constants)}, and the smallest eigenvalue of H^T H + W^T W is "
        f"{_number(of.kernel)}"
    )
    if of.kernel > of.resolution:
        return f"Each step has one answer, and a fixed point exists: no common kernel of H and W was found ({numbers})."
    return (
        f"It is not certain that a step has one answer: there are images that neither H nor W sees, as far as this "
        f"precision tells ({numbers}). Measure more, or use a float64 model."
    )


def _eigenvalues(of: SimpleNamespace) -> str:
    return f"The eigenvalues of A(x) reach at least from {_number(of.smallest)} to {_number(of.largest)}."


def _contraction(of: SimpleNamespace) -> str:
    plain = "converges from near by" if of.radius < 1 else "does not converge here: do not rely on the distance below"
    numbers = (
        f"{_number(of.energy_contraction)} in the norm of the energy, {_number(of.contraction)} in the Euclidean one"
    )
    contracts = (
        "T contracts near x" if min(of.energy_contraction, of.contraction) < 1 else "T contracts in neither norm"
    )
    return (
        f"The spectral radius of T'(x) is {_number(of.radius)}: the plain iteration x -> T(x) {plain}. "
        f"Bounds need a norm of T'(x) below 1: it is {numbers}, so {contracts}."
    )


def _distance(of: SimpleNamespace, converged: bool) -> str:
    known = (
        f"A step of T moves x by {of.step:.1e} of its length. The fixed point is {of.newton:.1e} away (Newton's step). "
    )
    if not converged:
        known = f"The run did not converge. {known}"
    if of.bound < 1:
        return f"{known}The contraction bounds that by {of.bound:.1e}."
    return f"{known}The bound by the contraction is vacuous: it is {_at_least_one(of.bound)}."


def _at_least_one(bound: float) -> str:
    return (
        "infinite, as there is no contraction" if bound == float("inf") else f"{bound:.2g}, more than the image itself"
    )


def _stability(of: SimpleNamespace) -> str:
    said = f"A small change of the measurements moves the answer by up to {_number(of.sensitivity)} times its size."
    if of.energy_stability < float("inf"):
        said += f" The contraction in the norm of the energy bounds that by {_number(of.energy_stability)}."
    if of.stability < float("inf"):
        return f"{said} The bound of the paper, ||H|| / ((1 - q) lambda_min), is {_number(of.stability)}."
    return (
        f"{said} The bound of the paper, ||H|| / ((1 - q) lambda_min), is vacuous: in the Euclidean norm T does not "
        "contract."
    )


def _uniqueness(of: SimpleNamespace) -> str:
    if of.global_contraction < 1:
        return (
            f"If the smallest eigenvalue of A with the lowest masks is the {_number(of.floor)} that was found, the "
            f"fixed point is the only one: T contracts everywhere, by {_number(of.global_contraction)}."
        )
    why = (
        f"as far as lambda_min(H^T H) is known it holds for lam below {_number(of.unique_below)}, and lam is "
        f"{_number(of.lam)}"
        if of.unique_below > 0
        else f"H does not see all of the image, so it is proven for no small lam (here lam is {_number(of.lam)})"
    )
    return (
        f"That the fixed point is the only one is not proven. The bound is vacuous: {why}. It takes each layer of the "
        "masks at its steepest, and the smallest masks everywhere. So it allows T to make distances "
        f"{_number(of.global_contraction)} times longer."
    )


def _agreement(agreement: Agreement, sample: int, newton: float) -> str:
    apart = agreement.apart[:, sample]
    worst = int(apart.argmax())
    known = float(agreement.distance[worst, sample]) + newton
    count = len(agreement.starts)
    said = (
        f"From {count} other start{'s' * (count > 1)} ({', '.join(agreement.starts)}) the answers are up to "
        f"{float(apart.max()):.1e} apart"
    )
    verdict = (
        "which is within what the runs left open: they may have found one fixed point"
        if float(apart.max()) <= known
        else f"which is more than the runs left open ({known:.1e}): there may be several fixed points"
    )
    y, x, size = agreement.regions[sample]
    share = float(agreement.share[sample])
    where = (
        f" They differ most at y {y}, x {x}, in {size} x {size} pixels, with {share:.0%} of the squared difference."
        if share == share
        else ""
    )
    return f"{said}, {verdict}.{where}"


def _how_sure(steps: int) -> str:
    return (
        f"How sure: all numbers are estimates, by {steps} steps of Lanczos each. Norms may be larger and smallest "
        "eigenvalues smaller than found, so bounds may be larger. What is said about x holds near x, as far as the "
        "derivative of T stays what it is there. It is no proof."
    )


def _number(value: float) -> str:
    return f"{value:.3g}"
