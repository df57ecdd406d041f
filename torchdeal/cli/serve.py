"""`deal serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchdeal.cli.shared import Device, DeviceChoice, WeightsSize, complain, device_name, say
from torchdeal.extras import optional
from torchdeal.io.formats import MOST_VALUES_VARIABLE

if TYPE_CHECKING:
    from torchdeal.scale.serve.service import ServeSettings

PORT = 8750
TOKEN_VARIABLE = "TORCHDEAL_TOKEN"
CHANNELS = 4  # of a picture, at most: colours and transparency

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal serve[/bold]   (for this machine alone)\n\n"
    "[bold]curl -F image=@noisy.png 'http://localhost:8750/v1/denoise?sigma=25' -o clean.png[/bold]   (a request)\n\n"
    "[bold]deal serve --weights light --max-pixels 4000000 --queue 64[/bold]\n\n"
    "[bold]TORCHDEAL_TOKEN=secret deal serve --host 0.0.0.0[/bold]   (for other machines, too)\n\n"
    "[bold]deal serve --host 0.0.0.0 --token-file /run/secrets/deal[/bold]"
)


def serve(
    host: Annotated[
        str, typer.Option(help="Where to listen. Other machines can ask where it is not 127.0.0.1: with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN_VARIABLE,
            help="What each request must bring. Others on this machine can see it here: better set the variable.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="In place of --token: a file that holds it.")
    ] = None,
    weights: Annotated[
        WeightsSize, typer.Option(help="Those that are used where a request names none. light is faster.")
    ] = WeightsSize.FULL,
    max_pixels: Annotated[int, typer.Option(min=64, help="Pixels of a result, at most.")] = 2**20,
    max_megabytes: Annotated[int, typer.Option(min=1, max=4096, help="Size of a request, at most.")] = 32,
    queue: Annotated[int, typer.Option(min=1, max=10000, help="Pictures that may wait. Others are told to wait.")] = 32,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Pictures of one size that wait together are denoised together, at most so many. Default: 8 on CUDA, "
            "else 1.",
        ),
    ] = None,
    upload_seconds: Annotated[float, typer.Option(min=0.1, help="In which a request must have arrived.")] = 30.0,
    answer_seconds: Annotated[float, typer.Option(min=0.1, help="In which it must be answered, from then on.")] = 300.0,
    device: DeviceChoice = Device.auto,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log errors alone, and not each request.")] = False,
) -> None:
    """Answer requests over HTTP: pictures in, pictures out. The description is at /docs."""
    for module in ("fastapi", "uvicorn", "prometheus_client", "python_multipart"):
        optional(module, "deal serve", "serve")
    from torchdeal.scale.serve.service import ServeSettings

    settings = ServeSettings(
        host=host,
        token=_token(token, token_file),
        device=device_name(device),
        weights=weights,
        megabytes=max_megabytes,
        pixels=max_pixels,
        queue=queue,
        batch=batch,
        upload_seconds=upload_seconds,
        answer_seconds=answer_seconds,
    )
    _run(settings, port, quiet)


def _run(settings: ServeSettings, port: int, quiet: bool) -> None:
    """Until it is told to end."""
    from torchdeal.app.guard import is_loopback
    from torchdeal.app.serving import listening
    from torchdeal.scale.serve.api import create
    from torchdeal.scale.serve.running import log_to_stderr, serve

    open_to_others = not is_loopback(settings.host)
    if open_to_others and settings.token is None:
        raise ValueError(f"--host {settings.host} lets other machines ask: set {TOKEN_VARIABLE}, or give --token-file")
    os.environ.setdefault(MOST_VALUES_VARIABLE, str(CHANNELS * settings.pixels))
    log_to_stderr(quiet)
    app = create(settings)
    with listening(settings.host, port) as (sockets, address):
        say(f"The service is at {address}  ({address}docs describes it, Ctrl-C ends it)")
        if open_to_others:
            complain("Note", "other machines can reach it. It is not encrypted: put a proxy with TLS in front of it")
        serve(app, sockets)


def _token(given: str | None, file: Path | None) -> str | None:
    if file is None:
        return (given or "").strip() or None
    if given:
        raise ValueError(f"the token is given twice: by --token-file, and by --token or {TOKEN_VARIABLE}")
    text = file.read_text(encoding="utf-8").strip()
    if not text or len(text.split()) > 1:
        raise ValueError(f"{file}: a token is one word, this file has {len(text.split())}")
    return text
