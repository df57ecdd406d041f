"""A person at the page, without a browser."""

import io
import time

import numpy as np
from conftest import picture
from PIL import Image


class Visitor:
    """Asks as the page does."""

    def __init__(self, client, number=0):
        self.client, self.visit = client, f"/api/visits/{number:032x}"

    def bring(self, content, name="photo.png", role="picture"):
        return self.client.put(f"{self.visit}/uploads/{role}", params={"name": name}, content=content)

    def sample(self, name):
        return self.client.post(f"{self.visit}/sample/{name}")

    def order(self, **wish):
        return self.client.post(f"{self.visit}/order", json=wish)

    def ask(self, kind, **values):
        return self.client.post(f"{self.visit}/questions/{kind}", json=values)

    def cancel(self):
        return self.client.post(f"{self.visit}/cancel").json()

    def state(self):
        return self.client.get(self.visit).json()

    def wait(self, kind=None, seconds=120):
        """Until the order, or a question, has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            state = self.state()
            errand = state["order"] if kind is None else state["questions"][kind]
            if errand["state"] not in ("waiting", "running"):
                return errand
            time.sleep(0.05)
        raise TimeoutError(errand)

    def result(self, **wish):
        """What an order leads to; an error fails the test."""
        answer = self.order(**wish)
        assert answer.status_code == 200, answer.text
        ended = self.wait()
        assert ended["state"] == "done", ended["error"]
        return ended["result"]

    def shown(self, name):
        answer = self.client.get(f"{self.visit}/pictures/{name}")
        assert answer.status_code == 200, answer.text
        return np.asarray(Image.open(io.BytesIO(answer.content)))

    def download(self):
        return self.client.get(f"{self.visit}/download")


def noisy_pixels(name="camera", size=40, sigma=20, depth=8):
    clean = picture(name, size)[0].permute(1, 2, 0).squeeze(-1).double().numpy()
    noisy = clean + np.random.default_rng(0).normal(0, sigma / 255, clean.shape)
    top = 2**depth - 1
    return (noisy.clip(0, 1) * top).round().astype(np.uint8 if depth == 8 else np.uint16)


def as_file(pixels, kind="PNG", **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()
