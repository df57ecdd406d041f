"""`deal mri`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torchdeal.cli.pictures import check_degraded, check_distinct, read_gray, write_gray
from torchdeal.cli.problem import Job, Outcome, Problem, Settings, Solved, Solver, Truth, run, summarise
from torchdeal.cli.shared import (
    SIMULATION,
    AsJson,
    Device,
    DeviceChoice,
    Lam,
    MaxIterations,
    ModelName,
    ModelSigma,
    SaveDegraded,
    Seed,
    Simulate,
    Tolerance,
    device_name,
    progress_bar,
    reporter,
)
from torchdeal.io import files
from torchdeal.mri import (
    KSpace,
    centre_crop,
    check_result_path,
    espirit_maps,
    estimate_noise,
    read_kspace,
    write_image,
)
from torchdeal.operators import Fourier, MultiCoilFourier, Operator
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE
from torchdeal.simulate import measure, random_columns

SIMULATED_SIGMA = 0.002  # of a picture in 0..1, as in the experiments of the paper
ESPIRIT = "espirit"

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal mri scan.h5 knee.png[/bold]   (the middle slice; maps and noise are estimated)\n\n"
    "[bold]deal mri kspace.npz image.nii.gz --slice all --sigma 1e-6[/bold]\n\n"
    "[bold]deal mri clean.png image.png --simulate --acceleration 4 --save-degraded zero_filled.png[/bold]"
)


def mri(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Cartesian k-space: fastMRI .h5, ISMRMRD .h5 or .mrd, .npy, or .npz with kspace, mask and maps; "
            "with --simulate a picture.",
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The magnitude: .png (maximum is white), .tif, .npy, .nii, .nii.gz.")
    ],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise in the real and in the imaginary part, in the units of the k-space. "
            "Default: estimated; 0.002 with --simulate, where white is 1."
        ),
    ] = None,
    slice_index: Annotated[
        str, typer.Option("--slice", metavar="SLICE", help="A number from 0, middle, or all (.tif, .npy, .nii).")
    ] = "middle",
    maps: Annotated[
        str | None,
        typer.Option(
            metavar="MAPS",
            help="Coil sensitivities: espirit, or a file (.npy, complex, of the shape of the k-space). "
            "Default: those in FILE, else espirit.",
        ),
    ] = None,
    real: Annotated[
        bool | None,
        typer.Option("--real/--complex", help="What the image is. Default: complex; real with --simulate."),
    ] = None,
    crop: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Middle part to write, such as 320 or 320x256, or none. Default: what FILE says."
        ),
    ] = None,
    corner: Annotated[
        bool, typer.Option("--corner", help="In .npy and .npz the zero frequency is at [0, 0], not in the middle.")
    ] = False,
    acceleration: Annotated[
        float, typer.Option(rich_help_panel=SIMULATION, help="One of so many columns is measured, at random.")
    ] = 4.0,
    centre: Annotated[
        float, typer.Option(rich_help_panel=SIMULATION, help="The share of columns that is measured in the middle.")
    ] = 0.08,
    lam: Lam = None,
    model_sigma: ModelSigma = None,
    model: ModelName = None,
    device: DeviceChoice = Device.auto,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    max_iterations: MaxIterations = DEFAULT_MAX_ITERATIONS,
    simulate: Simulate = False,
    seed: Seed = 0,
    save_degraded: SaveDegraded = None,
    as_json: AsJson = False,
) -> None:
    """Reconstruct an image from undersampled k-space, of one coil or several."""
    settings = Settings(
        sigma=sigma,
        lam=lam,
        model_sigma=model_sigma,
        model=model,
        device=device_name(device),
        tolerance=tolerance,
        max_iterations=max_iterations,
        simulate=simulate,
        seed=seed,
        save_degraded=save_degraded,
        quiet=as_json,
    )
    size = _crop_size(crop)
    check_result_path(target)
    check_distinct(source, target)
    check_degraded(save_degraded, source, target)

    def problems() -> list[Problem]:
        if simulate:
            picture = read_gray(source)
            sampled = random_columns((picture.shape[-2], picture.shape[-1]), acceleration, centre, seed)
            return [_simulated(picture, Fourier(sampled, centered=True, real=real is not False), settings)]
        scan = read_kspace(source, index=_index(slice_index), centered=not corner)
        return _measured(scan, maps, bool(real), size if crop else scan.image_size, sigma)

    run([(source, target)], lambda job: _reconstruct(job, problems, Solver(settings)), as_json)


def _reconstruct(job: Job, problems: Callable[[], list[Problem]], solver: Solver) -> Outcome:
    started, settings = time.perf_counter(), solver.settings
    source, target = job
    solved: list[Solved] = []
    with progress_bar(settings.quiet) as progress:
        posed = problems()
        for index, problem in enumerate(posed):
            label = source.name if len(posed) == 1 else f"{source.name} {index + 1}/{len(posed)}"
            solved.append(solver.solve(problem, reporter(progress, label, settings.tolerance)))
    truth = posed[0].truth
    if truth is None:
        write_image(target, torch.cat([frame.x for frame in solved]))
    elif target.suffix.lower() in files.SUFFIXES:
        write_gray(target, solved[0].x)
    else:
        write_image(target, solved[0].x)
    if truth is not None and settings.save_degraded:
        write_gray(settings.save_degraded, truth.degraded)
    return summarise(job, solved, settings, started)


def _simulated(picture: Tensor, H: Fourier, settings: Settings) -> Problem:
    noise = SIMULATED_SIGMA if settings.sigma is None else settings.sigma
    y = measure(picture, H, noise, settings.seed)
    truth = Truth(picture, H.adjoint(y).abs(), "zero-filled", 1.0)
    return Problem(y, H, noise, white=1.0, keep=torch.abs, truth=truth)


def _measured(
    scan: KSpace, maps: str | None, real: bool, size: tuple[int, int] | None, sigma: float | None
) -> list[Problem]:
    """A problem for each slice."""
    noise = estimate_noise(scan.kspace, scan.mask, centered=scan.centered) if sigma is None else sigma

    def keep(x: Tensor) -> Tensor:
        return centre_crop(x.abs(), size) if size else x.abs()

    slices = scan.kspace if scan.kspace.ndim == 4 else scan.kspace[None]
    given = _given_maps(maps, scan)
    problems = []
    for index, kspace in enumerate(slices):
        own = given[index] if given is not None and given.ndim == 4 else given
        H = _operator(kspace, replace(scan, maps=own), real)
        problems.append(Problem(kspace[None], H, noise, estimated=sigma is None, keep=keep))
    return problems


def _operator(kspace: Tensor, scan: KSpace, real: bool) -> Operator:
    if len(kspace) == 1 and scan.maps is None:
        return Fourier(scan.mask, centered=scan.centered, real=real)
    maps = scan.maps if scan.maps is not None else espirit_maps(kspace, scan.mask, centered=scan.centered)
    return MultiCoilFourier(maps, scan.mask, centered=scan.centered, real=real)


def _given_maps(maps: str | None, scan: KSpace) -> Tensor | None:
    """From a file, or None where they are to be estimated."""
    if maps is None:
        return scan.maps
    if maps == ESPIRIT:
        return None
    path = Path(maps)
    if not path.is_file():
        raise ValueError(f"{maps}: no such file; give --maps a file, or {ESPIRIT}")
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{maps}: not a readable .npy file ({error})") from None
    shape = tuple(scan.kspace.shape)
    if not isinstance(values, np.ndarray) or values.shape not in (shape, shape[-3:]):
        raise ValueError(f"{maps}: the maps must have the shape of the k-space, {shape}, got {np.shape(values)}")
    return torch.from_numpy(values.astype(np.complex64))


def _index(text: str) -> int | str:
    if text in ("middle", "all"):
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--slice must be a number, middle or all, not {text}") from None


def _crop_size(text: str | None) -> tuple[int, int] | None:
    if text is None or text == "none":
        return None
    try:
        numbers = [int(number) for number in text.lower().split("x")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise ValueError(f"--crop must be a size, such as 320 or 320x256, or none, not {text}")
    return numbers[0], numbers[-1]
