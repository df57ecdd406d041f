"""How a run is shown in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchdeal.training.report import Listener, Report
from torchdeal.training.validation import describe


class Display:
    """A bar in a terminal; lines where the output goes to a file."""

    def __init__(self, console: Console):
        self.console = console
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("training", total=None, state="")

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def listener(self) -> Listener:
        return Listener(
            report=self._report, validated=lambda *told: self._message(describe(*told)), message=self._message
        )

    def _report(self, report: Report) -> None:
        state = (
            f"loss {report.loss:.2f}  PSNR {report.psnr:.2f} dB  {report.iterations:.1f} outer, "
            f"{report.cg_iterations:.0f} CG  {report.steps_per_second:.1f} steps/s"
        )
        self.bar.update(self.task, completed=report.step, total=report.steps, state=state)
        if not self.console.is_terminal:
            self._message(str(report))

    def _message(self, text: str) -> None:
        self.bar.console.print(text, markup=False)


def joined(*listeners: Listener) -> Listener:
    """One listener that tells all of them."""

    def tell(name: str):
        def call(*arguments: object) -> None:
            for listener in listeners:
                getattr(listener, name)(*arguments)

        return call

    return Listener(*(tell(name) for name in ("report", "validated", "example", "message")))
