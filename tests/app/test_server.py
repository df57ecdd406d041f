"""From a picture to a download, over HTTP."""

import io
import shlex
import time

import numpy as np
import pytest
from app.visitors import Visitor, as_file, noisy_pixels
from PIL import Image

QUICK = {"tolerance": 0.01}


def test_the_page_and_all_that_it_loads_is_ours(client):
    page = client.get("/").text
    for quote in ('src="', 'href="'):
        for address in (part.split('"')[0] for part in page.split(quote)[1:]):
            assert address.startswith("#") or client.get(address).status_code == 200, address
    for name in ("main", "api", "board", "choices", "curves", "facts", "knobs", "stage"):
        script = client.get(f"/page/{name}.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert "http://" not in script.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in script.text


def test_upload_to_download(person):
    noisy = noisy_pixels()
    about = person.bring(as_file(noisy)).json()
    assert (about["height"], about["width"], about["colours"], about["kind"]) == (40, 40, 1, "uint8")
    result = person.result(goal="denoise", **QUICK)
    assert result["converged"]
    assert result["estimated"]
    assert 10 < result["sigma"] < 30
    answer = person.download()
    assert answer.headers["content-disposition"] == 'attachment; filename="photo-denoised.png"'
    denoised = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert denoised.dtype == np.uint8
    assert np.abs(np.diff(denoised.astype(int))).mean() < 0.7 * np.abs(np.diff(noisy.astype(int))).mean()
    assert np.array_equal(person.shown("after")[..., 0], denoised)
    assert np.array_equal(person.shown("before")[..., 0], noisy)


def test_the_download_has_the_depth_of_the_input(person):
    person.bring(as_file(noisy_pixels(depth=16)))
    person.result(goal="denoise", sigma=20, **QUICK)
    denoised = np.asarray(Image.open(io.BytesIO(person.download().content)))
    assert denoised.dtype == np.uint16
    assert denoised.max() > 255


def test_progress_is_told(person):
    person.bring(as_file(noisy_pixels()))
    person.result(goal="denoise", sigma=20, **QUICK)
    progress = person.state()["order"]["progress"]
    assert progress["residuals"][-1] < progress["residuals"][0]
    assert progress["distances"][-1] < 0.01
    assert progress["preview"] >= 1
    assert person.shown("preview").shape == (40, 40, 3)


@pytest.mark.parametrize("name", ["camera", "astronaut"])
def test_the_command_and_the_python_do_the_same(name, person, deal, tmp_path):
    """Each is run as it is shown, beside the picture."""
    content = as_file(noisy_pixels(name))
    (tmp_path / "photo.png").write_bytes(content)
    person.bring(content)
    result = person.result(goal="denoise", **QUICK)
    shown = np.asarray(Image.open(io.BytesIO(person.download().content))).astype(int)
    words = shlex.split(result["command"])
    assert words[0] == "deal"
    code, _, err = deal(*words[1:])
    assert code == 0, err
    assert np.abs(np.asarray(Image.open("denoised.png")).astype(int) - shown).max() <= 1
    names = {}
    exec(result["python"], names)
    assert np.abs(names["rec"].x.astype(int) - shown).max() <= 1


def test_a_part_of_a_picture(person):
    noisy = noisy_pixels(size=64)
    person.bring(as_file(noisy, "JPEG", quality=100), "photo.JPG")
    result = person.result(goal="denoise", part=32, **QUICK)
    assert (result["height"], result["width"], result["part"]) == (32, 32, True)
    assert person.download().content[:2] == b"\xff\xd8"  # JPEG, as it came
    assert person.shown("before").shape == (32, 32, 3)


def test_a_clean_picture_is_left_as_it_is_and_nothing_is_explained(person):
    person.bring(as_file(np.full((24, 24), 120, np.uint8)))
    result = person.result(goal="denoise")
    assert result["sentence"] == "The picture was left as it is."
    assert not result["explained"]
    assert "sigma" in result["notes"][0]
    person.ask("mask")
    assert "nothing to explain" in person.wait("mask")["error"]


def test_cancelling_takes_effect_at_once(person):
    person.bring(as_file(noisy_pixels(size=300)))
    person.order(goal="denoise", sigma=20, tolerance=1e-5, weights="full")
    while person.state()["order"]["state"] == "waiting":
        time.sleep(0.01)
    assert person.cancel()["order"]["state"] == "cancelled"
    started = time.monotonic()
    person.bring(as_file(noisy_pixels(size=16)))
    person.result(goal="denoise", sigma=20, **QUICK)
    assert time.monotonic() - started < 10  # the large one would take minutes


def test_a_second_person_waits_and_is_told(client, person):
    person.bring(as_file(noisy_pixels(size=300)))
    person.order(goal="denoise", sigma=20, tolerance=1e-5, weights="full")
    second = Visitor(client, 1)
    second.bring(as_file(noisy_pixels(size=16)))
    waiting = second.order(goal="denoise", sigma=20, **QUICK).json()["order"]
    assert (waiting["state"], waiting["ahead"]) == ("waiting", 1)
    person.cancel()
    assert second.wait()["state"] == "done"
    client.post(f"{second.visit}/leave")


def test_what_nobody_asks_for_is_removed(client):
    desk = client.app.state.desk
    silent = Visitor(client, 2)
    silent.bring(as_file(noisy_pixels(size=16)))
    guest = desk.visits.find(f"{2:032x}")
    guest.seen -= 60 * 16
    desk.visits.tidy()
    assert not guest.folder.exists()
    assert client.get(silent.visit).status_code == 404


def test_what_a_person_brought_is_removed_with_the_visit(client, person):
    folder = client.app.state.desk.visits.root
    person.bring(as_file(noisy_pixels(size=16)))
    person.bring(as_file(noisy_pixels(size=24)))
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1  # replaced
    client.post(f"{person.visit}/leave")
    assert list(folder.iterdir()) == []
    answer = client.get(person.visit)
    assert answer.status_code == 404
    assert "Bring the picture again" in answer.json()["error"]
