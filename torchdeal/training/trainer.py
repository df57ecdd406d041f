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
from torchdeal.operators import Identity
from torchdeal.training.batches import Batch, Visit, draw, seed_of, visit
from torchdeal.training.config import Config, ConfigError, OptimiserConfig, parse_config
from torchdeal.training.data import ImageSet
from torchdeal.training.report import Listener, Report, Tally
from torchdeal.training.state import (
    CheckpointError,
    Progress,
    load_checkpoint,
    optimiser_tensors,
    restore_optimiser,
    save_checkpoint,
    writing,
)
from torchdeal.training.step import Outcome, TrainingStep
from torchdeal.training.validation import Validation

CHECKPOINT, BEST, LAST, LOG = "checkpoint.safetensors", "best.safetensors", "last.safetensors", "log.jsonl"
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
        engine: `"direct"` or `"packed"`; by default the fastest one that fits.
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
        listener: Listener | None = None,
    ):
        self.config, self.folder, self.images, self.validation = config, folder, images, validation
        self.listener = listener or Listener()
        self.device = images.pixels.device
        self.model = (model if model is not None else _new_model(config)).to(self.device).train().requires_grad_(True)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.names = [name for name, _ in self.model.named_parameters()]
        self.optimiser = _optimiser(self.model, config.optimiser)
        self.forgetting = torch.zeros((), device=self.device)  # how much of its past the average forgets in a step
        self.loss = TrainingStep(self.model, config.loss, engine=engine)
        self.distributed = dist.is_available() and dist.is_initialized()
        self.process, processes = (dist.get_rank(), dist.get_world_size()) if self.distributed else (0, 1)
        self.parallel = DistributedDataParallel(self.loss) if self.distributed else self.loss
        # A graph is captured in the stream in which its function was called before: all steps are made in this one.
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.replays = Replays(self.stream) if self.stream and not self.distributed else None
        self.pool: dict[int, Tensor] = {}  # slot -> where its last visit ended
        self.progress = Progress(processes=processes, started_from=started_from)
        self.tally = Tally(self.device)
        self.stop_reason: str | None = None

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same settings."""
        tensors, progress, config = load_checkpoint(path)
        if _settings(config, path) != self.config:
            raise CheckpointError(f"{path}: made with other settings ({_difference(config, self.config)})")
        if progress.processes != self.progress.processes:
            raise CheckpointError(
                f"{path}: made by {progress.processes} processes, this run has {self.progress.processes}: start as many"
            )
        try:
            self.model.load_state_dict(_part(tensors, "model."))
            self.average.load_state_dict(_part(tensors, "average."))
            restore_optimiser(self.optimiser, self.names, tensors)
            slots = _part(tensors, f"pool.{self.process}.")
            self.pool = {int(slot): values.to(self.device) for slot, values in slots.items()}
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"{path}: does not fit the model ({error})") from None
        self.progress = progress

    def run(self, *, until: int | None = None, seconds: float | None = None) -> Progress:
        """Train to the end, or to a step, or for so long; a signal ends it after the step. Saves in any case."""
        end = self.config.optimiser.steps if until is None else min(until, self.config.optimiser.steps)
        self.stop_reason = None
        started = time.monotonic()
        before = self.progress.seconds
        settings = self.config.run
        with _stopped_by_signals(self), _working_in(self.stream):
            while self.progress.step < end and not self._should_stop(started, seconds):
                batch, outcome = self._step(self.progress.step)
                self.progress = replace(
                    self.progress, step=self.progress.step + 1, seconds=before + time.monotonic() - started
                )
                step = self.progress.step
                if step % settings.report_every == 0:
                    self._report()
                if step % settings.validate_every == 0 or step == self.config.optimiser.steps:
                    self._validate()
                    if self._is_main:
                        self.listener.example(step, self.average, batch, outcome)
                if step % settings.save_every == 0:
                    self.save()
            self.save()
        return self.progress

    def save(self) -> None:
        """Write the checkpoint, and the averaged weights."""
        self._check_finite()
        pool = self._gathered_pool()
        if not self._is_main:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        tensors |= optimiser_tensors(self.optimiser, self.names) | pool
        save_checkpoint(self.folder / CHECKPOINT, tensors, self.progress, dataclasses.asdict(self.config))
        self._save_weights(self.folder / LAST)

    @property
    def _is_main(self) -> bool:
        return self.process == 0

    def _step(self, step: int) -> tuple[Batch, Outcome]:
        seen = visit(step, self.config.iterations)
        seed = seed_of(self.config.run.seed, self.process, seen.number)
        batch = draw(self.images, self.config.task, self.config.data.batch, seed)
        iterations = self._iterations(step, seen)
        before = self.loss.approach(batch, None if seen.first else self.pool[seen.slot], iterations)
        self.tally.count_step(iterations)
        self._set_rates(step)
        every = self.config.loss.occasional
        outcome = self._update(batch, before, float(every) if step % every == 0 else 0.0)
        # What is not finite starts again from zero: it would spoil the later visits as well.
        self.pool[seen.slot] = outcome.x.nan_to_num(0.0, 0.0, 0.0)
        return batch, outcome

    def _update(self, batch: Batch, before: Tensor, occasional: float) -> Outcome:
        """Change the weights; on a GPU all of it is one CUDA graph."""
        inputs = batch.clean, batch.measured, batch.sigma, before

        def update(clean: Tensor, measured: Tensor, sigma: Tensor, before: Tensor) -> Outcome:
            return self._changed(Batch(clean, batch.operator, measured, sigma), before, occasional)

        if self.replays is None or not isinstance(batch.operator, Identity):
            return update(*inputs)
        return self.replays.run(occasional, update, *inputs)

    def _changed(self, batch: Batch, before: Tensor, occasional: float) -> Outcome:
        self.optimiser.zero_grad()
        outcome = self.parallel(batch, before, occasional)
        outcome.loss.backward()
        norm = self._clip()
        self.optimiser.step()
        with torch.no_grad():
            for average, value in zip(self.average.parameters(), self.model.parameters(), strict=True):
                average.lerp_(value, self.forgetting)
            self.tally.add(outcome, norm)
        return outcome

    def _set_rates(self, step: int) -> None:
        """Written where a CUDA graph looks for them."""
        decay = min(self.config.optimiser.ema, (1 + step) / (10 + step))
        self.forgetting.fill_(1 - decay)
        rate = learning_rate(step, self.config.optimiser)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _iterations(self, step: int, seen: Visit) -> int:
        """Outer iterations without gradient: the same in all processes, which wait for each other."""
        share = step / self.config.optimiser.steps
        low, high = self.config.iterations.bounds(share) if seen.first else self.config.iterations.again
        random = np.random.default_rng((self.config.run.seed, step))
        return int(random.integers(low, high + 1))

    def _clip(self) -> Tensor:
        """Scale the gradient to the norm that is allowed; one that is not finite becomes 0, and is counted."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.optimiser.clip, foreach=True)
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.copy_(torch.where(torch.isfinite(norm), parameter.grad, 0))
        return norm

    def _report(self) -> None:
        means = self.tally.take(self.loss.take_cg_iterations())
        if means.bad > BAD_SHARE or not math.isfinite(means.loss):
            raise DivergedError(
                f"the training diverged at about step {self.progress.step}: {100 * means.bad:.0f} % of the last "
                "gradients were not finite. Lower optimiser.lr or optimiser.clip, or make optimiser.warmup longer; the "
                "last checkpoint is from before"
            )
        pixels = self.config.model.channels * self.config.data.patch**2
        report = Report(
            step=self.progress.step,
            steps=self.config.optimiser.steps,
            loss=means.loss,
            psnr=-10 * math.log10(max(means.error / pixels, 1e-12)),
            lr=learning_rate(self.progress.step - 1, self.config.optimiser),
            gradient=means.gradient,
            iterations=means.iterations,
            cg_iterations=means.cg_iterations,
            contraction=means.contraction,
            steps_per_second=means.steps_per_second,
            seconds=self.progress.seconds,
        )
        if self._is_main:
            self._log({"report": dataclasses.asdict(report)})
            self.listener.report(report)

    def _validate(self) -> None:
        """Score the averaged weights, and keep them if they are the best so far."""
        self._check_finite()
        if self._is_main:
            self._score()
        self.loss.take_cg_iterations()
        self.tally.restart()  # in all processes: they must agree on when the run has diverged

    def _score(self) -> None:
        step = self.progress.step
        scores = self.validation.scores(self.average) if self.validation else []
        mean = float(np.mean([score.psnr for score in scores])) if scores else None
        before = self.progress.best_psnr
        best = mean is None or before is None or math.isnan(before) or mean > before
        if best:
            self.progress = replace(self.progress, best_psnr=mean, best_step=step)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save_weights(self.folder / BEST)
        if scores:
            self._log({"validation": {"step": step, "scores": [dataclasses.asdict(score) for score in scores]}})
            self.listener.validated(step, scores, best)

    def _save_weights(self, path: Path) -> None:
        with writing(path):
            save(self.average, path, {"training": json.dumps(self.card())})

    def card(self) -> dict:
        """How the weights came about."""
        return {
            "steps": self.progress.step,
            "gpu_minutes" if self.device.type == "cuda" else "minutes": round(self.progress.seconds / 60, 1),
            "processes": self.progress.processes,
            "started_from": self.progress.started_from,
            "best_psnr": self.progress.best_psnr,
            "best_step": self.progress.best_step,
            "config": dataclasses.asdict(self.config),
        }

    def _check_finite(self) -> None:
        values = torch.stack([parameter.detach().abs().max() for parameter in self.model.parameters()])
        if not bool(torch.isfinite(values).all()):
            raise DivergedError(
                f"the weights are no longer finite at step {self.progress.step}. Lower optimiser.lr or "
                "optimiser.clip; the last checkpoint is from before"
            )

    def _gathered_pool(self) -> dict[str, Tensor]:
        """The pools of all processes, with their names; on the first process only."""
        own = {f"pool.{self.process}.{slot}": values.cpu() for slot, values in self.pool.items()}
        if not self.distributed:
            return own
        everyone: list[dict[str, Tensor]] | None = [{}] * dist.get_world_size() if self._is_main else None
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


