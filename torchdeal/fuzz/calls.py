"""Random calls of `reconstruct`: odd arrays, odd numbers, and operators with a flaw."""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

import torchdeal as td
from torchdeal.fuzz.commands import FaultError
from torchdeal.fuzz.inputs import DTYPES, ODD_DTYPES, Array, any_array, array
from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask, Operator, Radon
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.simulate import measure, random_columns

PACKAGE = str(Path(td.__file__).parent)
FLAWS = ("nan forward", "nan adjoint", "nan later", "numpy", "none", "shape", "adjoint", "zero")
TOLERANCE = 1e-3  # the default
OPERATORS: dict[str, Callable[[int, int], Operator]] = {
    "identity": lambda height, width: Identity(),
    "blur": lambda height, width: Blur(gaussian_kernel(0.8), "circular"),
    "reflecting blur": lambda height, width: Blur(gaussian_kernel(0.8), "reflect"),
    "mask": lambda height, width: Mask(torch.arange(height * width).view(height, width) % 3 > 0),
    "shrink": lambda height, width: Downsample(2, gaussian_kernel(0.6), "reflect"),
    "fourier": lambda height, width: Fourier(random_columns((height, width), 2.0, 0.2, 0), centered=True),
    "radon": lambda height, width: Radon(np.arange(12) * 15.0, (height, width)),
    "scaled": lambda height, width: 1e4 * Blur(gaussian_kernel(0.6), "circular"),
}
GAINS = (1e-15, 1e-12, 1e-6, 1e-3, 1e3, 1e6, 1e12, 1e15)
NUMBERS: tuple[tuple[tuple[str, float], ...], ...] = ((("noise", 0.05),), (("sigma", 0.1), ("lam", 0.5)))
ODD_NUMBERS = (0.0, -1.0, math.nan, math.inf, 1e30, 1e-30, "x", (0.1, 0.2), None)
SLACK = 10.0  # the distance is an estimate: how much more than the tolerance it may be
SAME = 2e-3  # relative: what rounding makes of a few iterations


class Flawed:
    """A local mean, times a gain, and what users do wrong."""

    def __init__(self, flaw: str, gain: float):
        self.flaw, self.gain, self.calls, self.struck = flaw, gain, 0, False

    def forward(self, x: Tensor) -> Any:
        return self._spoilt("forward", self.gain * self._mean(x))

    def adjoint(self, y: Tensor) -> Any:
        factor = 1.1 if self.flaw == "adjoint" else 1.0
        shift = 1 if self.flaw == "adjoint" else 0
        return self._spoilt("adjoint", factor * self.gain * self._mean(y).roll(shift, -1))

    def _mean(self, x: Tensor) -> Tensor:
        """Circular, and so its own adjoint."""
        return (x + x.roll(1, -1) + x.roll(-1, -1)) / 3

    def _spoilt(self, which: str, x: Tensor) -> Any:
        self.calls += 1
        if self.flaw == "zero":
            return torch.zeros_like(x)
        if self.flaw == f"nan {which}" or (self.flaw == "nan later" and self.calls > 40):
            x, self.struck = x.clone(), True
            x[..., 0, 0] = torch.nan
        return {"numpy": x.numpy, "none": lambda: None, "shape": lambda: x[..., :-1]}.get(self.flaw, lambda: x)()


@dataclass(frozen=True)
class Call:
    """The arguments of `reconstruct`, as they can be written down."""

    image: Array
    as_torch: bool
    operator: str
    gain: float
    numbers: tuple[tuple[str, Any], ...]
    iterations: int

    def __str__(self) -> str:
        numbers = ", ".join(f"{name}={value}" for name, value in self.numbers)
        kind = "torch" if self.as_torch else "numpy"
        operator = f"{self.operator or 'no operator'} x {self.gain:g}"
        return f"reconstruct({kind} {self.image}, {operator}, {numbers}, max_iterations={self.iterations})"


def check(call: Call) -> str:
    """Make the call; raises FaultError for what must not happen. Returns how it ended."""
    y = _measurements(call)
    kept = y.clone() if isinstance(y, Tensor) else y.copy()
    operator = _operator(call)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = td.reconstruct(y, operator, model=_model(), max_iterations=call.iterations, **dict(call.numbers))
    except (ValueError, TypeError, ArithmeticError) as error:
        _check_error(error)
        return "refused"
    except Exception as error:
        raise FaultError(f"{type(error).__name__}: {error}") from error
    if not _same(y, kept):
        raise FaultError("the measurements were changed")
    if isinstance(operator, Flawed) and operator.flaw and (operator.flaw != "nan later" or operator.struck):
        raise FaultError(f"a flaw of the operator was not noticed: {operator.flaw}")
    _check_solution(call, y, solution)
    return solution.status.name


def _measurements(call: Call) -> Any:
    array = call.image.build()
    if call.operator and array.dtype.kind == "f":
        array = array * call.gain
    if not call.as_torch:
        return array
    try:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
    except TypeError:  # torch has no such dtype
        return array
    return tensor[None, None] if tensor.ndim == 2 else tensor


def _operator(call: Call) -> Any:
    return Flawed(call.operator.removeprefix("own").strip(), call.gain) if call.operator else None


