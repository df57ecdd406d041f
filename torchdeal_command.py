"""The command `deal`, beside the package: importing that takes seconds, and Ctrl-C is to end these in silence too."""

import os
import signal


def main() -> None:
    """Import the package, then run the command."""
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # not so where the shell has Ctrl-C ignored
        signal.signal(signal.SIGINT, _end)
    from torchdeal.cli import main

    try:
        signal.signal(signal.SIGINT, interrupted)
        main()
    finally:
        if interrupted is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)  # while Python tidies up


def _end(number: int, frame: object) -> None:
    os._exit(128 + number)  # nothing was begun that would have to be ended
