"""Functions for processes of their own: they are found there by the name of this module."""

import os
import signal
import threading

from torchdeal.benchmark.alone import MIB, PeakMemory


def add(a, b):
    return a + b


def fail():
    raise ZeroDivisionError("this is not possible")


def die(*_):
    os._exit(3)


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever():
    threading.Event().wait()


def hold(before, mib):
    """What is counted of so many MiB, after others were held and given back."""
    earlier = bytearray(before * MIB)
    del earlier
    memory = PeakMemory("cpu")
    held = bytearray(mib * MIB)
    return memory.mib(), len(held)
