"""The training loop.

Everything random is a function of the seed and of the number of the step, and everything else that a step depends on is
in the checkpoint: a run that was stopped goes on as if it had not been.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from torchdeal.backends.cuda.graphs import Replays
from torchdeal.io.checkpoint import save
from torchdeal.model import DEAL
from torchdeal.training.batches import Batch, Visit, draw, seed_of, visit
from torchdeal.training.config import Config
from torchdeal.training.data import ImageSet
from torchdeal.training.folder import BEST, CHECKPOINT, LAST, LOG, check_own, check_unused
from torchdeal.training.optimiser import (
    adam,
    clip_gradient,
    learning_rate,
    optimiser_tensors,
    restore_optimiser,
    restrict,
    set_rate,
)
from torchdeal.training.report import Example, Listener, Tally, Validated
from torchdeal.training.state import (
    CheckpointError,
    RunState,
    check_settings,
    load_checkpoint,
    save_checkpoint,
    writing,
)
from torchdeal.training.step import StepResult, TrainingStep
from torchdeal.training.validation import Validation

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]  # not on Windows
POOL, DIRECTIONS = "pool", "direction"  # what a checkpoint calls them
BAD_SHARE = 0.1  # of the steps between two reports whose gradient is not finite: more, and the run has diverged


class DivergedError(RuntimeError):
    """The loss or the gradient is no longer finite."""


class Trainer:
    """A run: `Trainer(...).run()`.

    Args:
        config: every setting.
        folder: where checkpoints, weights and the log go.
        images: to train on, where the model shall be.
        validation: to choose the best weights with; None: the last ones are the best.
        model: to start from, with new weights if None.
        started_from: the name of these weights, for the card.
        engine: `"direct"`, `"quick"` or `"packed"`; by default the fastest one that fits.
        listener: is told how it goes.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        images: ImageSet,
        validation: Validation | None = None,
        *,
        model: DEAL | None = None,
        started_from: str | None = None,
        engine: str | None = None,
        listener: Listener = lambda event: None,
    ):
        self.config, self.folder, self.images, self.validation = config, folder, images, validation
        self.listener = listener
        self.device = images.pixels.device
        self.model = (model if model is not None else _new_model(config)).to(self.device).train().requires_grad_(True)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.restricted = restrict(self.model, config.optimiser.above)
        self.optimiser = adam(self.model, config.optimiser)
        self.forgetting = torch.zeros((), device=self.device)  # how much of its past the average forgets in a step
        self.training_step = TrainingStep(self.model, config.loss, engine=engine)
        self.distributed = dist.is_available() and dist.is_initialized()
        self.process, processes = (dist.get_rank(), dist.get_world_size()) if self.distributed else (0, 1)
        self.is_main = self.process == 0  # the one that writes and tells
        self.parallel_step = DistributedDataParallel(self.training_step) if self.distributed else self.training_step
        # A graph is captured in the stream in which its function was called before: all steps are made in this one.
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.replays = Replays(self.stream) if self.stream and not self.distributed else None
        self.pool: dict[int, Tensor] = {}  # slot -> where its last visit ended
        self.directions: dict[int, Tensor] = {}  # slot -> what T shrinks least there, as its last visit found
        self.state = RunState(processes=processes, started_from=started_from)
        self.tally = Tally(self.device)
        self.stop_reason: str | None = None
        self.owns_folder = False  # what is in it was made by this run
        self.unsaved_best: DEAL | None = None  # those of the start, until something else is saved

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same settings; only the number of steps may be another."""
        tensors, state, settings = load_checkpoint(path)
        check_settings(settings, self.config, path)
        if state.processes != self.state.processes:
            raise CheckpointError(
                f"{path}: made by {state.processes} processes, this run has {self.state.processes}: start as many"
            )
        try:
            self.model.load_state_dict(_part(tensors, "model."))
            self.average.load_state_dict(_part(tensors, "average."))
            restore_optimiser(self.optimiser, self.model, tensors)
            self.pool = self._slots(tensors, POOL)
            self.directions = self._slots(tensors, DIRECTIONS)
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"{path}: does not fit the model ({error})") from None
        self.state = state
        if path.parent.resolve() == self.folder.resolve():
            check_own(self.folder, state, self.config)
            self.owns_folder = True

    def run(self, *, until: int | None = None, seconds: float | None = None) -> RunState:
        """Train to the end, or to a step, or for so long; a signal ends it after the step. Saves in any case."""
        if not self.owns_folder:
            check_unused(self.folder)
            self.owns_folder = True
        end = self.config.optimiser.steps if until is None else min(until, self.config.optimiser.steps)
        self.stop_reason = None
        started = time.monotonic()
        before = self.state.seconds
        settings = self.config.run
        with _stopped_by_signals(self), _working_in(self.stream):
            if self.validation and self.state.started_from and not self.state.step and self.state.best_step is None:
                self._validate()  # so that it is seen what is gained, and nothing worse is called the best
            while self.state.step < end and not self._should_stop(started, seconds):
                batch, result = self._step(self.state.step)
                self.state = replace(self.state, step=self.state.step + 1, seconds=before + time.monotonic() - started)
                step = self.state.step
                if step % settings.report_every == 0:
                    self._report()
                if step % settings.validate_every == 0 or step == self.config.optimiser.steps:
                    with self._saved_if_it_fails():
                        self._validate()
                    if self.is_main:
                        self.listener(Example(step, self.average, batch, result))
                if step % settings.save_every == 0:
                    self.save()
            self.save()
        return self.state

    def save(self) -> None:
        """Write the averaged weights and, last, the checkpoint: where it says that a run is complete, all is there."""
        self._check_finite()
        pool = self._gathered_pool()
        if not self.is_main:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        tensors |= optimiser_tensors(self.optimiser, self.model) | pool
        self._save_weights(self.folder / LAST, self.average)
        if self.unsaved_best is not None:
            self._save_weights(self.folder / BEST, self.unsaved_best)
            self.unsaved_best = None
        save_checkpoint(self.folder / CHECKPOINT, tensors, self.state, dataclasses.asdict(self.config))

    def _step(self, step: int) -> tuple[Batch, StepResult]:
        seen = visit(step, self.config.iterations)
        seed = seed_of(self.config.run.seed, self.process, seen.number)
        batch = draw(self.images, self.config.task, self.config.data.batch, seed)
        iterations = self._iterations(step, seen)
        before = self.training_step.approach(batch, None if seen.first else self.pool[seen.slot], iterations)
        self.tally.count_step(iterations)
        self._set_rates(step)
        every = self.config.loss.occasional
        if seen.first:
            self.directions.pop(seen.slot, None)  # that of another batch
        direction = self.directions.get(seen.slot, torch.zeros_like(before))
        result = self._update(batch, before, direction, float(every) if step % every == 0 else 0.0)
        # What is not finite starts again from zero: it would spoil the later visits as well.
        self.pool[seen.slot] = result.x.nan_to_num(0.0, 0.0, 0.0)
        if self.config.loss.remember and result.direction is not None:
            self.directions[seen.slot] = result.direction.nan_to_num(0.0, 0.0, 0.0)
        return batch, result

    def _update(self, batch: Batch, before: Tensor, direction: Tensor, occasional: float) -> StepResult:
        """Change the weights; on a GPU, in denoising by one process, all of it is one CUDA graph."""
        inputs = batch.clean, batch.measured, batch.sigma, before, direction

        def update(clean: Tensor, measured: Tensor, sigma: Tensor, before: Tensor, direction: Tensor) -> StepResult:
            return self._changed(Batch(clean, batch.operator, measured, sigma), before, direction, occasional)

        if self.replays is None or not batch.operator.is_identity:
            return update(*inputs)
        return self.replays.run(occasional, update, *inputs)

    def _changed(self, batch: Batch, before: Tensor, direction: Tensor, occasional: float) -> StepResult:
        self.optimiser.zero_grad()
        result = self.parallel_step(batch, before, occasional, direction)
        result.loss.backward()
        for parameter, trained in self.restricted:
            assert parameter.grad is not None
            parameter.grad.mul_(trained)
        norm = clip_gradient(self.model.parameters(), self.config.optimiser.clip)
        self.optimiser.step()
        with torch.no_grad():
            for average, value in zip(self.average.parameters(), self.model.parameters(), strict=True):
                average.lerp_(value, self.forgetting)
            self.tally.add(result, norm)
        return result

    def _set_rates(self, step: int) -> None:
        """Written where a CUDA graph looks for them."""
        decay = min(self.config.optimiser.ema, (1 + step) / (10 + step))
        self.forgetting.fill_(1 - decay)
        set_rate(self.optimiser, learning_rate(step, self.config.optimiser))

    def _iterations(self, step: int, seen: Visit) -> int:
        """Outer iterations without gradient: the same in all processes, which wait for each other."""
        share = step / self.config.optimiser.steps
        low, high = self.config.iterations.bounds(share) if seen.first else self.config.iterations.again
        random = np.random.default_rng((self.config.run.seed, step))
        return int(random.integers(low, high + 1))

    def _report(self) -> None:
        bad, step, config = self.tally.bad_share(), self.state.step, self.config
        report = self.tally.report(
            step=step,
            steps=config.optimiser.steps,
            lr=learning_rate(step - 1, config.optimiser),
            seconds=self.state.seconds,
            cg_iterations=self.training_step.take_cg_iterations(),
            pixels=config.model.channels * config.data.patch**2,
        )
        self.tally.restart()
        if bad > BAD_SHARE or not math.isfinite(report.loss):
            raise DivergedError(
                f"the training diverged at about step {step}: {100 * bad:.0f} % of the last gradients were not finite. "
                "Lower optimiser.lr or optimiser.clip, or make optimiser.warmup longer; the last checkpoint is from "
                "before"
            )
        if self.is_main:
            self._log({"report": dataclasses.asdict(report)})
            self.listener(report)

    def _validate(self) -> None:
        """Score the averaged weights, and keep them if they are the best so far."""
        self._check_finite()
        if self.is_main:
            self._score()
        self.training_step.take_cg_iterations()
        self.tally.restart()  # in all processes: they must agree on when the run has diverged

    @contextlib.contextmanager
    def _saved_if_it_fails(self) -> Iterator[None]:
        """Steps are not lost because, say, the validation images do not fit into the memory."""
        try:
            yield
        except (DivergedError, CheckpointError):
            raise
        except Exception:
            if not self.distributed:  # the other processes would not take part
                self.save()
            raise

    def _score(self) -> None:
        step = self.state.step
        scores = self.validation.scores(self.average) if self.validation else []
        mean = float(np.mean([score.psnr for score in scores])) if scores else None
        before = self.state.best_psnr
        best = mean is None or before is None or math.isnan(before) or mean > before
        if best:
            self.state = replace(self.state, best_psnr=mean, best_step=step)
            # A first step that fails, for want of memory, say, should leave the folder to the next try.
            self.unsaved_best = copy.deepcopy(self.average) if step == 0 else None
            if step:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._save_weights(self.folder / BEST, self.average)
        if scores:
            self._log({"validation": {"step": step, "scores": [dataclasses.asdict(score) for score in scores]}})
            self.listener(Validated(step, scores, best))

    def _save_weights(self, path: Path, weights: DEAL) -> None:
        with writing(path):
            save(weights, path, {"training": json.dumps(self.card())})

    def card(self) -> dict:
        """How the weights came about."""
        return {
            "steps": self.state.step,
            "gpu_minutes" if self.device.type == "cuda" else "minutes": round(self.state.seconds / 60, 1),
            "processes": self.state.processes,
            "started_from": self.state.started_from,
            "best_psnr": self.state.best_psnr,
            "best_step": self.state.best_step,
            "config": dataclasses.asdict(self.config),
        }

    def _check_finite(self) -> None:
        values = torch.stack([parameter.detach().abs().max() for parameter in self.model.parameters()])
        if not bool(torch.isfinite(values).all()):
            raise DivergedError(
                f"the weights are no longer finite at step {self.state.step}. Lower optimiser.lr or "
                "optimiser.clip; the last checkpoint is from before"
            )

    def _slots(self, tensors: dict[str, Tensor], kind: str) -> dict[int, Tensor]:
        """Those of this process in a checkpoint."""
        slots = _part(tensors, f"{kind}.{self.process}.")
        return {int(slot): values.to(self.device) for slot, values in slots.items()}

    def _gathered_pool(self) -> dict[str, Tensor]:
        """The pools of all processes, with their names; on the first process only."""
        own = {
            f"{kind}.{self.process}.{slot}": values.cpu()
            for kind, slots in ((POOL, self.pool), (DIRECTIONS, self.directions))
            for slot, values in slots.items()
        }
        if not self.distributed:
            return own
        everyone: list[dict[str, Tensor]] | None = [{}] * dist.get_world_size() if self.is_main else None
        dist.gather_object(own, everyone)
        return {name: values for pool in everyone or [] for name, values in pool.items()}

    def _should_stop(self, started: float, seconds: float | None) -> bool:
        if self.stop_reason is None and seconds is not None and time.monotonic() - started >= seconds:
            self.stop_reason = f"{seconds:g} seconds are over"
        if self.distributed:  # all of them, or none: a process alone would wait for ever
            asked = torch.tensor([self.stop_reason is not None], dtype=torch.float32, device=self.device)
            dist.all_reduce(asked, dist.ReduceOp.MAX)
            if bool(asked.item()) and self.stop_reason is None:
                self.stop_reason = "another process stopped"
        return self.stop_reason is not None

    def _log(self, entry: dict) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOG).open("a") as file:
            file.write(json.dumps(entry) + "\n")


@contextlib.contextmanager
def _stopped_by_signals(trainer: Trainer) -> Iterator[None]:
    """They end the run after the step that is being made; a second Ctrl-C ends it at once."""

    def ask(number: int, frame: object) -> None:
        if trainer.stop_reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        trainer.stop_reason = signal.Signals(number).name

    before = {}
    try:
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                with contextlib.suppress(ValueError):  # not in the main thread
                    before[number] = signal.signal(number, ask)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _working_in(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """In that stream, after what was asked for before; what is asked for afterwards waits for it."""
    if stream is None:
        yield
        return
    outside = torch.cuda.current_stream(stream.device)
    stream.wait_stream(outside)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        outside.wait_stream(stream)


def _new_model(config: Config) -> DEAL:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.run.seed)
        return DEAL(config.model.channels, config.model.boundary, config.model.features)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
