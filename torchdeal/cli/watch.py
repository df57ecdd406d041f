"""`deal watch`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from torchdeal.cli.arrivals import Arrivals, Journal, Version
from torchdeal.cli.denoise import Denoising
from torchdeal.cli.jobs import check_folder, check_outputs
from torchdeal.cli.options import Settings, with_settings
from torchdeal.cli.pictures import PictureKind
from torchdeal.cli.process import Ending, ended_in_order
from torchdeal.cli.report import Outcome, show
from torchdeal.cli.run import restore
from torchdeal.cli.shared import complain, in_words, is_foreseeable, json_text
from torchdeal.io.checkpoint import load

RETRY = 30.0  # seconds until something is tried again that the system refused: a locked file, a full disk
BLINK = 0.1  # seconds: so soon Ctrl-C is heard while nothing is to be done

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal watch scans/ clean/[/bold]   (until Ctrl-C; what is there already is done, too)\n\n"
    "[bold]deal watch //microscope/today clean/ --recursive --settle 10 --sigma 12[/bold]\n\n"
    "[bold]deal watch scans/ clean/ --once --json[/bold]   (do what is there, then end)"
)


class ChangedError(Exception):
    """The file changed while it was worked on, or vanished: its result is of no use."""


@dataclass(frozen=True, eq=False)
class DenoisingArrival(Denoising):
    """Of one version of a file. A result of another one is not written."""

    source: Path
    version: Version

    def write(self, path: Path, images: Sequence[Tensor], kind: PictureKind) -> Sequence[str]:
        self.check()
        return super().write(path, images, kind)

    def check(self) -> None:
        """Raise if the file is not what it was."""
        if Version.of(self.source) != self.version:
            raise ChangedError


@with_settings(
    without=("model_sigma", "parameters", "error_bars", "simulate", "seed", "save_degraded", "skip_existing", "dask"),
    sigma_help="Standard deviation of the noise in the pictures on the 0..255 scale, whatever the bit depth. "
    "Default: estimated, for each.",
)
def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where pictures arrive.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder for results, of the same names.")],
    settle: Annotated[
        float, typer.Option(min=0, help="A file is complete if it did not change for so many seconds, and can be read.")
    ] = 2.0,
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks at the folder.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there is done.")] = False,
    *,
    settings: Settings,
) -> None:
    """Denoise pictures as they arrive in a folder, each when it is complete. Ctrl-C ends it after the file in work."""
    for option, seconds in (("--settle", settle), ("--poll", poll)):
        if not math.isfinite(seconds):
            raise ValueError(f"{option} must be finite, got {seconds}")
    _check_places(folder, out)
    out.mkdir(exist_ok=True)
    watcher = Watcher(settings, folder, out, settle, once)
    complain("Note", f"watching {folder}, results go to {out}; {'ends when all is done' if once else 'Ctrl-C ends it'}")
    try:
        with ended_in_order(watcher.tell_of_end) as ending:
            while not ending.asked:
                waiting = watcher.go_round(ending)
                if once and not waiting:
                    break
                _pause(poll, ending)
    except (KeyboardInterrupt, SystemExit) as stop:
        complain("Interrupted", "files that were not finished are as they were")
        raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else int(stop.code or 0)) from None
    watcher.close()


def _check_places(folder: Path, out: Path) -> None:
    if not folder.is_dir():
        raise ValueError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}; give one to watch")
    check_folder(out, "results of several files go there")
    if folder.resolve().is_relative_to(out.resolve()):
        raise ValueError(f"{out}: FOLDER is in it, so results could take the place of inputs; choose another output")


def _pause(seconds: float, ending: Ending) -> None:
    until = time.monotonic() + seconds
    while not ending.asked and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, BLINK))


class Watcher:
    """Does what arrives, and remembers what needs nothing more."""

    def __init__(self, settings: Settings, folder: Path, out: Path, settle: float, once: bool):
        """Load the model, if one is named: one that is not there would fail each file."""
        self._settings, self._folder, self._out, self._once = settings, folder, out, once
        self._arrivals = Arrivals(folder, out, settings.recursive, settle)
        self._journal = Journal(out)
        self._models = cache(partial(load, device=settings.torch_device))
        self._ended: dict[Path, Version] = {}  # done, or broken: until they change
        self._refused: dict[Path, tuple[Version, str, float]] = {}  # by the system: why, and when to try again
        self._outcome = Outcome()
        self._in_work: Path | None = None
        self._troubles: set[str] = set()  # with folders, that were told of
        if settings.model is not None:
            self._models(settings.model)

    def go_round(self, ending: Ending) -> bool:
        """Look, and do what is complete, until somebody asks for the end. True: more is to be expected soon."""
        settled = self._look()
        before = len(self._outcome.skipped)
        for path, version in settled:
            if ending.asked:
                return True
            if self._is_due(path, version):
                self._do(path, version)
        if skipped := len(self._outcome.skipped) - before:
            complain("Note", f"{skipped} of {self._arrivals.files} files have their results already")
        return len(settled) < self._arrivals.files or any(self._is_due(*pair) for pair in settled)

    def _look(self) -> list[tuple[Path, Version]]:
        """What has settled. Folders that cannot be read, or are away for a while, are told of once."""
        troubles: list[str] = []
        try:
            settled = self._arrivals.look(lambda error: self._unreadable(error, troubles))
        except OSError as error:
            if self._once:
                raise
            settled = []
            troubles.append(in_words(error))
        for trouble in troubles:
            if trouble not in self._troubles:
                complain("Warning", f"{trouble}; it is looked at again")
        self._troubles = set(troubles)
        return settled

    def _is_due(self, path: Path, version: Version) -> bool:
        if self._ended.get(path) == version:
            return False
        refused = self._refused.get(path)
        if refused is not None and refused[0] == version and time.monotonic() < refused[2]:
            return False
        if self._journal.is_done(self._place(path), version, self._target(path)):
            self._ended[path] = version
            self._outcome.skipped.append(str(path))
            return False
        return True

    def _do(self, path: Path, version: Version) -> None:
        task = DenoisingArrival(self._settings, path, version)
        job = (path, self._target(path))
        self._in_work = path
        try:
            task.check()  # others were done since it was seen
            self._check_target(path)
            report = restore(job, task, self._models)
        except Exception as error:
            if Version.of(path) != version:  # whatever went wrong: it was not complete, or is not wanted any more
                complain("Note", f"{path}: changed while it was worked on, or was removed; nothing is written")
            else:
                self._fail(path, version, error)
        else:
            self._ended[path] = version
            self._refused.pop(path, None)
            self._outcome.results.append(report)
            self._outcome.failures.pop(str(path), None)
            show(report, self._settings.as_json, when=f"{datetime.now():%Y-%m-%d %H:%M:%S} ")
            self._note(asdict(report), partial(self._journal.add, self._place(path), version))
        finally:
            self._in_work = None

    def _fail(self, path: Path, version: Version, error: Exception) -> None:
        """Told once for each version. What the system refused is tried again later; what is broken, when it changes."""
        reason = in_words(error) if is_foreseeable(error) else f"{type(error).__name__}: {error}"
        told = reason if str(path) in reason else f"{path}: {reason}"
        repeated = path in self._refused and self._refused[path][:2] == (version, reason)
        if _is_of_the_system(error):
            self._refused[path] = (version, reason, time.monotonic() + RETRY)
        else:
            self._ended[path] = version
        self._outcome.failures[str(path)] = reason
        if not repeated:
            complain("Error", f"{datetime.now():%Y-%m-%d %H:%M:%S} {told}")
            self._note({"input": str(path), "error": reason})

    def _note(self, report: dict[str, Any], keep: Callable[[dict[str, Any]], None] = lambda report: None) -> None:
        """A line of JSON, if that is wanted, and one for the journal."""
        report = {"time": datetime.now().astimezone().isoformat(timespec="seconds")} | report
        if self._settings.as_json:
            print(json_text(report), flush=True)
        try:
            keep(report)
        except OSError as error:  # the result is there; a restart judges it by its time
            complain("Warning", f"{self._journal.path}: could not be written ({error.strerror})")

    def _check_target(self, path: Path) -> None:
        reads = list(filter(None, [self._settings.noise_map]))
        target = self._target(path)
        if target.is_symlink() and target.resolve().is_relative_to(self._folder.resolve()):
            reads.append(target.resolve())
        check_outputs([(path, target)], self._settings, reads)

    def _place(self, path: Path) -> Path:
        return path.relative_to(self._folder)

    def _target(self, path: Path) -> Path:
        return self._out / self._place(path)

    def _unreadable(self, error: OSError, troubles: list[str]) -> None:
        """Of a folder in the folder: the others go on."""
        if Path(error.filename) == self._folder:
            raise error
        troubles.append(in_words(error))

    def tell_of_end(self) -> None:
        """Somebody asked for it."""
        if self._in_work is not None:
            complain("Note", f"ends after {self._in_work}; a second Ctrl-C ends at once")

    def close(self) -> None:
        """Say how many files there were. Where all were to be done, one that failed is an error."""
        done, failed, skipped = map(len, (self._outcome.results, self._outcome.failures, set(self._outcome.skipped)))
        complain("Note", f"{done} done, {failed} failed, {skipped} had their results already")
        if failed and self._once:
            raise typer.Exit(1)


def _is_of_the_system(error: BaseException) -> bool:
    """Whether it says nothing about what is in the file: decoders' errors have no number of the system."""
    return any(isinstance(one, OSError) and one.errno is not None for one in (error, error.__cause__))
