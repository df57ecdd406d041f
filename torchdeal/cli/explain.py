"""`deal explain`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import typer

from torchdeal.cli.deblur import Deblurring
from torchdeal.cli.denoise import Denoising
from torchdeal.cli.explanation import Story
from torchdeal.cli.explanation_page import GENERATOR, Passage, page
from torchdeal.cli.explanation_pictures import png
from torchdeal.cli.jobs import one_job
from torchdeal.cli.memory import memory_for
from torchdeal.cli.options import PICTURE_NOISE, TILES, Settings, with_settings
from torchdeal.cli.pictures import PictureTask
from torchdeal.cli.report import FileReport, show, summarise
from torchdeal.cli.run import Problem, Solved, check_finite, solve
from torchdeal.cli.shared import print_json, progress_bar, reporter, say
from torchdeal.explain import Pixel
from torchdeal.io.atomic import replacing
from torchdeal.io.checkpoint import load
from torchdeal.io.overwriting import refuse_overwriting
from torchdeal.operators import Blur, BlurBoundary
from torchdeal.operators.blur_kernels import parse_kernel

PAGE = "explanation.html"
ALWAYS = ("picture", "result", "mask", "responses", "responses-masked", "pixels", "filters")  # pictures in each folder
EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal explain noisy.png why/ --sigma 25[/bold]   (an edge, texture, and a flat place)\n\n"
    "[bold]deal explain noisy.png why/ --pixel 40,60 --pixel 12,30[/bold]\n\n"
    "[bold]deal explain blurred.png why/ --kernel gaussian:1.6[/bold]"
)


@with_settings(
    without=(
        *("quality", "recursive", "skip_existing", "save_degraded", "certificate", "error_bars", "parameters", "batch"),
        "symmetries",
        *PICTURE_NOISE,
        *TILES,
    )
)
def explain(
    picture: Annotated[Path, typer.Argument(metavar="IN", help="The picture to denoise, or to deblur.")],
    folder: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Where the page and its pictures go.")],
    pixel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="Y,X",
            help="Row and column of a pixel to explain, from 0; may be given several times. Default: one on an edge, "
            "one in texture, one in a flat place.",
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(metavar="KERNEL", help="Explain the deblurring of this kernel, as of deal deblur.")
    ] = None,
    boundary: Annotated[
        BlurBoundary | None,
        typer.Option(help="With --kernel: what the blur saw beyond the border, as of deal deblur. Default: valid."),
    ] = None,
    *,
    settings: Settings,
) -> None:
    """Explain a result: a page that shows what was kept, what was smoothed, and what each pixel is the mean of."""
    ((source, target),) = one_job(picture, folder / PAGE)
    wanted = list(dict.fromkeys(map(parse_pixel, pixel or [])))
    reads = [source, *(Path(name) for name in (kernel, settings.model) if name is not None)]
    check_folder(folder, reads)
    task = _task(kernel, boundary, settings)
    started = time.perf_counter()
    solved = _solved(source, task, wanted)
    with memory_for(f"to explain {source}"):
        story = Story.of(solved, wanted)
        passages = list(story.passages())
    report = summarise((source, target), [solved], settings.torch_device, time.perf_counter() - started)
    files = write(folder, _title(source, kernel), story, report, passages, reads)
    _tell(report, story, files, settings.as_json)


def parse_pixel(text: str) -> Pixel:
    """`12,34`: row and column."""
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--pixel {text}: give row and column as two whole numbers, such as 12,34") from None
    return row, column


def check_folder(folder: Path, reads: Sequence[Path]) -> None:
    """Raise, before any work, where the files cannot go, or would replace what is not of an earlier explanation."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: not a folder; give a folder for the page and its pictures")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"{folder}: the folder {folder.parent} does not exist; create it first")
    if not folder.is_dir():
        return
    names = {PAGE, *(f"{name}.png" for name in ALWAYS)}
    present = sorted(path for path in folder.iterdir() if path.name in names or path.match("pixel-*-*-*.png"))
    refuse_overwriting(present, reads)
    if present and not _is_ours(folder / PAGE):
        raise ValueError(f"{present[0]}: would be replaced, and is not of an earlier explanation; give another folder")


def write(
    folder: Path, title: str, story: Story, report: FileReport, passages: Sequence[Passage], reads: Sequence[Path]
) -> list[Path]:
    """The page first: by it the folder is known as one of ours. Each file is replaced as a whole."""
    pictures = {folder / f"{shown.name}.png": shown for passage in passages for shown in passage.illustrations}
    files = [folder / PAGE, *pictures]
    refuse_overwriting(files, reads)
    text = page(title, list(story.opening(report)), passages)
    folder.mkdir(exist_ok=True)
    for path in files:
        content = png(pictures[path].picture) if path in pictures else text.encode()
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    return files


def _task(kernel: str | None, boundary: BlurBoundary | None, settings: Settings) -> PictureTask:
    if kernel is not None:
        return Deblurring(settings, Blur(parse_kernel(kernel), boundary or BlurBoundary.VALID))
    if boundary is not None:
        raise ValueError("--boundary is that of a blur: use it with --kernel")
    return Denoising(settings)


def _is_ours(path: Path) -> bool:
    return path.is_file() and GENERATOR.encode() in path.read_bytes()[:2000]


def _solved(source: Path, task: PictureTask, wanted: Sequence[Pixel]) -> Solved:
    """The one picture of a file; what cannot be explained raises before the work."""
    settings = task.settings
    with memory_for(f"to read {source}"):
        frames, _ = task.read(source)
    if len(frames) > 1:
        raise ValueError(f"{source}: several pictures or channels; explain one picture, gray or of three colours")
    problem = task.pose(frames[0])
    _check(problem, wanted)
    models = cache(partial(load, device=settings.torch_device))
    with progress_bar(settings.as_json) as progress, memory_for(f"to reconstruct {source}"):
        solved = solve(problem, settings, models, reporter(progress, source.name, settings.tolerance))
    check_finite(solved, str(source))
    return solved


def _check(problem: Problem, wanted: Sequence[Pixel]) -> None:
    height, width = problem.y.shape[-2:]
    if problem.leave:
        raise ValueError("no noise is certain in this picture, so it would be left unchanged: give --sigma")
    if min(height, width) < 2 and not wanted:
        raise ValueError("the picture is too small to look for an edge in it: say which pixels, by --pixel Y,X")
    for row, column in wanted:
        if not (0 <= row < height and 0 <= column < width):
            raise ValueError(
                f"--pixel {row},{column} is outside of the picture: rows go from 0 to {height - 1}, columns from 0 to "
                f"{width - 1}"
            )


def _title(source: Path, kernel: str | None) -> str:
    return f"How {source.name} was {'denoised' if kernel is None else 'deblurred'}"


def _tell(report: FileReport, story: Story, files: Sequence[Path], as_json: bool) -> None:
    show(report, as_json)
    if as_json:
        pixels = [explained.summary() for explained in story.pixels]
        result = asdict(report) | {"pixels": pixels, "files": [str(path) for path in files]}
        print_json({"results": [result], "failures": {}, "skipped": []})
        return
    for explained in story.pixels:
        say(f"{explained.name}. {explained.noise()}")
