"""A picture in, a picture out, over HTTP; and what is refused, in which words."""

import ast
import base64
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("prometheus_client", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("httpx", reason="tests of deal serve need httpx")

from app.test_uploads import bomb
from app.visitors import as_file, noisy_pixels
from PIL import Image
from scale.servers import NOISY, PHOTO, QUICK, ask, npy, serving

import torchdeal as td
from torchdeal.app import guard
from torchdeal.cli import serve
from torchdeal.io.formats import MOST_VALUES_VARIABLE


@pytest.fixture(scope="module")
def client():
    with serving(pixels=40 * 40, megabytes=1) as client:
        yield client


KNOWN = {"lam": 0.5, "model_sigma": 20, "max_iterations": 4}  # nothing has to be found


def pixels(response):
    return np.asarray(Image.open(io.BytesIO(response.content)))


def test_the_answer_is_that_of_the_library(client):
    answer = ask(client)
    expected = td.reconstruct(NOISY, sigma=20, tolerance=0.05, model="gray-light")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert np.array_equal(pixels(answer), expected.x)
    assert answer.headers["deal-status"] == expected.status.name
    assert int(answer.headers["deal-iterations"]) == int(expected.iterations)
    assert float(answer.headers["deal-distance"]) == pytest.approx(float(expected.distance), rel=1e-2)
    assert answer.headers["deal-sigma"] == "20"
    report = json.loads(answer.headers["deal-report"])
    assert (report["converged"], report["batch"], report["model"]) == (True, 1, "gray-light")
    assert answer.headers["content-disposition"] == 'attachment; filename="denoised.png"'


def test_json_holds_the_same(client):
    answer = ask(client, answer="json", format="npy").json()
    assert answer["report"]["status"] == "CONVERGED"
    array = np.load(io.BytesIO(base64.b64decode(answer["image"]["base64"])))
    assert np.array_equal(array, pixels(ask(client)))


def test_kinds_and_formats(client):
    """Colour, 16 bits and floats come back as they are; float npy as npy, or as what is asked for."""
    colour, deep = noisy_pixels("astronaut", 16), noisy_pixels(size=16, depth=16)
    assert pixels(ask(client, content=as_file(colour))).shape == (16, 16, 3)
    assert pixels(ask(client, content=as_file(deep))).dtype == np.uint16
    floats = np.float32(NOISY / 255)
    array = np.load(io.BytesIO(ask(client, content=npy(floats), name="a.npy").content))
    assert array.dtype == np.float32
    assert np.abs(array - np.float32(pixels(ask(client))) / 255).max() < 1 / 255
    tiff = ask(client, content=npy(floats), name="a.npy", format="tif")
    assert tiff.headers["content-type"] == "image/tiff"
    assert pixels(tiff).dtype == np.float32


def test_a_file_without_a_name_is_known_by_its_type(client):
    answer = client.post("/v1/denoise", params=QUICK, files={"image": ("blob", PHOTO, "image/png")})
    assert answer.status_code == 200


def test_deblur_upscale_inpaint(client):
    blurred = ask(client, "deblur", kernel="gaussian:0.7", boundary="reflect", **KNOWN)
    kernel = td.operators.blur_kernels.gaussian_kernel(0.7).numpy()
    by_file = ask(client, "deblur", boundary="reflect", **KNOWN, others={"kernel_file": ("k.npy", npy(kernel))})
    assert blurred.status_code == 200
    assert np.abs(pixels(blurred).astype(int) - pixels(by_file)).max() <= 1
    assert pixels(ask(client, "upscale", scale=2, **KNOWN)).shape == (32, 32)
    mask = np.full((16, 16), 255, np.uint8)
    mask[4:7, 5:9] = 0
    holes = np.where(mask, NOISY, 0).astype(np.uint8)
    filled = pixels(ask(client, "inpaint", as_file(holes), **KNOWN, others={"mask": ("mask.png", as_file(mask))}))
    assert np.abs(filled[4:7, 5:9].astype(float) - NOISY[4:7, 5:9]).mean() < 50 < NOISY[4:7, 5:9].mean()


def tiff_of_objects():
    return npy(np.array([[{}]], dtype=object))


WRONG = {
    "no such parameter": (422, "sgma: There is no such parameter", {"sgma": 1}),
    "sigma": (422, "sigma: Input should be greater", {"sigma": -1}),
    "not a number": (422, "sigma: Input should be a valid number", {"sigma": "many"}),
    "no number": (422, "sigma: Input should be", {"sigma": "nan"}),
    "weights that are a path": (422, "model: Input should be 'gray'", {"model": "/etc/passwd"}),
    "gray weights for colour": (422, "channel", {"content": as_file(noisy_pixels("astronaut", 16)), "model": "gray"}),
    "photons without gain": (422, "needs gain", {"noise_model": "poisson", "sigma": None}),
    "a kernel that is a path": (422, "kernel: It must be gaussian", {"goal": "deblur", "kernel": "/etc/passwd.npy"}),
    "no kernel": (422, "Give the kernel once", {"goal": "deblur"}),
    "a large kernel": (422, "at most 1000", {"goal": "deblur", "kernel": "gaussian:9e9"}),
    "no scale": (422, "scale: It is missing", {"goal": "upscale"}),
    "no mask": (422, "mask: It is missing", {"goal": "inpaint"}),
    "a format that is too small": (
        422,
        "PNG cannot hold",
        {"content": npy(NOISY.astype(np.int16)), "name": "a.npy", "format": "png"},
    ),
    "text": (415, "Files of type .txt are not taken", {"name": "letter.txt"}),
    "text in a png": (422, "photo.png: not a readable image", {"content": b"Dear"}),
    "cut off": (422, "not a readable image", {"content": PHOTO[: len(PHOTO) // 2]}),
    "empty": (422, "The file is empty", {"content": b""}),
    "objects": (422, "Python objects", {"content": tiff_of_objects(), "name": "a.npy"}),
    "nan": (422, "NaN", {"content": npy(np.full((16, 16), np.nan)), "name": "a.npy"}),
    "stack": (422, "several pictures", {"content": npy(np.zeros((5, 16, 16))), "name": "a.npy"}),
    "complex": (422, "complex", {"content": npy(np.zeros((16, 16), complex)), "name": "a.npy"}),
    "a bomb": (413, "more pixels than the 1,600", {"content": bomb(40000)}),
    "too many pixels": (413, "2,304 pixels, more than the 1,600", {"content": as_file(np.zeros((48, 48), np.uint8))}),
    "too large a result": (413, "pixels", {"goal": "upscale", "scale": 4}),
    "too many bytes": (413, "larger than the 1 MiB", {"content": bytes(2**20 + 1)}),
    "no such address": (404, "Not Found", {"goal": "everything"}),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_refused_in_which_words(kind, client):
    status, words, given = WRONG[kind]
    answer = ask(client, **given)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text
    assert "\n" not in answer.json()["error"]
    assert str(client.service._folder) not in answer.text
    assert list(client.service._folder.iterdir()) == []  # nothing of it stays


def deflated(side):
    """A PNG that is as large as it says, in few bytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((side + 1) * side), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_zip_bomb_is_refused_before_it_is_unpacked(client, monkeypatch):
    monkeypatch.setenv(MOST_VALUES_VARIABLE, "6400")  # as the command does
    monkeypatch.setattr(Image.Image, "load", lambda image: pytest.fail("it was unpacked"))
    answer = ask(client, content=deflated(5000))
    assert answer.status_code == 413
    assert "more pixels than the 1,600" in answer.json()["error"]


@pytest.mark.parametrize("name", ["../../etc/passwd.png", "C:\\x\\photo.png", "/etc/cron.d/photo.png", "a\nb.png"])
def test_names_are_no_paths(name, client):
    assert ask(client, name=name).status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "image/png", ""])
def test_only_forms_are_taken(kind, client):
    answer = client.post("/v1/denoise", content=b"[" * 10000, headers={"content-type": kind})
    assert answer.status_code == 415
    assert "multipart/form-data" in answer.json()["error"]


def test_a_broken_form(client):
    answer = client.post(
        "/v1/denoise", content=b"--x\r\nnonsense", headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert answer.status_code in (400, 422)
    assert "error" in answer.json()
    text = client.post("/v1/denoise", data={"image": "hello"}, files={"other": b""})
    assert (text.status_code, text.json()["error"]) == (422, "image: It must be a file.")


def test_other_sites_and_other_names_are_refused(client):
    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}, {"host": "["}):
        files = {"image": ("photo.png", PHOTO)}
        assert client.post("/v1/denoise", files=files, headers=headers).status_code == 403


def test_the_token(monkeypatch):
    monkeypatch.setattr(guard, "WRONG_PASSWORD_SECONDS", 0.01)
    with serving(token="a-secret") as client:
        refused = ask(client)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/metrics").status_code == 401
        assert client.get("/health").status_code in (200, 503)
        client.headers["authorization"] = "Bearer wrong"
        assert ask(client).status_code == 401
        client.headers["authorization"] = "Bearer a-secret"
        client.headers["host"] = "deal.example"  # any name: it has the token
        assert ask(client).status_code == 200


def test_health_and_metrics(client):
    health = client.get("/health")
    assert (health.status_code, health.json()["ready"], health.json()["models"]) == (
        200,
        True,
        ["gray-light", "color-light"],
    )
    before = numbers(client)
    ask(client)
    ask(client, sigma=-1)
    after = numbers(client)

    def grown(name):
        return after.get(name, 0) - before.get(name, 0)

    assert grown('deal_requests_total{goal="denoise",outcome="done"}') == 1
    assert grown('deal_requests_total{goal="denoise",outcome="invalid"}') == 1
    assert grown('deal_request_seconds_count{goal="denoise"}') == 1
    assert grown("deal_batch_size_sum") == 1
    assert (after["deal_in_flight"], after["deal_queue_length"]) == (0, 0)


def numbers(client):
    lines = [line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_the_description(client):
    description = client.get("/openapi.json").json()
    assert {f"/v1/{goal}" for goal in ("denoise", "deblur", "upscale", "inpaint")} <= description["paths"].keys()
    for path, methods in description["paths"].items():
        for operation in methods.values():
            assert operation["description"], path
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description") or parameter["schema"].get("description"), parameter
    page = client.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    for words in ("/v1/denoise", "Standard deviation of the noise", "gaussian, poisson, impulse", "kernel_file", "429"):
        assert words in page.text
    assert "src=" not in page.text
    assert "https:" not in page.text


def test_the_command_does_not_import_the_page():
    """The page imports the commands: whichever came second would find the other half made."""
    tree = ast.parse(Path(serve.__file__).read_text())
    names = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert [name for name in names if name.startswith(("torchdeal.app", "torchdeal.scale"))] == []
