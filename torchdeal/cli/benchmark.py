"""`deal benchmark ...`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from torchdeal.benchmark import common, denoising, report, results, speed
from torchdeal.cli.shared import Device, DeviceChoice, device_name, interruptible, messages, output
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

benchmark = typer.Typer(help="Measure, on this machine, what the documents claim.", no_args_is_help=True)

JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write all results as JSON; - prints them instead.")
]
FromFile = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="Show the results in a --json file; measure nothing.")
]


class Kind(str, Enum):
    """Which of the bundled pictures and weights."""

    gray = "gray"
    color = "color"


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
    device: DeviceChoice = Device.auto,
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
            device=device_name(device),
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
        with interruptible(_kept(json_file)):
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
    device: DeviceChoice = Device.auto,
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
            device=device_name(device),
            crop=crop,
            tolerance=tolerance,
            max_iterations=max_iterations,
            limit=limit,
            starts=starts,
            threads=threads,
        )
        with interruptible(_kept(json_file)):
            levels, settings = denoising.measure(plan, lambda line: messages.print(line, markup=False), save)
    else:
        raise ValueError("give a folder of clean images: deal benchmark denoising FOLDER")
    if json_file == "-":
        print(denoising.to_json(levels, settings))
    else:
        report.show_denoising(levels, settings, _table_console())


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
