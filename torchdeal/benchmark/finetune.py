"""Fine-tuning: what a short training on pictures of one kind gains on others of that kind, and what it loses elsewhere.

Without a folder of pictures they are simulated ones of a microscope.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import torchdeal
from torchdeal.benchmark.core import Save, Say, middle, run_values
from torchdeal.benchmark.images import draw_noise
from torchdeal.benchmark.microscopy import write_pictures
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reach import bundled_picture
from torchdeal.benchmark.reporting.summary import bootstrap_interval
from torchdeal.benchmark.reporting.tables import Section, Table
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.io.checkpoint import checksum, last_run, load
from torchdeal.metrics import psnr
from torchdeal.model import DEAL
from torchdeal.operators import Identity
from torchdeal.reconstruct import reconstruct
from torchdeal.training import Config, Trainer, parse_config, read_config, read_images
from torchdeal.training.data import KINDS, SUFFIXES, ImageSet, read_pictures
from torchdeal.training.folder import BEST, CHECKPOINT
from torchdeal.training.report import Event, Example
from torchdeal.training.state import RunState, read_progress
from torchdeal.training.validation import Validation

BEFORE, AFTER = "before", "after"
START = "gray-light"
CONFIGS = {"cpu": "fine-tune-cpu.toml", "cuda": "fine-tune.toml"}
SIMULATED, COUNT, SIDE = "simulated microscopy", 40, 256
SIGMAS = (15.0, 25.0, 50.0)
SHARES = 0.6, 0.1  # of the files: to train on, to validate with; the others are the test
ORDINARY = ("camera", "coins", "page", "brick")  # of scikit-image
PILOT = 16  # steps that tell how many fit into the time
QUICK = {"count": 4, "side": 40, "patch": 24, "batch": 2, "steps": 2}
PROTOCOL = (
    f"The files of a folder, by name: the first {SHARES[0]:.0%} are trained on, the next {SHARES[1]:.0%} choose the "
    f"best weights, the others are the test. Simulated microscopy are {COUNT} pictures of {SIDE} x {SIDE}. Of larger "
    f"test pictures it is the middle {SIDE} x {SIDE}. Settings of configs/{CONFIGS['cuda']} on a GPU, of "
    f"configs/{CONFIGS['cpu']} on a CPU, about as many steps as fit into the time that is given; the loss is that with "
    "which the weights were made. White noise, the same before and after."
)
EXPLAINED = (
    "Mean PSNR in dB before and after, and the gain: its mean, in brackets the 95 % interval of that by resampling the "
    "pictures, and the least of a picture. Then the mean number of outer iterations before and after."
)
HEAD = ["trained on", "from", "tested on", "noise", "number", "before", "after", "gain", "least gain", "iterations"]


class FineTuning:
    """The experiment: measure, train, measure again."""

    about = "What fine-tuning on pictures of one kind gains there, and what it loses elsewhere."

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol."""
        names = ("quick", "limit", "tolerance", "max_iterations")
        return {"protocol": PROTOCOL, **{name: getattr(options, name) for name in names}}

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing."""
        start = options.model or START
        model, name = load(start), Path(start).stem
        config = fitting_config(options.device, model, start, options.quick)
        folder = _pictures(options)
        title = folder.resolve().name
        try:
            train, validation, test = split(_listed(folder))
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
        digest = _digest(start, [*train, *validation, *test])
        shown = {title: _clean(test, folder, model, options), **_others(title, model, options, say)}
        cells = {}
        for pictures, images in shown.items():
            for sigma in options.sigmas or SIGMAS:
                cell = f"{title}, {name}: {pictures}, sigma {sigma:g}"
                cells[cell] = images, sigma
                place = {"trained on": title, "from": name, "tested on": pictures, "noise": f"sigma {sigma:g}"}
                if results.cells.get(cell, {}).get("digest", digest) != digest:
                    raise ValueError(f"{cell} was measured with other pictures or weights before: take another --out")
                results.cells[cell] = {"table": "Fine-tuning", "column": cell, **place, "digest": digest}
        results.weights.setdefault(BEFORE, {})[name] = checksum(start)
        _measure(results, BEFORE, cells, model.to(options.device), options, save, say)
        if all(len(results.select(cell, AFTER)) == len(images) for cell, (images, _) in cells.items()):
            return
        run = FineTuningRun(config, options.out / "runs" / f"{title}, {name}, {digest}", start, train, validation)
        best, told = run.trained(options, say)
        results.weights.setdefault(AFTER, {})[f"{title}, {name}"] = checksum(best)
        for cell in cells:
            results.parameters[cell] = {AFTER: told}
        _measure(results, AFTER, cells, load(best, device=options.device), options, save, say)

    def sections(self, results: Results) -> Iterator[Section]:
        """One table."""
        lines = [line for cell in results.cells if (line := _line(results, cell))]
        notes = dict.fromkeys(_training(results, cell) for cell in results.cells)
        tables = [Table(HEAD, lines)] if lines else []
        yield Section("Fine-tuning", EXPLAINED, tables, notes=[note for note in notes if note])


def split(paths: Sequence[Path]) -> tuple[list[Path], list[Path], list[Path]]:
    """Files to train on, to validate with and to test; at least one each."""
    if len(paths) < 3:
        raise ValueError(
            f"at least 3 {KINDS} pictures are needed, to train on, to validate with and to test; there are {len(paths)}"
        )
    validation = max(1, round(SHARES[1] * len(paths)))
    train = min(max(1, round(SHARES[0] * len(paths))), len(paths) - validation - 1)
    return list(paths[:train]), list(paths[train : train + validation]), list(paths[train + validation :])


def fitting_config(device: str, model: DEAL, start: str, quick: bool) -> Config:
    """The settings for the device, for these weights: their size, and the loss that they were made with."""
    path = Path(torchdeal.__file__).parents[1] / "configs" / CONFIGS[device]
    if not path.is_file():
        raise Unavailable(f"the settings are those of configs/{path.name}: call it in a checkout of the repository")
    config = read_config(path)
    size = replace(config.model, channels=model.channels, boundary=model.boundary.value, features=model.features)
    made = last_run(start).get("config")
    loss = parse_config(made).loss if made else config.loss
    data = replace(config.data, patch=QUICK["patch"], batch=QUICK["batch"]) if quick else config.data
    return replace(config, model=size, loss=loss, data=data)


@dataclass(frozen=True)
class FineTuningRun:
    """A training: its settings but for the number of steps, its folder, the start, and the files."""

    config: Config
    folder: Path
    start: str
    train: list[Path]
    validation: list[Path]

    def trained(self, options: BenchmarkOptions, say: Say) -> tuple[Path, Values]:
        """The best weights, and how they came about. A run that was interrupted goes on."""
        channels, patch = self.config.model.channels, self.config.data.patch
        images = read_images(self.train, channels=channels, patch=patch).to(options.device)
        for skipped in images.skipped:
            say(f"skipped {skipped}")
        checkpoint = self.folder / CHECKPOINT
        if checkpoint.exists():
            steps = read_progress(checkpoint)[1]["optimiser"]["steps"]
        else:
            steps = QUICK["steps"] if options.quick else self._steps_in(options.seconds, images)
        trainer = self._trainer(self.folder, images, steps, say)
        if checkpoint.exists():
            trainer.resume(checkpoint)
        state = _made(trainer)
        minutes = state.seconds / 60
        told = {"steps": state.step, "minutes": minutes, "best_step": state.best_step, "files": len(self.train)}
        return self.folder / BEST, {**told, "seconds": options.seconds}

    def _trainer(self, folder: Path, images: ImageSet, steps: int, say: Say) -> Trainer:
        often, seldom = max(1, steps // 10), max(1, steps // 4)
        settings = replace(self.config.run, report_every=often, validate_every=seldom, save_every=often)
        config = replace(self.config, optimiser=replace(self.config.optimiser, steps=steps), run=settings)
        smallest = DEAL(config.model.channels, config.model.boundary, 1).min_size
        validation = Validation(self.validation, config.model.channels, smallest, config.task)

        def listen(event: Event) -> None:
            if not isinstance(event, Example):
                say(str(event))

        known = {"model": load(self.start), "started_from": self.start, "listener": listen}
        return Trainer(config, folder, images, validation, **known)

    def _steps_in(self, seconds: float, images: ImageSet) -> int:
        """About how many steps fit into the time, by a few of them, after those that compile or fill the pool."""
        pool = replace(self.config.iterations, pool=self.config.iterations.visits)
        config = replace(self.config, iterations=pool)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(config, Path(folder), images, model=load(self.start))
            _made(trainer, PILOT)
            started = time.monotonic()
            _made(trainer, 2 * PILOT)
            each = (time.monotonic() - started) / PILOT
        return max(1, round(seconds / each))


def _made(trainer: Trainer, until: int | None = None) -> RunState:
    """The steps of a run; one that Ctrl-C ended early, and saved, has no place among the results."""
    state = trainer.run(until=until)
    if trainer.stop_reason:
        raise KeyboardInterrupt
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()
    return state


def _pictures(options: BenchmarkOptions) -> Path:
    """The folder that is given, or a new one with simulated pictures."""
    if options.images:
        return options.images
    count, side = (QUICK["count"], QUICK["side"]) if options.quick else (COUNT, SIDE)
    write_pictures(options.out / SIMULATED, count, side)
    return options.out / SIMULATED


def _listed(folder: Path) -> list[Path]:
    """Its pictures, with those of its subfolders, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _digest(start: str, paths: Sequence[Path]) -> str:
    """Tells these weights and pictures from others of the same name."""
    found = hashlib.sha256(checksum(start).encode())
    for path in paths:
        found.update(f"{path.name} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:8]


def _others(title: str, model: DEAL, options: BenchmarkOptions, say: Say) -> dict[str, dict[str, Tensor]]:
    """Ordinary pictures: those of a folder, or of scikit-image where it is installed."""
    if options.also and options.also.resolve().name == title:
        raise ValueError(f"{options.also}: --also has the name of the folder that is trained on; rename one")
    if options.also:
        pictures = _clean(_listed(options.also), options.also, model, options)
        if not pictures:
            raise ValueError(f"{options.also}: no {KINDS} pictures; give another folder by --also")
        return {options.also.resolve().name: pictures}
    try:
        pictures = {name: bundled_picture(name) for name in options.images_at_most(ORDINARY)}
    except Unavailable as error:
        say(f"what is lost elsewhere is not measured: {error}".replace("--images", "--also"))
        return {}
    channels = model.channels
    side = QUICK["side"] if options.quick else SIDE
    return {
        "scikit-image": {name: middle(image, side).expand(-1, channels, -1, -1) for name, image in pictures.items()}
    }


def _clean(paths: Sequence[Path], folder: Path, model: DEAL, options: BenchmarkOptions) -> dict[str, Tensor]:
    """The middle of each picture, `(1, C, H, W)` in 0..1, as training reads it, with its name in the folder."""
    found, side = {}, QUICK["side"] if options.quick else SIDE
    for path in options.images_at_most(paths):
        pictures, _ = read_pictures([path], channels=model.channels, smallest=model.min_size)
        for number, pixels in enumerate(pictures):
            name = f"{path.relative_to(folder)}{f', {number}' if len(pictures) > 1 else ''}"
            found[name] = middle(torch.from_numpy(pixels)[None].float() / 255, side).contiguous()
    return found


def _measure(
    results: Results,
    method: str,
    cells: dict[str, tuple[dict[str, Tensor], float]],
    model: DEAL,
    options: BenchmarkOptions,
    save: Save,
    say: Say,
) -> None:
    """Add the rows that are missing."""
    for cell, (images, sigma) in cells.items():
        measured = {row.image for row in results.select(cell, method)}
        for image, clean in images.items():
            if image not in measured:
                values = _denoised(clean, sigma, model, options)
                results.add(Row(cell, image, method, values, environment=len(results.environments) - 1))
                save()
        say(f"{cell}, {method}: {fmean(row.values['psnr'] for row in results.select(cell, method)):.2f} dB")


def _denoised(clean: Tensor, sigma: float, model: DEAL, options: BenchmarkOptions) -> Values:
    y = (clean + draw_noise(clean, sigma)).to(options.device)
    limits = {"tolerance": options.tolerance, "max_iterations": options.max_iterations}
    rec = reconstruct(y, Identity(), model=model, sigma=sigma / 255, data_range=1.0, **limits)
    (run,) = run_values(rec)
    return {"psnr": psnr(rec.x.cpu(), clean), **run}


def _line(results: Results, cell: str) -> list[str]:
    """Of the pictures that were measured before and after."""
    before, after = ({row.image: row.values for row in results.select(cell, method)} for method in (BEFORE, AFTER))
    images = [image for image in before if image in after]
    if not images:
        return []
    levels = [fmean(values[image]["psnr"] for image in images) for values in (before, after)]
    outer = [fmean(values[image]["iterations"] for image in images) for values in (before, after)]
    gains = [after[image]["psnr"] - before[image]["psnr"] for image in images]
    interval = bootstrap_interval(gains)
    within = f" ({interval[0]:+.2f} to {interval[1]:+.2f})" if interval else ""
    place = [results.cells[cell][name] for name in HEAD[:4]]
    numbers = [str(len(images)), *(f"{level:.2f}" for level in levels)]
    return [*place, *numbers, f"{fmean(gains):+.2f}{within}", f"{min(gains):+.2f}", f"{outer[0]:.1f}, {outer[1]:.1f}"]


def _training(results: Results, cell: str) -> str:
    told, place = results.parameters.get(cell, {}).get(AFTER), results.cells[cell]
    if not told:
        return ""
    length = f"{told['steps']:,} steps in {told['minutes']:.1f} minutes, {told['files']} files"
    best = f"the best on the validation pictures are those after {told['best_step']:,}"
    return f"{place['trained on']}, {place['from']}: {length}; {best}"


EXPERIMENT = FineTuning()
