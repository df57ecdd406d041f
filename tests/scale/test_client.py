"""The client: arrays through a service without sockets, and servers that are busy, wrong or not there."""

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("prometheus_client", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("httpx", reason="the client needs httpx")

import httpx
from app.visitors import noisy_pixels
from scale.servers import NOISY, serving

import torchdeal as td
from torchdeal.scale import client as module
from torchdeal.scale.client import Client, ServerError


@pytest.fixture(scope="module")
def client():
    with serving() as http:
        asking = Client()
        asking._http = http
        yield asking


def answering(*responses, patience=120.0):
    """A client of a server that gives these answers, and how often it was asked."""
    asked = []

    def answer(request):
        asked.append(request)
        return responses[min(len(asked), len(responses)) - 1]

    asking = Client("http://server", "secret", patience=patience)
    asking._http = httpx.Client(
        base_url="http://server", headers=asking._http.headers, transport=httpx.MockTransport(answer)
    )
    return asking, asked


@pytest.mark.parametrize("scale", [1, 255])
def test_the_image_is_of_the_kind_that_was_sent(client, scale):
    """Floats in 0..1 and 8 bits; sigma is on the 0..255 scale for both."""
    image = NOISY if scale == 255 else np.float32(NOISY / 255)
    found, report = client.denoise(image, sigma=20, tolerance=0.05)
    expected = td.denoise(image, sigma=20 * scale / 255, tolerance=0.05, model="gray-light")
    assert found.dtype == image.dtype
    assert np.allclose(found, expected, atol=1e-6)
    assert (report["status"], report["sigma"]) == ("CONVERGED", 20)


def test_kernels_and_masks_are_arrays(client):
    quick = {"sigma": 5, "lam": 0.5, "model_sigma": 20, "max_iterations": 2}
    kernel = np.outer([1, 2, 1], [1, 2, 1]).astype(float)
    assert client.deblur(NOISY, kernel, boundary="reflect", **quick).image.shape == (16, 16)
    assert client.deblur(NOISY, "disk:1", boundary="reflect", **quick).report["iterations"] == 2
    assert client.upscale(noisy_pixels(size=8), 2, **quick).image.shape == (16, 16)
    mask = np.ones((16, 16), bool)
    mask[3:5] = False
    assert client.inpaint(NOISY, mask, **quick).image.shape == (16, 16)
    assert client.health()["alive"]


def test_an_error_is_the_sentence_of_the_server(client):
    with pytest.raises(ServerError, match="sigma: Input should be greater than or equal to 0") as error:
        client.denoise(NOISY, sigma=-1)
    assert error.value.status == 422


def test_a_busy_server_is_asked_again_when_it_says(monkeypatch):
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    busy = httpx.Response(429, headers={"Retry-After": "7"}, json={"error": "Too many."})
    asking, asked = answering(busy, busy, httpx.Response(422, json={"error": "Enough."}))
    with pytest.raises(ServerError, match="Enough"):
        asking.denoise(NOISY)
    assert waits == [7, 7]
    assert [request.headers["authorization"] for request in asked] == 3 * ["Bearer secret"]
    assert len({request.content for request in asked}) == 3  # the boundary of a form is random
    assert all(b"NUMPY" in request.content for request in asked)


def test_patience_ends(monkeypatch):
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    asking, asked = answering(
        httpx.Response(429, headers={"Retry-After": "7"}, json={"error": "Too many."}), patience=20
    )
    with pytest.raises(ServerError, match="Too many") as error:
        asking.denoise(NOISY)
    assert (waits, len(asked), error.value.status) == ([7, 7], 3, 429)


def test_what_is_no_answer_of_ours():
    asking, _ = answering(httpx.Response(502, text="<html>"))
    with pytest.raises(ServerError, match="the server answered 502 Bad Gateway"):
        asking.denoise(NOISY)
    with (
        pytest.raises(ServerError, match=r"no server answers at http://127\.0\.0\.1:9"),
        Client("http://127.0.0.1:9") as one,
    ):
        one.denoise(NOISY)