def _check_error(error: Exception) -> None:
    """Said by the package, in words of its own."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    if not last.filename.startswith(PACKAGE) or last.filename.endswith("calls.py"):
        raise FaultError(f"an error from {Path(last.filename).name}: {error}") from error
    if not str(error):
        raise FaultError(f"{type(error).__name__} without a word") from error


def _check_solution(call: Call, y: Any, solution: td.Solution) -> None:
    x = solution.x
    same_dtype = x.dtype == y.dtype or (call.operator and "float" not in call.image.dtype)  # measurements, no images
    if type(x) is not type(y) or not same_dtype or x.shape != y.shape:
        raise FaultError(f"{type(y).__name__} {tuple(y.shape)} {y.dtype} became {tuple(x.shape)} {x.dtype}")
    values = np.asarray(x)
    if not np.isfinite(values).all():
        raise FaultError(f"NaN in the result, {solution.status.name}")
    if not solution.converged:
        return
    if not bool((solution.distance <= dict(call.numbers).get("tolerance", TOLERANCE)).all()):
        raise FaultError(f"converged at a distance of {solution.distance}")
    if not values.any() and np.asarray(y).any() and call.image.content != "extreme":
        raise FaultError("converged to zeros")


def check_truth(call: Call) -> str:
    """A run that says it has converged is where a much longer one ends."""
    height, width = call.image.shape
    H = OPERATORS[call.operator](height, width)
    truth = torch.from_numpy(call.image.build())[None, None]
    noise = dict(call.numbers)["noise"]
    y = measure(truth, H, noise, call.image.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = td.reconstruct(y, H, model=_model(), noise=noise, max_iterations=call.iterations, data_range=1.0)
        if not first.converged:
            return first.status.name
        options = {"tolerance": TOLERANCE / 100, "max_iterations": 300, "data_range": 1.0}
        second = td.reconstruct(y, H, model=_model(), noise=noise, start=first.x, **options)
    distance = float((second.x - first.x).norm() / second.x.norm())
    if distance > SLACK * TOLERANCE:
        raise FaultError(f"said to be within {TOLERANCE:g} of the fixed point, but {distance:.1e} away")
    return "CONVERGED"


def check_gain(call: Call) -> str:
    """An operator of any gain gives the image that one of gain 1 gives."""
    one, other = (_image_at_gain(call, gain) for gain in (1.0, call.gain))
    distance = np.linalg.norm(other - one) / np.linalg.norm(one)
    if not distance <= SAME:
        raise FaultError(f"with a gain of {call.gain:g} the image is {distance:.1e} away")
    return "the same image"


def _image_at_gain(call: Call, gain: float) -> np.ndarray:
    scaled = replace(call, gain=gain, numbers=_at_gain(call.numbers, gain))
    options = {"model": _model(), "data_range": 1.0, "max_iterations": call.iterations, **dict(scaled.numbers)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            solution = td.reconstruct(_measurements(scaled), _operator(scaled), **options)
        except ValueError as error:
            raise FaultError(f"with a gain of {gain:g}: {error}") from error
    return np.asarray(solution.x, dtype=np.float64)


def _at_gain(numbers: tuple[tuple[str, Any], ...], gain: float) -> tuple[tuple[str, Any], ...]:
    """The noise and lam that say the same of measurements that are `gain` times as large."""
    factors = {"noise": gain, "lam": gain**2}
    return tuple((name, value * factors.get(name, 1.0)) for name, value in numbers)


@cache
def _model() -> td.DEAL:
    return td.load("gray-light")


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one).tobytes(), np.asarray(other).tobytes()))


def any_call(random: Random) -> Call:
    """Sound but for one thing, which may be sound as well."""
    odd = random.choice(["nothing", "image", "dtype", "operator", "number"])
    image = any_array(random) if odd == "image" else array(random, ODD_DTYPES if odd == "dtype" else DTYPES)
    operator = f"own {random.choice(FLAWS)}" if odd == "operator" else random.choice(["", "own"])
    numbers: dict[str, Any] = dict(random.choice(NUMBERS))
    if odd == "number":
        numbers[random.choice(["sigma", "lam", "noise", "tolerance"])] = random.choice(ODD_NUMBERS)
    as_torch, iterations = random.random() < 0.5, random.choice([1, 3, 60])
    return Call(image, as_torch, operator, 1.0, tuple(numbers.items()), iterations)


def truth_call(random: Random) -> Call:
    """A sound one, with an operator of the package."""
    sizes = random.choice([16, 18, 24]), random.choice([16, 18, 24])
    image = Array(sizes, "float32", random.choice(["smooth", "noise"]), random.randrange(2**16))
    numbers = (("noise", random.choice([0.01, 0.05, 0.1])),)
    return Call(image, True, random.choice(sorted(OPERATORS)), 1.0, numbers, 100)


def gain_call(random: Random) -> Call:
    """A sound one, at any gain."""
    sizes = random.randint(8, 34), random.randint(8, 34)
    image = Array(sizes, random.choice(["float32", "float64"]), "smooth", random.randrange(2**16))
    return Call(image, True, "own", random.choice(GAINS), random.choice(NUMBERS), random.choice([2, 8]))
