"""What each constant of the fixed-point solver does: others in its place, on fourteen small problems.

    python tools/solver_constants.py [NAME ...]

A row is one constant with one other value: CG iterations in all and outer iterations in all, relative to those of the
shipped value; how many problems did not converge within 150 outer iterations; and how many answers are further from
their fixed point than the tolerance says. The fixed point is the one that a run in
double precision, from zero, to 1e-7, with the shipped constants leads to.
"""

from __future__ import annotations

import importlib
import sys

import torch
from same_answers import columns, gaussian, noisy, picture

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask

TOLERANCE, LIMIT = 1e-3, 150
OTHERS = {
    "fixed_point.LOOSE": (0.2, 0.6),
    "fixed_point.ACCURATE": (0.1, 0.4),
    "fixed_point.BOUNDED": (0.4, 0.6),
    "momentum.MOST": (0.0, 0.5, 0.9),
    "momentum.RAMP": (1.0, 3.0),
    "phases.ROUGH_UNTIL": (5e-4, 1e-2),
    "phases.EARLY": (1.0, 5.0),
    "phases.SMALL_STEPS": (1, 3),
    "phases.TOO_EARLY": (3.0, 30.0),
    "phases.STUCK_WINDOW": (12, 50),
    "phases.STUCK_FACTOR": (0.8, 0.99),
    "distance.MEMORY": (1, 5),
    "distance.ENOUGH": (2, 4),
    "distance.SLOWER": (2.0, 5.0),
    "distance.GROWTH": (0.0, 4.0),
    "distance.SLOWEST": (0.9, 0.99),
    "distance.CAUTION": (2.0, 6.0),
}


def problems() -> list[tuple[torch.Tensor, object, dict[str, float]]]:
    """Measurements, operator and options."""
    found: list[tuple[torch.Tensor, object, dict[str, float]]] = []
    for sigma in (5, 25, 50):
        for name, row in (("camera", 96), ("coins", 40), ("text", 20)):
            found.append((noisy(picture(name, 48, row), sigma), Identity(), {"sigma": sigma / 255}))
    clean = picture(size=48)
    for H, noise in (
        (Blur(gaussian(1.6, 5)), 2.55),
        (Blur(gaussian(1.6, 5), boundary="reflect"), 7.65),
        (Downsample(2, gaussian(1.2, 4)), 2.55),
        (Mask(torch.rand(48, 48, generator=torch.Generator().manual_seed(0)) < 0.4), 5.0),
        (Fourier(columns(48)), 0.5),
    ):
        found.append((noisy(H.forward(clean), noise), H, {"noise": noise / 255}))
    return found


def truths(cases: list) -> list[torch.Tensor]:
    """The fixed points that the shipped constants lead to, in double precision."""
    model = td.load("gray").double()
    return [td.reconstruct(y, H, model=model, tolerance=1e-7, **options).x for y, H, options in cases]


def measure(cases: list, exact: list[torch.Tensor]) -> tuple[int, int, int, int]:
    """CG iterations, outer iterations, runs that did not converge, answers that are too far from the truth."""
    cg = outer = unfinished = wrong = 0
    for (y, H, options), truth in zip(cases, exact, strict=True):
        solution = td.reconstruct(y, H, model="gray", tolerance=TOLERANCE, max_iterations=LIMIT, **options)
        cg, outer = cg + int(solution.cg_iterations), outer + int(solution.iterations)
        unfinished += not solution.converged
        wrong += solution.converged and float((solution.x - truth).norm() / truth.norm()) > TOLERANCE
    return cg, outer, unfinished, wrong


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    cases = problems()
    exact = truths(cases)
    cg, outer, unfinished, wrong = measure(cases, exact)
    print(f"as shipped: {cg} CG and {outer} outer iterations, {unfinished} unfinished, {wrong} wrong of {len(cases)}")
    for name, values in OTHERS.items():
        module_name, constant = name.split(".")
        if names and constant not in names:
            continue
        module = importlib.import_module(f"torchdeal.solvers.{module_name}")
        others = (importlib.import_module(f"torchdeal.solvers.{m}") for m in ("fixed_point", "gathered", "phases"))
        users = [module, *others]
        shipped = getattr(module, constant)
        for value in values:
            for user in users:  # those that imported its name hold it, too
                if hasattr(user, constant):
                    setattr(user, constant, value)
            found = measure(cases, exact)
            print(
                f"{name} {shipped:.3g} -> {value:g}: CG {found[0] / cg - 1:+.0%}, outer {found[1] / outer - 1:+.0%}, "
                f"{found[2]} unfinished, {found[3]} wrong",
                flush=True,
            )
        for user in users:
            if hasattr(user, constant):
                setattr(user, constant, shipped)


if __name__ == "__main__":
    main(sys.argv[1:])
