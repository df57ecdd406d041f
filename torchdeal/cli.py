"""The command `deal`: parse, call the library, show."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import torchdeal
from torchdeal import files, solvers
from torchdeal.benchmark import common, denoising, report, results, speed
from torchdeal.checkpoint import BUNDLED, bundled_path, card, load
from torchdeal.images import to_tensor
from torchdeal.model import DEAL
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.solvers import Solution, Status
from torchdeal.tuning import estimate_sigma

app = typer.Typer(
    name="deal",
    help="Image reconstruction by deep attentive least squares (DEAL).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
benchmark = typer.Typer(help="Measure, on this machine, what the documents claim.", no_args_is_help=True)
app.add_typer(benchmark, name="benchmark")
messages = Console(stderr=True, highlight=False, soft_wrap=True)
output = Console(highlight=False)


JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write all results as JSON; - prints them instead.")
]
FromFile = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="Show the results in a --json file; measure nothing.")
]


class Device(str, Enum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class Kind(str, Enum):
    """Which of the bundled pictures and weights."""

    gray = "gray"
    color = "color"


@dataclass(frozen=True)
class Settings:
    """What the options of a command say, for every file alike."""

    sigma: float | None
    model: str | None
    device: str
    tolerance: float
    max_iterations: int
    channelwise: bool
    data_range: float | None
    quiet: bool


@dataclass(frozen=True)
class Outcome:
    """One processed file, as the closing line and `--json` report it. Noise levels are on the 0..255 scale."""

    input: str
    output: str
    model: str
    device: str
    sigma: float
    status: str
    converged: bool
    iterations: int
    cg_iterations: int
    distance: float | None  # None: not known
    seconds: float


def _print_version(asked: bool) -> None:
    if asked:
        print(f"torchdeal {torchdeal.__version__}")
        raise typer.Exit


@app.callback()
def deal(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Image reconstruction by deep attentive least squares (DEAL)."""


