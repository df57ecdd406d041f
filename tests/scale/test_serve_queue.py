"""Who waits, who is solved together, who is sent away, and what happens when nobody waits any more."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("prometheus_client", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("httpx", reason="tests of deal serve need httpx")

import anyio
from app.visitors import as_file, noisy_pixels
from scale.servers import PHOTO, QUICK, ask, npy, serving

import torchdeal as td
from torchdeal.app.uploads import Upload
from torchdeal.scale.serve import worker
from torchdeal.scale.serve.asked import AskedDenoise
from torchdeal.scale.serve.orders import prepared

SIGMAS = 10, 20, 30
SECONDS = 20  # a test that waits longer has failed


@pytest.fixture
def held(monkeypatch):
    """The first solve waits until it is let go; all say which pictures they had."""
    real, go, begun, batches = worker.solve_together, threading.Event(), threading.Event(), []

    def solve(problems, *arguments, **options):
        batches.append(len(problems))
        begun.set()
        assert go.wait(SECONDS)
        return real(problems, *arguments, **options)

    monkeypatch.setattr(worker, "solve_together", solve)
    solve.go, solve.begun, solve.batches = go, begun, batches
    yield solve
    go.set()


def until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def waiting(client):
    return len(client.service.worker._waiting)


def test_pictures_that_wait_together_are_solved_together(held):
    """Of one size, with a level each; another size, other weights and another goal are left alone."""
    noise = [noisy_pixels(size=16, sigma=sigma) for sigma in SIGMAS]
    with serving(batch=8) as client, ThreadPoolExecutor(8) as people:
        first = people.submit(ask, client)
        assert held.begun.wait(SECONDS)
        alike = [people.submit(ask, client, content=as_file(y), sigma=s) for y, s in zip(noise, SIGMAS, strict=True)]
        others = [
            people.submit(ask, client, content=as_file(noisy_pixels(size=20)), max_iterations=1),
            people.submit(ask, client, model="gray", max_iterations=1),
            people.submit(ask, client, "upscale", scale=2, lam=1, model_sigma=20, max_iterations=1),
        ]
        until(lambda: waiting(client) == 6)
        held.go.set()
        answers = [one.result() for one in (first, *alike, *others)]
    assert [answer.status_code for answer in answers] == 7 * [200]
    assert sorted(held.batches) == [1, 1, 1, 1, 3]
    for answer, y, sigma in zip(answers[1:4], noise, SIGMAS, strict=True):
        assert '"batch": 3' in answer.headers["deal-report"]
        assert f'"sigma": {float(sigma)}' in answer.headers["deal-report"]
        alone = td.denoise(y, sigma=sigma, tolerance=0.05, model="gray-light").astype(float)
        found = np.asarray(as_pixels(answer), float)
        assert np.linalg.norm(found - alone) < 0.05 * np.linalg.norm(alone)


def as_pixels(answer):
    import io

    from PIL import Image

    return Image.open(io.BytesIO(answer.content))


def test_a_picture_that_fails_does_not_spoil_its_batch(held, monkeypatch):
    real = held

    def solve(problems, *arguments, **options):
        if len(problems) > 1 or float(problems[0].y.mean()) < 1:
            raise ValueError("this cannot be")
        return real(problems, *arguments, **options)

    monkeypatch.setattr(worker, "solve_together", solve)
    black = noisy_pixels(size=16) * 0
    with serving(batch=4) as client, ThreadPoolExecutor(4) as people:
        first = people.submit(ask, client)
        assert held.begun.wait(SECONDS)
        pair = [people.submit(ask, client), people.submit(ask, client, content=as_file(black))]
        until(lambda: waiting(client) == 2)
        held.go.set()
        statuses = [one.result().status_code for one in (first, *pair)]
    assert statuses == [200, 200, 422]


def test_a_batch_that_does_not_fit_into_the_memory_is_halved(held, monkeypatch):
    real = held

    def solve(problems, *arguments, **options):
        if len(problems) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return real(problems, *arguments, **options)

    monkeypatch.setattr(worker, "solve_together", solve)
    with serving(batch=4) as client, ThreadPoolExecutor(5) as people:
        first = people.submit(ask, client)
        assert held.begun.wait(SECONDS)
        four = [people.submit(ask, client) for _ in range(4)]
        until(lambda: waiting(client) == 4)
        held.go.set()
        answers = [one.result() for one in (first, *four)]
    assert [answer.status_code for answer in answers] == 5 * [200]
    assert held.batches == [1, 2, 2]


def test_too_many_are_told_when_to_come_again(held):
    with serving(queue=2) as client, ThreadPoolExecutor(4) as people:
        accepted = [people.submit(ask, client)]
        assert held.begun.wait(SECONDS)
        accepted += [people.submit(ask, client) for _ in range(2)]
        until(lambda: waiting(client) == 2)
        refused = ask(client)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert 'outcome="busy"} 1.0' in client.get("/metrics").text
        held.go.set()
        assert [one.result().status_code for one in accepted] == 3 * [200]


def test_what_takes_too_long_is_stopped(monkeypatch):
    """The run ends at the next iteration, and the next picture has its turn."""
    seen = []
    real = worker._Unwanted.look

    def slow(unwanted, state):
        seen.append(state.iteration)
        time.sleep(0.7)
        real(unwanted, state)

    monkeypatch.setattr(worker._Unwanted, "look", slow)
    with serving(answer_seconds=2.5) as client:
        until(lambda: client.service.worker.ready)
        late = ask(client, tolerance=1e-5)
        assert (late.status_code, late.json()["error"][:18]) == (504, "It is not done aft")
        monkeypatch.setattr(worker._Unwanted, "look", real)
        until(lambda: not client.service.worker._current)
        assert ask(client).status_code == 200
    assert len(seen) < 8


def test_who_leaves_is_not_worked_for(held):
    """The connection is closed while the picture is solved, and while another one waits."""
    body, kind = form()

    async def leave(client, when):
        async def receive():
            if not sent:
                sent.append(True)
                return {"type": "http.request", "body": body, "more_body": False}
            with anyio.fail_after(SECONDS):
                while not when():
                    await anyio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message):
            pass

        sent = []
        headers = [(b"host", b"localhost"), (b"content-type", kind.encode())]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/denoise",
            "raw_path": b"/v1/denoise",
            "headers": headers,
        }
        await client.app({**scope, "query_string": b"sigma=20", "http_version": "1.1", "scheme": "http"}, receive, send)

    with serving() as client:
        with ThreadPoolExecutor(2) as people:
            running = people.submit(anyio.run, leave, client, held.begun.is_set)
            running.result(SECONDS)
            anyio.run(leave, client, lambda: waiting(client) == 1)
            assert not client.service.worker.full
            assert waiting(client) == 0
        held.go.set()
        until(lambda: not client.service.worker._current)
        assert 'outcome="left"} 2.0' in client.get("/metrics").text
        assert 'outcome="done"' not in client.get("/metrics").text
    assert len(held.batches) == 1


def form():
    import httpx

    request = httpx.Request("POST", "http://localhost", files={"image": ("photo.png", PHOTO)})
    return request.read(), request.headers["content-type"]


def test_a_body_that_never_ends():
    """It does not say how long it is. Slow ones are in test_serve_process.py: they need a socket."""

    def endless():
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
        for _ in range(64):
            yield bytes(2**16)

    kind = {"content-type": "multipart/form-data; boundary=x"}
    with serving(megabytes=1) as client:
        endless_one = client.post("/v1/denoise", content=endless(), headers=kind)
        assert (endless_one.status_code, endless_one.headers["connection"]) == (413, "close")


def test_a_server_that_ends_takes_nothing_more(held):
    with serving() as client, ThreadPoolExecutor(2) as people:
        accepted = people.submit(ask, client)
        assert held.begun.wait(SECONDS)
        client.service.draining = True
        refused = ask(client)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert client.get("/health").status_code == 503
        held.go.set()
        assert accepted.result().status_code == 200


def test_a_server_that_cannot_compute_says_so(monkeypatch):
    """A thread that has ended, such as by weights that are damaged, keeps nobody waiting."""
    monkeypatch.setattr(worker.Worker, "_work", lambda self: None)
    with serving() as client:
        until(lambda: not client.service.worker.alive)
        assert ask(client).status_code == 503
        assert client.get("/health").json() | {"alive": False, "ready": False} == client.get("/health").json()


def test_what_is_alike(tmp_path):
    """Sigma may differ; the size, the weights and the tolerance may not."""

    def order(size=16, **asked):
        path = tmp_path / "a.npy"
        path.write_bytes(npy(noisy_pixels(size=size)))
        from torchdeal.app.uploads import opened

        uploads: dict[str, Upload] = {"image": opened(path, "a.npy")}
        return prepared(AskedDenoise(**{**QUICK, **asked}), uploads, "light", "cpu", 10**6).alike

    assert order() == order(sigma=5) == order(sigma=None)
    for other in ({"size": 20}, {"model": "gray"}, {"tolerance": 0.01}, {"max_iterations": 3}, {"lam": 1.0}):
        assert order() != order(**other), other
