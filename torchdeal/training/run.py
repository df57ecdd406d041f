"""From a config file to a running training: images, devices, processes.

Imports only torch, numpy, Pillow and safetensors, and tifffile where there are TIFF files:
`python -m torchdeal.training CONFIG` runs on a bare machine with a GPU, and under
`torchrun -m torchdeal.training CONFIG` on several.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from torchdeal.io.checkpoint import load
from torchdeal.io.printable import printable
from torchdeal.memory import ASKED, is_out_of_memory
from torchdeal.model import DEAL
from torchdeal.training.config import Config, ConfigError, parse_config, read_config
from torchdeal.training.data import KINDS, ImageSet, Skipped, read_images
from torchdeal.training.engine import ENGINES
from torchdeal.training.folder import CHECKPOINT, LAST, check_own, check_run_folder, check_unused
from torchdeal.training.report import Event, Example, Listener
from torchdeal.training.state import RunState, check_settings, read_progress
from torchdeal.training.trainer import DivergedError, Trainer
from torchdeal.training.validation import Validation

NAMED = 20  # images that are skipped, at most
EXIT_CODES = {"SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129}  # of a process that was stopped, as shells have them


@dataclass(frozen=True)
class Options:
    """What is not a setting of the run, but of the machine and the moment."""

    config: Path
    output: Path
    start: str | None = None  # weights to start from: a file, or bundled ones
    resume: bool = False
    device: str = "cpu"
    engine: str | None = None
    seconds: float | None = None
    data: Path | None = None  # where the paths of the config begin; by default where the config is


def train(options: Options, listener: Listener) -> tuple[RunState, str | None]:
    """Train as the config says; returns where the run stands, and why it stopped early, if it did."""
    if options.seconds is not None and not options.seconds >= 0:
        raise ConfigError(f"--seconds should be at least 0, got {options.seconds:g}")
    config, checkpoint = read_config(options.config), options.output / CHECKPOINT
    complete = _prepare(options, config, checkpoint, listener)
    if complete:
        return complete, None
    with _memory(), _processes(options.device) as device:
        model = _start(options, config)
        images, validation = _read(options, config, device, listener)
        trainer = Trainer(
            config,
            options.output,
            images,
            validation,
            model=model,
            started_from=options.start,
            engine=options.engine,
            listener=listener,
        )
        if options.resume:
            trainer.resume(checkpoint)
            listener(f"going on from step {trainer.state.step}")
        state = trainer.run(seconds=options.seconds)
    return state, trainer.stop_reason


def _prepare(options: Options, config: Config, checkpoint: Path, listener: Listener) -> RunState | None:
    """Raise, before the images are read, if something would be lost or cannot be; returns a run that is complete."""
    # The trainer, which can be used alone, checks folder and settings too: but only after the images have been read,
    # which can take minutes.
    base = options.data or options.config.parent
    read = [options.config, *(base / source for source in (*config.data.train, *config.data.validation))]
    check_run_folder(options.output, read, options.start)
    if not options.resume:
        check_unused(options.output)
        return None
    if options.start:
        raise ConfigError("--resume goes on with the weights of the checkpoint: leave out --from")
    state, settings = read_progress(checkpoint)
    check_settings(settings, config, checkpoint)
    check_own(options.output, state, config)
    steps, planned = config.optimiser.steps, parse_config(settings).optimiser.steps
    more = f"To go on, make optimiser.steps in {options.config} larger, and use --resume"
    if state.step > steps:
        raise ConfigError(f"{checkpoint}: the run has made {state.step} steps, and optimiser.steps is {steps}. {more}")
    if state.step == steps and (options.output / LAST).exists():
        listener(f"the run is complete: {steps} of {steps} steps. {more}")
        return state
    if steps != planned:
        listener(f"the run was to have {planned} steps, and now has {steps}; so has the schedule of its learning rate")
    return None


@contextmanager
def _memory() -> Iterator[None]:
    """If it does not suffice, the error names the settings that decide how much is needed."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        asked = ASKED.search(str(error))
        size = f" (to {asked[0]})" if asked else ""
        raise ConfigError(
            f"not enough memory{size}: make data.batch, data.patch or model.features smaller, or take fewer images"
        ) from None


def _start(options: Options, config: Config) -> DEAL | None:
    if options.start is None:
        return None
    model = load(options.start)
    found = {"channels": model.channels, "boundary": model.boundary.value, "features": model.features}
    differences = [
        f"{name} is {value} and in [model] {wanted}"
        for name, value in found.items()
        if value != (wanted := getattr(config.model, name))
    ]
    if differences:
        raise ConfigError(f"{options.start} does not fit {options.config}: {', '.join(differences)}. Change [model]")
    return model


def _read(
    options: Options, config: Config, device: torch.device, listener: Listener
) -> tuple[ImageSet, Validation | None]:
    base = options.data or options.config.parent
    images = read_images([base / s for s in config.data.train], channels=config.model.channels, patch=config.data.patch)
    listener(f"training images: {images}")
    _tell_skipped(images.skipped, listener)
    sources = [base / s for s in config.data.validation]
    smallest = DEAL(config.model.channels, config.model.boundary, 1).min_size
    validation = Validation(sources, config.model.channels, smallest, config.task) if sources else None
    if validation:
        listener(f"validation images: {len(validation.pictures)}")
        _tell_skipped(validation.skipped, listener)
    return images.to(device), validation


def _tell_skipped(skipped: Sequence[Skipped], listener: Listener) -> None:
    """Images by name; of what else lies beside them the number."""
    images = [str(entry) for entry in skipped if entry.is_image]
    for line in images[:NAMED]:
        listener(f"  skipped {line}")
    if len(images) > NAMED:
        listener(f"  skipped {len(images) - NAMED} more images")
    if len(skipped) > len(images):
        listener(f"  skipped {len(skipped) - len(images)} files that are not {KINDS}")


@contextmanager
def _processes(device: str) -> Iterator[torch.device]:
    """The device of this process; with others, where torchrun has started several."""
    if "WORLD_SIZE" not in os.environ:
        yield torch.device(device)
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device(device)
    finally:
        dist.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> None:
    """Training without the packages of the command line: `python -m torchdeal.training CONFIG --output FOLDER`."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.training", description=main.__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--from", dest="start")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args(arguments)

    def tell(event: Event) -> None:
        if os.environ.get("RANK", "0") == "0" and not isinstance(event, Example):
            print(printable(str(event)), flush=True)

    try:
        state, reason = train(Options(**vars(given)), tell)
    except (ValueError, OSError, ImportError, DivergedError) as error:
        sys.exit(f"Error: {printable(str(error))}")
    except KeyboardInterrupt:  # before the first step, or asked for twice
        print("Interrupted: what was saved before is as it was", file=sys.stderr)
        sys.exit(EXIT_CODES["SIGINT"])
    tell(f"stopped at step {state.step} ({reason}): go on with --resume" if reason else "done")
    sys.exit(EXIT_CODES.get(reason or "", 0))