@app.command(
    epilog="Examples:\n\n"
    "[bold]deal denoise noisy.png clean.png --sigma 25[/bold]\n\n"
    "[bold]deal denoise photos/ denoised/[/bold]   (a folder; the noise level is estimated)\n\n"
    "[bold]deal denoise a.tif b.tif out/ --sigma 10 --json[/bold]"
)
def denoise(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="IN... OUT", help="Images or folders, then the output: a file, or a folder for several."
        ),
    ],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise on the 0..255 scale, whatever the bit depth. Default: estimated."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="gray, color, or a weights file (.safetensors, .pth). Default: by the channels of the image."
        ),
    ] = None,
    device: Annotated[Device, typer.Option(help="auto takes CUDA where there is one.")] = Device.auto,
    tolerance: Annotated[
        float, typer.Option(help="Stop when the estimated relative distance to the fixed point is below this.")
    ] = DEFAULT_TOLERANCE,
    max_iterations: Annotated[int, typer.Option(min=1, help="Outer iterations at most.")] = DEFAULT_MAX_ITERATIONS,
    channelwise: Annotated[
        bool, typer.Option("--channelwise", help="Apply a gray model to each channel of a colour image.")
    ] = False,
    data_range: Annotated[
        float | None,
        typer.Option(help="The value of white, for floating-point files that are not in 0..1."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON report instead of text.")] = False,
) -> None:
    """Remove white Gaussian noise from images (PNG, JPEG, WebP, TIFF, npy; 8 bit, 16 bit, float)."""
    jobs = _plan(paths)
    settings = Settings(
        sigma, model, _device(device), tolerance, max_iterations, channelwise, data_range, quiet=as_json
    )
    models: dict[str, DEAL] = {}
    outcomes: list[Outcome] = []
    failures: dict[str, str] = {}
    with _interruptible():
        for source, target in jobs:
            try:
                outcome = _denoise_file(source, target, settings, models)
            except (files.ImageFileError, ValueError, TypeError, FileNotFoundError) as error:
                if len(jobs) == 1 and not as_json:
                    raise
                failures[str(source)] = str(error)
                _complain("Error", f"{source}: {error}" if str(source) not in str(error) else str(error))
                continue
            outcomes.append(outcome)
            _show(outcome, quiet=as_json)
    if as_json:
        print(json.dumps({"results": [asdict(o) for o in outcomes], "failures": failures}, indent=2))
    if failures:
        _complain("Error", f"{len(failures)} of {len(jobs)} images failed")
        raise typer.Exit(1)


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    """Show versions, devices, and the bundled weights with their cards."""
    facts = _environment()
    cards = _cards()
    if as_json:
        print(json.dumps({**facts, "weights": cards}, indent=2))
        return
    table = Table.grid(padding=(0, 2))
    for key, value in facts.items():
        table.add_row(f"[bold]{key}[/bold]", str(value))
    output.print(table)
    for name, content in cards.items():
        output.print(f"\n[bold]weights {name}[/bold]")
        table = Table.grid(padding=(0, 2))
        for key, value in content.items():
            text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            table.add_row(f"  {key}", text)
        output.print(table)


@app.command(
    epilog="Examples:\n\n"
    "[bold]deal train configs/gray.toml --data images/ --output run[/bold]\n\n"
    "[bold]deal train mine.toml --from gray --output run[/bold]   (fine-tune the bundled weights)\n\n"
    "[bold]deal train mine.toml --output run --resume[/bold]   (go on where a run was stopped)\n\n"
    "[bold]torchrun --nproc-per-node 4 -m torchdeal.training mine.toml --output run[/bold]   (several GPUs)"
)
def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="All settings; see configs/ and docs/training.md.")
    ],
    folder: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="For checkpoints, weights and the log.")],
    start: Annotated[
        str | None, typer.Option("--from", help="Weights to start from: gray, color, or a file. Default: new ones.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the output folder.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Where the paths in the config begin. Default: the folder of the config.")
    ] = None,
    device: Annotated[Device, typer.Option(help="auto takes CUDA where there is one.")] = Device.auto,
    seconds: Annotated[float | None, typer.Option(help="Stop after this long, to be resumed.")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard logs, to FOLDER/tensorboard.")
    ] = False,
) -> None:
    """Train weights, or fine-tune those that exist, for denoising or another task."""
    from torchdeal import training
    from torchdeal.training.board import Board
    from torchdeal.training.terminal import Display, joined

    options = training.Options(config, folder, start, resume, _device(device), seconds=seconds, data=data)
    board = Board(folder / "tensorboard") if tensorboard else None
    with Display(messages) as display, contextlib.closing(board) if board else contextlib.nullcontext():
        listeners = [display.listener()] + ([board.listener()] if board else [])
        try:
            progress, reason = training.train(options, joined(*listeners))
        except training.DivergedError as error:
            raise ValueError(str(error)) from None
    if reason:
        _complain("Stopped", f"at step {progress.step} ({reason}); go on with --resume")
        raise typer.Exit({"SIGTERM": 143, "SIGINT": 130}.get(reason, 0))
    output.print(
        f"{folder / 'last.safetensors'}: {progress.step} steps, {progress.seconds / 60:.1f} minutes", markup=False
    )
    if progress.best_psnr is not None:
        best = f"best on the validation images at step {progress.best_step}, {progress.best_psnr:.3f} dB"
        output.print(f"{folder / 'best.safetensors'}: {best}", markup=False)


