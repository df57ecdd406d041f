"""`deal app`."""

from __future__ import annotations

import os
import secrets
import threading
import webbrowser
from typing import Annotated

import typer

from torchdeal.cli.shared import Device, DeviceChoice, complain, device_name, say
from torchdeal.extras import optional
from torchdeal.io.formats import MOST_VALUES_VARIABLE

PORT = 8765
PASSWORD_VARIABLE = "TORCHDEAL_PASSWORD"
MOST_VALUES = 200_000_000  # of a picture that somebody brings, before a part of it is taken: 65 megapixels in colour

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal app[/bold]   (a page in your browser; nothing leaves this machine)\n\n"
    "[bold]deal app --host 0.0.0.0 --max-pixels 4000000[/bold]   (for others too, with a password)"
)


def app(
    host: Annotated[
        str, typer.Option(help="Where to listen. Other machines can ask where it is not 127.0.0.1: then a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = PORT,
    password: Annotated[
        str | None,
        typer.Option(
            envvar=PASSWORD_VARIABLE,
            help="What the page asks for. Default: none on 127.0.0.1, else a new one that is printed.",
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
    max_pixels: Annotated[int, typer.Option(min=64, help="Pixels of a result, at most.")] = 2**20,
    max_megabytes: Annotated[int, typer.Option(min=1, max=4096, help="Size of an uploaded file, at most.")] = 64,
    device: DeviceChoice = Device.auto,
) -> None:
    """Open a page in the browser: drop a picture, see the result and why. Everything runs on this machine."""
    for module in ("starlette", "uvicorn"):
        optional(module, "deal app", "app")
    from torchdeal.app.guard import is_loopback
    from torchdeal.app.server import Limits, create
    from torchdeal.app.serving import listening, serve

    os.environ.setdefault(MOST_VALUES_VARIABLE, str(MOST_VALUES))
    open_to_others = not is_loopback(host)
    if open_to_others and not password:
        password = secrets.token_urlsafe(9)
        say(f"The password of the page is {password}")
    limits = Limits(megabytes=max_megabytes, pixels=max_pixels)
    page = create(host=host, password=password or None, device=device_name(device), limits=limits)
    with listening(host, port) as (sockets, address):
        say(f"The page is at {address}  (Ctrl-C ends it)")
        if open_to_others:
            complain("Note", "other machines can reach this page. It is not encrypted: use it in a network you trust")
        if not no_browser and not open_to_others:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        serve(page, sockets)
