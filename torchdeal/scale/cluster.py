"""Tiles and files on the workers of Dask: processes of this machine, or of many.

What is read goes to the workers with each task, through the scheduler, and the answers come back here to be written.
So a worker needs neither the input nor the output, and one that dies takes nothing along: Dask gives its tasks to
another. A few tasks for each worker are on their way at a time, so that memory is bounded.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, TypeVar

import torchdeal
from torchdeal.extras import optional
from torchdeal.model import DEAL
from torchdeal.scale.large import TileWork
from torchdeal.scale.remote import SentModel, check_worker, gpus_for, solve_there, together_there, without_model

EXTRA = "dask"  # of the package
AHEAD = 3  # tasks for each worker that are on their way: one is solved, one waits, one travels
SECONDS_TO_CONNECT = 10
LOCAL = "local"
# By default Dask has workers give memory back at once: torch then asks for the same pages again in each operation.
TRIMMING = "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"
WORKERS_MODULE = "torchdeal.scale.remote"  # whose `dask_setup` Dask calls in a new worker
ADDRESS = re.compile(r"(\w+://)?\S+:\d+")

Item = TypeVar("Item")


class ClusterError(OSError):
    """A cluster that is not there, or not of use."""


class Cluster:
    """The workers behind a client of Dask.

    Args:
        client: a `dask.distributed.Client`.
        device: of the workers: "cpu", "cuda", or "auto".
        threads: of torch in each of them; None: as many as the worker has.
    """

    def __init__(self, client: Any, device: str = "auto", threads: int | None = None):
        self.client, self.device, self.threads = client, device, threads
        self._sent: dict[int, tuple[DEAL, SentModel]] = {}
        self._together: dict[tuple[int, int], int] = {}
        self.address = client.scheduler.address if client.scheduler else "?"
        self._check_workers()

    @property
    def workers(self) -> int:
        """How many there are now."""
        return len(self.client.nthreads())

    @property
    def dashboard(self) -> str | None:
        """Where the cluster can be watched, if it can."""
        has_one = "dashboard" in self.client.scheduler_info().get("services", {})
        return self.client.dashboard_link if has_one else None

    def solve(self, works: Iterable[TileWork]) -> Iterator[tuple[TileWork, Any]]:
        """The engine of `run_tiles`."""

        def begin(work: TileWork) -> Any:
            knobs = without_model(work.shared, work.tiles)
            return self.submit(solve_there, self._model(work.shared.model), knobs, work.pixels, work.tiles)

        return self.in_order(begin, works)

    def together(self, pixels: int, features: int) -> int:
        """How many tiles of so many pixels a worker solves at a time; one of them is asked, the first time."""
        asked = pixels, features
        if asked not in self._together:
            with self._in_words():
                self._together[asked] = self.submit(together_there, *asked, self.device).result()
        return self._together[asked]

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The future of a task: never the answer of an earlier one that looked alike."""
        return self.client.submit(function, *arguments, pure=False)

    def in_order(self, begin: Callable[[Item], Any], items: Iterable[Item]) -> Iterator[tuple[Item, Any]]:
        """Each item with what its future gives; a few are on their way at a time."""
        waiting: deque[tuple[Item, Any]] = deque()
        try:
            with self._in_words():
                for item in items:
                    waiting.append((item, begin(item)))
                    if len(waiting) >= AHEAD * max(self.workers, 1):
                        yield self._answer(waiting)
                while waiting:
                    yield self._answer(waiting)
        finally:
            if waiting and self.client.status == "running":
                self.client.cancel([future for _, future in waiting], force=True)

    def _answer(self, waiting: deque[tuple[Item, Any]]) -> tuple[Item, Any]:
        item, future = waiting[0]
        found = future.result()
        waiting.popleft()
        return item, found

    def _model(self, model: DEAL) -> SentModel:
        """It goes along with each task: were it a task of its own, Dask would prefer the worker that has it."""
        if id(model) not in self._sent:  # the model is kept, so that no other gets its id
            self._sent[id(model)] = model, SentModel.of(model, self.device, self.threads)
        return self._sent[id(model)][1]

    def _check_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
        except TimeoutError:
            raise ClusterError(
                f"{self.address}: no worker has joined this scheduler: start some by dask worker"
            ) from None
        try:
            self.client.run(check_worker, torchdeal.__version__, self.device)
        except RuntimeError as error:
            raise ClusterError(str(error)) from None
        except Exception as error:  # whatever a worker raises that does not know this package
            raise ClusterError(
                f"the workers at {self.address} cannot use torchdeal {torchdeal.__version__} ({_first_line(error)}): "
                "install the same version there"
            ) from None

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """What can happen to a cluster, as a ClusterError; errors of the tasks are as they are."""
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        try:
            yield
        except KilledWorker:
            raise ClusterError(
                "several workers died at the same task: perhaps it takes more memory than they have; try a smaller "
                "--tile, or fewer workers"
            ) from None
        except (CommClosedError, CancelledError):
            raise ClusterError(
                f"the connection to the scheduler {self.address} was lost; what is done is kept: go on by --resume "
                "(tiles) or --skip-existing (files)"
            ) from None


@contextmanager
def open_cluster(wish: str, device: str = "auto") -> Iterator[Cluster]:
    """Workers by a text: the address of a scheduler, or processes of this machine, while it lasts.

    Args:
        wish: the address; `N` or `local:N`: so many processes; `local`: one for each GPU, or for each core without.
        device: of the workers: "cpu", "cuda", or "auto".
    """
    distributed = optional("distributed", "running on a cluster", EXTRA)
    number = str(gpus_for(device) or _cores()) if wish == LOCAL else wish.removeprefix(f"{LOCAL}:")
    if not number.isdecimal():
        if not ADDRESS.fullmatch(wish):
            raise ValueError(
                f"--dask {wish}: give the address of a scheduler, such as tcp://host:8786, or a number, or local"
            )
        with _connected(distributed, wish) as client:
            yield Cluster(client, device)
        return
    count = int(number)
    if count < 1:
        raise ValueError(f"--dask {wish}: at least 1 process is needed")
    # Tasks of a worker come one by one; the cores that it has are for torch.
    options = {"n_workers": count, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        optional("dask", "running on a cluster", EXTRA).config.set({TRIMMING: None}),
        distributed.LocalCluster(**options, preload=[WORKERS_MODULE]) as local,
        _connected(distributed, local) as client,
    ):
        yield Cluster(client, device, max(1, _cores() // count))


@contextmanager
def _connected(distributed: Any, address: Any) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(
            f"{address}: no scheduler of Dask answers there ({_first_line(error)}): start one by dask scheduler"
        ) from None
    try:
        yield client
    finally:
        client.close()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