@benchmark.command(
    "speed",
    epilog="Examples:\n\n"
    "[bold]deal benchmark speed --size 128 --json speed.json --plot speed.png[/bold]\n\n"
    "[bold]deal benchmark speed --methods ours,default --size 64 --size 128 --size 256[/bold]\n\n"
    "[bold]deal benchmark speed --from speed.json[/bold]   (show earlier results; measures nothing)",
)
def benchmark_speed(
    size: Annotated[
        list[int] | None,
        typer.Option(help="Height and width, may be repeated. Default: 128 256, on CUDA 128 512 1024 2048."),
    ] = None,
    kind: Annotated[list[Kind] | None, typer.Option(help="May be repeated. Default: gray.")] = None,
    sigma: Annotated[
        list[float] | None, typer.Option(help="Noise level on the 0..255 scale, may be repeated. Default: 25.")
    ] = None,
    device: Annotated[Device, typer.Option(help="auto takes CUDA where there is one.")] = Device.auto,
    model: Annotated[
        str | None, typer.Option(help="gray, color, or a weights file, for all methods. Default: that of the kind.")
    ] = None,
    image: Annotated[
        Path | None, typer.Option(help="A picture in place of scikit-image's camera (gray) and astronaut (color).")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Runs of ours.")] = 3,
    baseline_repeats: Annotated[int, typer.Option(help="Runs of each reference: they take minutes.")] = 1,
    methods: Annotated[str, typer.Option(help="Comma-separated, to leave some out.")] = ",".join(results.METHODS),
    threads: Annotated[int | None, typer.Option(help="CPU threads. Default: those of torch.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Stop a reference after this long; its ratios are then lower bounds.")
    ] = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="Do not measure memory.")] = False,
    truth_tolerance: Annotated[
        float,
        typer.Option(help="Tolerance of the fixed point that distances refer to. 1e-3 is enough for times and memory."),
    ] = speed.TRUTH_TOLERANCE,
    json_file: JsonFile = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw distance against time (.png, .pdf, .svg).")
    ] = None,
    from_file: FromFile = None,
) -> None:
    """Time to a given distance from the fixed point, ours beside the method as the paper writes it."""
    save = _saver(json_file, results.to_json)
    if plot_file:
        report.check_plot(plot_file)
    if from_file:
        measured, settings = results.from_json(from_file)
        save(measured, settings)
    else:
        plan = speed.Plan(
            sizes=tuple(size or ()),
            kinds=tuple(k.value for k in kind or [Kind.gray]),
            sigmas=tuple(sigma or [25.0]),
            device=_device(device),
            model=model,
            image=image,
            repeats=repeats,
            baseline_repeats=baseline_repeats,
            methods=speed.parse_methods(methods),
            threads=threads,
            max_seconds=max_seconds,
            memory=not no_memory,
            truth_tolerance=truth_tolerance,
        )
        with _interruptible(_kept(json_file)):
            measured, settings = speed.measure(plan, lambda line: messages.print(line, markup=False), save)
    if json_file == "-":
        print(results.to_json(measured, settings))
    else:
        report.show(measured, settings, _table_console())
    if plot_file:
        report.plot(measured, settings, plot_file)


@benchmark.command(
    "denoising",
    epilog="Examples:\n\n"
    "[bold]deal benchmark denoising BSD68 --json bsd68.json[/bold]\n\n"
    "[bold]deal benchmark denoising CBSD68 --crop 256 --sigma 25 --limit 10[/bold]\n\n"
    "[bold]deal benchmark denoising --from bsd68.json[/bold]   (show earlier results; measures nothing)",
)
def benchmark_denoising(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Clean images; they are taken in the order of their names.")
    ] = None,
    sigma: Annotated[
        list[float] | None, typer.Option(help="Noise level on the 0..255 scale, may be repeated. Default: 5 15 25.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="gray, color, or a weights file. Default: by the channels of the first image."),
    ] = None,
    device: Annotated[Device, typer.Option(help="auto takes CUDA where there is one.")] = Device.auto,
    crop: Annotated[int | None, typer.Option(help="Side of the square to take from the centre of each image.")] = None,
    tolerance: Annotated[
        float, typer.Option(help="On the estimated relative distance to the fixed point.")
    ] = DEFAULT_TOLERANCE,
    max_iterations: Annotated[int, typer.Option(help="Outer iterations at most.")] = DEFAULT_MAX_ITERATIONS,
    limit: Annotated[int | None, typer.Option(help="Take only the first so many images.")] = None,
    starts: Annotated[
        int, typer.Option(help="Reconstruct the first so many images also from the noisy image, and compare.")
    ] = 0,
    threads: Annotated[int | None, typer.Option(help="CPU threads. Default: those of torch.")] = None,
    json_file: JsonFile = None,
    from_file: FromFile = None,
) -> None:
    """Mean PSNR over a folder of images with noise added, by the protocol of the paper, and how the runs went."""
    save = _saver(json_file, denoising.to_json)
    if from_file:
        levels, settings = denoising.from_json(from_file)
        save(levels, settings)
    elif folder:
        plan = denoising.Plan(
            folder=folder,
            sigmas=tuple(sigma or denoising.SIGMAS),
            model=model,
            device=_device(device),
            crop=crop,
            tolerance=tolerance,
            max_iterations=max_iterations,
            limit=limit,
            starts=starts,
            threads=threads,
        )
        with _interruptible(_kept(json_file)):
            levels, settings = denoising.measure(plan, lambda line: messages.print(line, markup=False), save)
    else:
        raise ValueError("give a folder of clean images: deal benchmark denoising FOLDER")
    if json_file == "-":
        print(denoising.to_json(levels, settings))
    else:
        report.show_denoising(levels, settings, _table_console())


