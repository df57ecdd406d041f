"""What is not taken, and the sentence that says so."""

import io
import struct
import zlib

import numpy as np
import pytest
from app.visitors import as_file, noisy_pixels

GOOD = as_file(noisy_pixels(size=16))


def bomb(side):
    """A PNG that says that it is large, in a few bytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


BAD = {
    "no picture": ("letter.txt", b"Dear", "Files of type .txt are not taken"),
    "no type": ("photo", GOOD, "Files without a type"),
    "empty": ("photo.png", b"", "The file is empty"),
    "text in a png": ("photo.png", b"Dear", "not a readable image"),
    "cut off": ("photo.png", GOOD[: len(GOOD) // 2], "not a readable image"),
    "a script": ("photo.svg", b"<svg/>", "Files of type .svg are not taken"),
    "bomb": ("photo.png", bomb(40000), "exceeds limit"),
    "objects": ("photo.npy", npy(np.array([{}], dtype=object)), "photo.npy"),
    "nan": ("photo.npy", npy(np.full((16, 16), np.nan)), "NaN"),
    "stack": ("photo.npy", npy(np.zeros((5, 16, 16))), "several pictures"),
    "tiny": ("photo.png", as_file(np.zeros((3, 3), np.uint8)), "too small"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused_in_one_sentence(kind, client, person):
    name, content, words = BAD[kind]
    answer = person.bring(content, name)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert words in error
    folder = client.app.state.desk.visits.root
    assert str(folder) not in error
    assert "\n" not in error
    assert [path for path in folder.rglob("*") if path.is_file()] == []  # nothing of it stays


@pytest.mark.parametrize(
    "name", ["../../etc/passwd.png", "C:\\x\\photo.png", "/etc/photo.png", "a\x1b[2Jb.png", "é" * 300 + ".png"]
)
def test_no_name_of_a_file_leads_anywhere(name, client, person):
    about = person.bring(GOOD, name).json()
    assert not set(about["name"]) & set("/\\\x1b") or "\\x" in about["name"]
    assert len(about["name"]) <= 80
    folder = client.app.state.desk.visits.root
    (path,) = [path for path in folder.rglob("*") if path.is_file()]
    assert path.resolve().is_relative_to(folder.resolve())


def test_too_much_is_refused_before_it_is_read(client, person):
    def much():
        for _ in range(65):
            yield b"0" * 2**20

    told = client.put(
        f"{person.visit}/uploads/picture?name=a.png", content=b"0", headers={"content-length": str(2**40)}
    )
    assert told.status_code == 413
    streamed = client.put(f"{person.visit}/uploads/picture?name=a.png", content=much())
    assert streamed.status_code == 413
    assert "64 MiB" in streamed.json()["error"]


WRONG_WISHES = {
    "no json": (b"{", "not JSON"),
    "a list": (b"[1]", "JSON object"),
    "deep": (b"[" * 10000, "JSON"),
    "unknown": (b'{"colour": 1}', "no choice of the name"),
    "goal": (b'{"goal": "fly"}', "none of the choices"),
    "number": (b'{"sigma": "25"}', "sigma must be a number"),
    "nan": (b'{"sigma": NaN}', "sigma must be a number"),
    "range": (b'{"sigma": -1}', "sigma must be from 0"),
    "a path": (b'{"goal": "deblur", "kernel": "/etc/passwd.png"}', "The kernel must be"),
    "switch": (b'{"simulate": 1}', "yes or no"),
    "centre": (b'{"goal": "mri", "acceleration": 8, "centre": 0.5}', "at most 1 / acceleration"),
}


@pytest.mark.parametrize("kind", WRONG_WISHES)
def test_wrong_wishes_are_refused(kind, client, person):
    body, words = WRONG_WISHES[kind]
    person.bring(GOOD)
    answer = client.post(f"{person.visit}/order", content=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"goal": "mri"}, "MRI needs k-space"),
        ({"goal": "inpaint"}, "Paint over what is missing"),
        ({"goal": "deblur", "kernel": "file"}, "Draw a kernel"),
        ({"goal": "deblur", "kernel": "gaussian:0"}, "must be above 0"),
        ({"goal": "deblur", "kernel": "disk:500"}, "larger than the picture"),
        ({"goal": "ct", "angles": 7}, "angles"),
    ],
)
def test_orders_that_cannot_be_say_what_is_missing(wish, words, person):
    person.bring(GOOD)
    person.order(**wish)
    ended = person.wait()
    assert ended["state"] == "failed"
    assert words in ended["error"]
    assert "/tmp" not in ended["error"]


def test_a_result_that_is_too_large_is_refused(person):
    person.bring(as_file(np.zeros((600, 600), np.uint8)))
    person.order(goal="upscale", scale=4)
    assert "more than the 1.0 million" in person.wait()["error"]


def test_there_is_nothing_without_a_picture(client, person):
    assert person.order(goal="denoise").status_code == 404
    person.bring(GOOD)
    assert person.ask("mask").status_code == 404
    assert person.download().status_code == 404
    assert client.get("/api/visits/short").status_code == 404
    assert client.get("/page/..%2f__init__.py").status_code == 404
    assert client.post(f"{person.visit}/sample/nobody").status_code == 404