def _optimiser(model: DEAL, config: OptimiserConfig) -> torch.optim.Optimizer:
    """Adam; in a CUDA graph its rate must be a tensor."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    rate = torch.tensor(config.lr, device=device) if on_gpu else config.lr
    return torch.optim.Adam(model.parameters(), rate, betas=config.betas, foreach=True, capturable=on_gpu)


def learning_rate(step: int, config: OptimiserConfig) -> float:
    """Cosine from `lr` to `final_lr`, once or in cycles that double, after a linear start."""
    position, length = step, config.steps
    if config.schedule == "restarts":
        length = config.cycle
        while position >= length:
            position, length = position - length, 2 * length
    share = min(position / length, 1.0)
    rate = config.final_lr + (config.lr - config.final_lr) * (1 + math.cos(math.pi * share)) / 2
    return rate * min(1.0, (step + 1) / (config.warmup + 1))


@contextlib.contextmanager
def _stopped_by_signals(trainer: Trainer) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the run after the step that is being made; a second Ctrl-C ends it at once."""

    def ask(number: int, frame: object) -> None:
        if trainer.stop_reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        trainer.stop_reason = signal.Signals(number).name

    before = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
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


def _settings(found: dict, path: Path) -> Config:
    try:
        return parse_config(found)
    except ConfigError as error:
        raise CheckpointError(f"{path}: its settings are not those of this version ({error}); start anew") from None


def _difference(found: dict, config: Config) -> str:
    """The first setting in which two configurations differ."""
    ours = json.loads(json.dumps(dataclasses.asdict(config)))
    for section, values in ours.items():
        for key, value in values.items():
            other = found.get(section, {}).get(key)
            if other != value:
                return f"{section}.{key} was {other!r}, is {value!r}"
    return "its settings"
