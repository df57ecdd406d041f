"""`deal serve` under load: how many pictures a second, how long one waits, harmful clients, memory.

The server is a process of its own, on this machine; the clients are threads of this one. Each answer is compared with
that of `torchdeal.denoise`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from torchdeal.benchmark.clients import HARMFUL, UPLOAD_SECONDS, ServerProcess, server
from torchdeal.benchmark.core import Save, Say
from torchdeal.benchmark.images import sample_picture
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.reporting.tables import Section, Table, number
from torchdeal.benchmark.results import Results, Row, Values, device_name
from torchdeal.io.checkpoint import checksum, load
from torchdeal.reconstruct import denoise
from torchdeal.scale.client import Client

OURS, WEIGHTS = "deal-light", "gray-light"
SIDE, SIGMA = 24, 25.0
REQUESTS, QUICK_REQUESTS = 64, 4
CLIENTS, BATCHES = (1, 4, 16), (1, 8)
MIXED, QUICK_MIXED = 2000, 8  # requests, for memory
SIDES = range(16, 41, 4)
BUSY_CLIENTS, SHORT_QUEUE = 12, 2
ALONE = "without a server"
SERVER_SECONDS = "process_cpu_seconds_total"  # in its metrics
LOAD, CROWD, HARM, MEMORY = "load", "more than may wait", "harmful clients", "memory"
PROTOCOL = (
    f"deal serve and its clients on one machine, gray pictures of {SIDE} x {SIDE} pixels, noise of sigma {SIGMA:g}, "
    "light weights. Seconds are those that a client waits. In a batch of 1 each picture is solved alone."
)


class Serve:
    """The experiment: one server after the other."""

    about = "Requests over HTTP: pictures a second, waiting times, harmful clients, and memory."

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol."""
        place = {"device": device_name(options.device), "threads": torch.get_num_threads()}
        return {"protocol": PROTOCOL, "quick": options.quick, "limit": options.limit, **place}

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing."""
        results.weights[OURS] = {WEIGHTS: checksum(WEIGHTS)}
        parts = {LOAD: _load, CROWD: _crowd, HARM: _harm, MEMORY: _memory}
        for name in options.chosen(list(parts)):
            results.cells.setdefault(name, {"table": "Serve", "column": name})
            done = {row.variant for row in results.select(name, OURS)}
            for variant, values in parts[name](options, done):
                results.add(Row(name, "camera", OURS, values, variant, len(results.environments) - 1))
                save()
                say(f"{name}, {variant}: {values}")

    def sections(self, results: Results) -> Iterator[Section]:
        shown = {LOAD: _load_table, CROWD: _crowd_table, HARM: _harm_table, MEMORY: _memory_table}
        for name, table in shown.items():
            rows = results.select(name, OURS)
            if rows:
                yield Section(f"Serve: {name}", "", [table(rows)])


def _pictures(options: BenchmarkOptions, count: int) -> list[np.ndarray]:
    """Parts of a picture, with noise, in 8 bits."""
    clean = sample_picture(options.images, 1, 512)[1][0, 0].numpy() * 255
    draws = np.random.RandomState(0)
    corners = draws.randint(0, 512 - SIDE, (count, 2))
    crops = (clean[row : row + SIDE, column : column + SIDE] for row, column in corners)
    return [(crop + SIGMA * draws.randn(*crop.shape)).clip(0, 255).round().astype(np.uint8) for crop in crops]


def _load(options: BenchmarkOptions, done: set[str]) -> Iterator[tuple[str, Values]]:
    count = options.limit or (QUICK_REQUESTS if options.quick else REQUESTS)
    pictures = _pictures(options, count)
    model = load(WEIGHTS, device=options.device)
    denoise(pictures[0], SIGMA, model=model)  # to warm up
    busy, cpu = busy_seconds(), time.process_time()
    answers, seconds = zip(*(_timed(partial(denoise, y, SIGMA, model=model)) for y in pictures), strict=True)
    known = {"cpu": (time.process_time() - cpu) / count, "others": (busy_seconds() - busy) / sum(seconds)}
    if ALONE not in done:
        waits = _waits(seconds, sum(seconds))
        yield ALONE, {"clients": 1, **waits, "requests": count, "answered": count, **known}
    for batch in BATCHES:
        missing = [n for n in CLIENTS if _load_name(n, batch) not in done]
        if not missing:
            continue
        with server("--batch", str(batch), "--device", options.device) as running:
            _asked(running, pictures[:2], 1)  # to warm up
            for clients in missing:
                yield _load_name(clients, batch), _under_load(running, pictures, answers, clients, batch)


def _load_name(clients: int, batch: int) -> str:
    return f"clients: {clients}, batch: {batch}"


def _under_load(
    running: ServerProcess, pictures: Sequence[np.ndarray], answers: Sequence[np.ndarray], clients: int, batch: int
) -> Values:
    before, busy = running.metrics(), busy_seconds()
    (found, seconds), total = _timed(lambda: _asked(running, pictures, clients))
    after, busy = running.metrics(), busy_seconds() - busy
    cpu = after[SERVER_SECONDS] - before[SERVER_SECONDS]
    solved, solves = (after[f"deal_batch_size_{name}"] - before[f"deal_batch_size_{name}"] for name in ("sum", "count"))
    off = [np.abs(one.astype(int) - other).max() for one, other in zip(found, answers, strict=True)]
    together = {"batch": batch, "mean_batch": solved / solves, "answered": len(found), "different": max(map(int, off))}
    return {
        "clients": clients,
        **_waits(seconds, total),
        "requests": len(pictures),
        **together,
        "cpu": cpu / len(pictures),
        "others": (busy - cpu) / total,
    }


def _asked(running: ServerProcess, pictures: Sequence[np.ndarray], clients: int) -> tuple[list[Any], list[float]]:
    """Answers, and how long each was waited for. An error of one ends it all."""
    with Client(running.url) as client, ThreadPoolExecutor(clients) as people:
        timed = list(people.map(lambda y: _timed(lambda: client.denoise(y, SIGMA).image), pictures))
    return [answer for answer, _ in timed], [seconds for _, seconds in timed]


def _timed(call: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - started


def busy_seconds() -> float:
    """Of all processors, without what this process did; nan where the system does not tell (other than Linux)."""
    try:
        times = [int(number) for number in Path("/proc/stat").read_text().split("\n")[0].split()[1:8]]
    except (OSError, ValueError):
        return math.nan
    idle = times[3] + times[4]
    return (sum(times) - idle) / os.sysconf("SC_CLK_TCK") - time.process_time()


def _waits(seconds: Sequence[float], total: float) -> Values:
    tails = {f"p{part}": float(np.percentile(seconds, part)) for part in (95, 99)}
    return {"per_second": len(seconds) / total, "median": median(seconds), **tails}


def _crowd(options: BenchmarkOptions, done: set[str]) -> Iterator[tuple[str, Values]]:
    """More clients than may wait: all must have their answers in the end."""
    if "crowd" in done:
        return
    pictures = _pictures(options, BUSY_CLIENTS * (1 if options.quick else 3))
    with server("--queue", str(SHORT_QUEUE), "--device", options.device) as running:
        found, seconds = _asked(running, pictures, BUSY_CLIENTS)
        counted = running.metrics()
    values = {"clients": BUSY_CLIENTS, "queue": SHORT_QUEUE, "requests": len(pictures), "answered": len(found)}
    sent_away = counted.get('deal_requests_total{goal="denoise",outcome="busy"}', 0.0)
    yield "crowd", {**values, "sent_away": sent_away, "longest": max(seconds)}


def _harm(options: BenchmarkOptions, done: set[str]) -> Iterator[tuple[str, Values]]:
    """Each on its own; then the server must still be well, and know what happened."""
    missing = {name: client for name, client in HARMFUL.items() if name not in done}
    if not missing:
        return
    with server("--upload-seconds", str(UPLOAD_SECONDS), "--max-megabytes", "8", "--device", "cpu") as running:
        before = running.mebibytes
        for name, (expected, harm) in missing.items():
            answered = harm(running)
            yield name, {"expected": expected, "answered_by": answered, "well": _is_well(running, options)}
        yield "memory", {"expected": "", "mib": running.mebibytes - before, "well": True}


def _is_well(running: ServerProcess, options: BenchmarkOptions) -> bool:
    """Ready, nothing in flight for long, and a picture is answered as it should be."""
    (picture,) = _pictures(options, 1)
    expected = denoise(picture, SIGMA, model=WEIGHTS, max_iterations=200)
    with Client(running.url) as client:
        right = np.array_equal(client.denoise(picture, SIGMA).image, expected)
    return bool(right and running.http.get("/health").json()["ready"] and running.metrics()["deal_in_flight"] == 0)


def _memory(options: BenchmarkOptions, done: set[str]) -> Iterator[tuple[str, Values]]:
    """Small pictures of many sizes, few iterations."""
    count = options.limit or (QUICK_MIXED if options.quick else MIXED)
    if done:
        return
    draws = np.random.RandomState(0)
    with server("--device", options.device) as running, Client(running.url) as client, ThreadPoolExecutor(4) as people:

        def ask(size: tuple[int, int]) -> bool:
            picture = np.random.RandomState(sum(size)).randint(0, 256, size).astype(np.uint8)
            return client.denoise(picture, SIGMA, tolerance=0.1, max_iterations=2).image.shape == size

        answered = 0
        for quarter in range(1, 5):
            sizes = [(int(row), int(column)) for row, column in draws.choice(SIDES, (count // 4, 2))]
            answered += sum(people.map(ask, sizes))
            values = {"requests": quarter * (count // 4), "answered": answered, "mib": running.mebibytes}
            yield f"after {values['requests']}", values


def _load_table(rows: Sequence[Row]) -> Table:
    head = [
        "clients",
        "batch",
        "pictures/s",
        "median, s",
        "95 %, s",
        "99 %, s",
        "mean batch",
        "answered",
        "gray levels off",
        "CPU s a picture",
        "cores that other programs took",
    ]
    lines = []
    for row in rows:
        v = row.values
        alone = "batch" not in v
        lines.append(
            [
                "none: in Python, one after the other" if alone else str(v["clients"]),
                "" if alone else str(v["batch"]),
                *(number(v[name]) for name in ("per_second", "median", "p95", "p99")),
                "" if alone else number(v["mean_batch"]),
                f"{v['answered']} of {v['requests']}",
                "" if alone else str(v["different"]),
                *(number(v[name]) if name in v else "" for name in ("cpu", "others")),
            ]
        )
    return Table(head, lines)


def _crowd_table(rows: Sequence[Row]) -> Table:
    head = ["clients", "may wait", "answered", "sent away, and came again", "longest, s"]
    return Table(
        head,
        [
            [
                str(row.values["clients"]),
                str(row.values["queue"]),
                f"{row.values['answered']} of {row.values['requests']}",
                number(row.values["sent_away"]),
                number(row.values["longest"]),
            ]
            for row in rows
        ],
    )


def _harm_table(rows: Sequence[Row]) -> Table:
    clients = [row for row in rows if row.variant in HARMFUL]
    head = ["what a client does", "expected", "answer", "the server is well afterwards"]
    lines = [
        [row.variant, row.values["expected"], row.values["answered_by"], "yes" if row.values["well"] else "NO"]
        for row in clients
    ]
    return Table(head, lines)


def _memory_table(rows: Sequence[Row]) -> Table:
    head = ["requests", "answered", "memory of the server, MiB"]
    lines = [[str(r.values["requests"]), str(r.values["answered"]), number(r.values["mib"])] for r in rows]
    return Table(head, lines)


EXPERIMENT = Serve()