def main() -> None:
    """Entry point: every foreseeable failure becomes one line on stderr and a non-zero exit."""
    warnings.showwarning = lambda message, *_, **__: _complain("Warning", str(message))
    try:
        app()
    except Exception as error:
        if not _is_foreseeable(error):
            raise
        _complain("Error", str(error))
        sys.exit(1)


def _saver(json_file: str | None, to_json: Callable[[Any, dict[str, Any]], str]) -> Callable[[Any, dict], None]:
    """Writes results to the file of --json, if there is one; raises now if it could not."""
    if json_file in (None, "-"):
        return lambda results, settings: None
    path = Path(json_file)
    common.check_output(path)
    return lambda results, settings: common.write_text(path, to_json(results, settings))


def _kept(json_file: str | None) -> str:
    """What an interrupted benchmark leaves."""
    return "nothing was kept" if json_file in (None, "-") else "what was finished before is in the --json file"


def _table_console() -> Console:
    """A pipe or a file has no width of its own: do not cut tables there."""
    return output if output.is_terminal else Console(highlight=False, width=120)


@contextmanager
def _interruptible(left: str = "files that were not finished are as they were") -> Iterator[None]:
    """Ctrl-C ends with one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        _complain("Interrupted", left)
        raise typer.Exit(130) from None


def _is_foreseeable(error: Exception) -> bool:
    memory = type(error).__name__ == "OutOfMemoryError" or "not enough memory" in str(error)
    return memory or isinstance(error, (files.ImageFileError, ValueError, TypeError, OSError, MemoryError))


def _complain(kind: str, text: str) -> None:
    colour = {"Warning": "yellow"}.get(kind, "red")
    messages.print(f"[bold {colour}]{kind}:[/bold {colour}] ", end="")
    messages.print(text, markup=False)


def _plan(paths: list[Path]) -> list[tuple[Path, Path]]:
    """Which file goes where; raises before any work is done if something cannot be."""
    if len(paths) < 2:
        raise ValueError("give at least one input and then the output: deal denoise IN... OUT")
    *inputs, out = paths
    sources = [file for path in inputs for file in _expand(path)]
    to_folder = len(sources) > 1 or inputs[0].is_dir() or out.is_dir()
    if to_folder and out.exists() and not out.is_dir():
        raise ValueError(f"{out}: there are several inputs, so the output must be a folder")
    targets = [out / source.name if to_folder else out for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if targets.count(target) > 1:
            raise ValueError(f"{target}: two inputs have this name; write them to different folders")
        if target.exists() and any(other.exists() and target.samefile(other) for other in sources):
            raise ValueError(f"{target}: would overwrite the input; choose another output")
        if not source.is_file():
            raise FileNotFoundError(f"{source}: no such file")
        files.check_format(target)
    if to_folder and not out.exists():
        if not out.parent.is_dir():
            raise FileNotFoundError(f"{out}: the folder {out.parent} does not exist; create it first")
        out.mkdir()
    for target in targets:
        files.check_writable(target)
    return list(zip(sources, targets, strict=True))


def _expand(path: Path) -> list[Path]:
    """The images in a folder, or the path itself."""
    if not path.is_dir():
        return [path]
    images = sorted(p for p in path.iterdir() if p.suffix.lower() in files.SUFFIXES and p.is_file())
    if not images:
        raise ValueError(f"{path}: no images in this folder ({', '.join(files.SUFFIXES)})")
    return images


def _device(choice: Device) -> str:
    if choice is Device.auto:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if choice is Device.cuda and not torch.cuda.is_available():
        raise ValueError("no CUDA device is available: use --device cpu")
    if choice is Device.mps and not torch.backends.mps.is_available():
        raise ValueError("no MPS device is available: use --device cpu")
    return choice.value


def _denoise_file(source: Path, target: Path, settings: Settings, models: dict[str, DEAL]) -> Outcome:
    started = time.perf_counter()
    image = files.read(source)
    model = _model_for(image, settings, models)
    solutions: list[Solution] = []
    levels: list[float] = []
    frames = _frames(image)
    with _progress(settings.quiet) as progress:
        for index, frame in enumerate(frames):
            label = source.name if len(frames) == 1 else f"{source.name} {index + 1}/{len(frames)}"
            callback = _reporter(progress, label, settings.tolerance)
            solution, level = _denoise_frame(frame, models[model], settings, callback)
            solutions.append(solution)
            levels.append(level)
    pixels = np.stack([s.x for s in solutions]) if image.pixels.ndim == 4 else solutions[0].x
    files.write(target, replace(image, pixels=pixels, white=settings.data_range or 1.0))
    worst = max(solutions, key=lambda s: (not s.converged, float(s.distance.max())))
    return Outcome(
        input=str(source),
        output=str(target),
        model=model,
        device=settings.device,
        sigma=round(sum(levels) / len(levels), 3),
        status=worst.status.name,
        converged=worst.converged,
        iterations=sum(int(s.iterations.max()) for s in solutions),
        cg_iterations=sum(int(s.cg_iterations.max()) for s in solutions),
        distance=_known(float(worst.distance.max())),
        seconds=round(time.perf_counter() - started, 3),
    )


def _model_for(image: files.ImageFile, settings: Settings, models: dict[str, DEAL]) -> str:
    """The name of the model for the image, which is loaded on first use."""
    has_colour = image.pixels.ndim > 2 and image.pixels.shape[-1] in (3, 4) and not settings.channelwise
    name = settings.model or ("color" if has_colour else "gray")
    if name not in models:
        models[name] = load(name, device=settings.device)
    return name


def _denoise_frame(frame: np.ndarray, model: DEAL, settings: Settings, callback: Callable) -> tuple[Solution, float]:
    """The solution, and the noise level on the 0..255 scale."""
    unit = to_tensor(frame, data_range=settings.data_range)[1].data_range / 255
    if settings.sigma is not None:
        sigma = settings.sigma * unit
    else:
        sigma = estimate_sigma(frame, data_range=settings.data_range)[0]
    solution = reconstruct(
        frame,
        model=model,
        sigma=sigma,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
        channelwise=settings.channelwise,
        data_range=settings.data_range,
        callback=callback,
    )
    return solution, sigma / unit


def _frames(image: files.ImageFile) -> list[np.ndarray]:
    """The images of a stack one by one: their masks would not fit into memory together."""
    return list(image.pixels) if image.pixels.ndim == 4 else [image.pixels]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _progress(quiet: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("iteration {task.fields[iteration]}  residual {task.fields[residual]:.1e}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=messages, transient=True, disable=quiet or not messages.is_terminal)


def _reporter(progress: Progress, label: str, tolerance: float) -> Callable[[solvers.Progress], None]:
    """A callback that moves the bar: full when the residual, on a log scale, is well below the tolerance."""
    task = progress.add_task(escape(label), total=1.0, iteration=0, residual=1.0)
    goal = math.log(min(max(0.1 * tolerance, 1e-12), 0.1))

    def report(state: solvers.Progress) -> None:
        residual = float(state.residual.nan_to_num(0).max())
        done = math.log(residual) / goal if residual > 0 else 1.0
        progress.update(task, completed=min(max(done, 0.0), 0.99), iteration=state.iteration, residual=residual)

    return report


def _show(outcome: Outcome, quiet: bool) -> None:
    distance = "unknown" if outcome.distance is None else f"{outcome.distance:.1e}"
    if not quiet:
        output.print(
            f"{outcome.output}: sigma {outcome.sigma:g}, {outcome.iterations} iterations ({outcome.cg_iterations} CG), "
            f"{outcome.status}, distance to the fixed point {distance}, {outcome.seconds:.1f} s",
            soft_wrap=True,
            markup=False,
        )
    if not outcome.converged:
        remedy = str(Status[outcome.status]).replace("max_iterations", "--max-iterations")
        _complain("Warning", f"{outcome.output} did not converge. {remedy}")


def _environment() -> dict[str, str]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "torchdeal": torchdeal.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": str(torch.get_num_threads()),
        "cuda": gpu,
        "mps": "yes" if torch.backends.mps.is_available() else "none",
    }


def _cards() -> dict[str, dict[str, Any]]:
    cards = {}
    for name in BUNDLED:
        content = card(name)
        intact = hashlib.sha256(bundled_path(name).read_bytes()).hexdigest() == content["sha256"]
        cards[name] = {"file": str(bundled_path(name)), **content, "intact": "yes" if intact else "NO: reinstall"}
    return cards
