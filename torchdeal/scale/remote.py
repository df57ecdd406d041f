"""What another process does for this one: plain data goes there, the model is loaded there once, an answer comes back.

A process solves one thing at a time, with few threads: a cluster has many processes, and they share the cores.
"""

from __future__ import annotations

import hashlib
import logging
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

import torchdeal
from torchdeal.model import DEAL
from torchdeal.scale.batches import batch_size
from torchdeal.scale.grid import Tile
from torchdeal.scale.local import Holes, LocalOperator, SameEverywhere
from torchdeal.scale.tiles import Shared, TileRun, solve_tiles

MODELS_KEPT = 4  # loaded in a process

_busy = threading.Lock()


@dataclass(frozen=True, eq=False)
class SentModel:
    """The weights of a model as plain arrays, and how many threads they are used with.

    Attributes:
        version: of the package that sends it.
        configuration: arguments of `DEAL`.
        arrays: parameters by name.
        digest: tells it from others.
        device: where it is to compute: "cpu", "cuda", or "auto": on the GPU of the worker, if it has one.
        threads: of torch; None: as many as the worker has.
    """

    version: str
    configuration: tuple[int, str, int]
    arrays: dict[str, np.ndarray]
    digest: str
    device: str = "auto"
    threads: int | None = None

    @classmethod
    def of(cls, model: DEAL, device: str = "auto", threads: int | None = None) -> SentModel:
        arrays = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
        configuration = (model.channels, model.boundary.value, model.features)
        found = hashlib.sha256(repr(configuration).encode())
        for name, array in sorted(arrays.items()):
            found.update(name.encode() + array.tobytes())
        return cls(torchdeal.__version__, configuration, arrays, found.hexdigest(), device, threads)


def solve_there(
    sent: SentModel, knobs: Shared, pixels: Sequence[np.ndarray], tiles: Sequence[Tile]
) -> list[tuple[np.ndarray, TileRun]]:
    """On a worker: as `solve_tiles`, with knobs that have no model."""
    check_version(sent.version)
    with one_at_a_time(sent.threads, sent.device):
        return solve_tiles(pixels, tiles, replace(knobs, model=_model_here(sent)))


def together_there(pixels: int, features: int, device: str) -> int:
    """On a worker: how many tiles of so many pixels it solves together."""
    with one_at_a_time(None, device):
        return batch_size(pixels, features, device_here(device))


def without_model(shared: Shared, tiles: Sequence[Tile]) -> Shared:
    """What tiles share, to be sent along: of a mask, the part that these tiles see."""
    return replace(shared, model=None, operator=_sent_operator(shared.operator, tiles))  # type: ignore[arg-type]


def check_worker(version: str, device: str, dask_worker: Any) -> None:
    """Raise on a worker that cannot be used. Dask says which one it is."""
    check_version(version)
    own_gpu(str(dask_worker.name), device)


def check_version(version: str) -> None:
    """Raise on a worker whose package is another one: its answers might differ."""
    if version != torchdeal.__version__:
        raise RuntimeError(
            f"a worker has torchdeal {torchdeal.__version__}, and this is {version}: install the same version there"
        )


@contextmanager
def one_at_a_time(threads: int | None, device: str) -> Iterator[None]:
    """Within, this process does nothing else, torch has so many threads, and the GPU is that of the worker."""
    worker = worker_here()
    with _busy:
        before = torch.get_num_threads()
        if worker is not None:
            torch.set_num_threads(threads or worker.state.nthreads)
            gpu = own_gpu(str(worker.name), device)
            if gpu is not None:
                torch.cuda.set_device(gpu)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def dask_setup(worker: Any) -> None:
    """In a worker of this machine: Ctrl-C is for the command, which ends its workers and says what is to be said."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.ERROR)


def worker_here() -> Any:
    """The worker of Dask that this is; None elsewhere."""
    try:
        from distributed import get_worker

        return get_worker()
    except (ImportError, ValueError):
        return None


def own_gpu(name: str, device: str) -> int | None:
    """Of the GPUs that the worker of this name sees, its own; None where it uses none.

    The number at the end of its name says which, so that workers of one machine have different ones. Dask-CUDA lets
    each of its workers see its own GPU first.
    """
    count = gpus_for(device)
    if count < 2 or "dask_cuda" in sys.modules:
        return 0 if count else None
    number = re.search(r"\d+$", name)
    if number is None or "://" in name:  # one without a name has its address, which ends in any number
        raise RuntimeError(
            f"the worker {name} sees {count} GPUs, and its name has no number that says which is its own: start it by "
            f"dask worker --name NAME --nworkers {count}, or with a CUDA_VISIBLE_DEVICES of its own"
        )
    return int(number[0]) % count


def gpus_for(device: str) -> int:
    """How many GPUs this process can use, where it is to compute on this device: "cpu", "cuda" or "auto"."""
    return torch.cuda.device_count() if device in ("cuda", "auto") else 0


def device_here(wish: str) -> str:
    """What "auto" is here."""
    if wish != "auto":
        return wish
    return "cuda" if torch.cuda.is_available() else "cpu"


class _ByDigest:
    """A key for the models of this process, which holds what is needed where the key is new."""

    def __init__(self, sent: SentModel, device: str):
        self.sent, self.device = sent, device

    def __hash__(self) -> int:
        return hash((self.sent.digest, self.device))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByDigest) and (self.sent.digest, self.device) == (other.sent.digest, other.device)


def _model_here(sent: SentModel) -> DEAL:
    return _loaded(_ByDigest(sent, device_here(sent.device)))


@lru_cache(MODELS_KEPT)
def _loaded(key: _ByDigest) -> DEAL:
    model = DEAL(*key.sent.configuration)
    model.load_state_dict({name: torch.tensor(array) for name, array in key.sent.arrays.items()})
    return model.eval().requires_grad_(False).to(key.device)


def _sent_operator(operator: LocalOperator, tiles: Sequence[Tile]) -> LocalOperator:
    if isinstance(operator, Holes):  # reads a file that workers may not have
        return SameEverywhere(operator.on(*(tile.read for tile in tiles)))
    if isinstance(operator, SameEverywhere):  # a worker may have no such device
        return replace(operator, operator=operator.operator.to("cpu"))
    return operator
