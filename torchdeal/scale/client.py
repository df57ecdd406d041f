"""A client of `deal serve`: arrays in, arrays out.

with Client("http://localhost:8750") as client:
clean, report = client.denoise(noisy, sigma=25)
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchdeal.extras import optional

if TYPE_CHECKING:
    import httpx

URL = "http://localhost:8750"
WAIT = 1.0  # seconds, where the server does not say how long
NPY = "application/x-npy"


class ServerError(RuntimeError):
    """The server did not do it, and why.

    Attributes:
        status: of HTTP; None where there was no answer.
    """

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


class Served(NamedTuple):
    """An image of the kind that was sent, and how the run went: status, distance, iterations, sigma, ..."""

    image: np.ndarray
    report: dict[str, Any]


class Client:
    """Asks a server. It may be used by several threads.

    Args:
        url: where the server is.
        token: what it asks for.
        seconds: to wait for an answer.
        patience: seconds to wait in all, where the server says that it is busy and when to try again.

    Sigma and the other parameters are those of the commands: **on the 0..255 scale, whatever the dtype** of the array.
    So `sigma=25` is what `torchdeal.denoise` calls 25 for uint8 and 25/255 for floats in 0..1.
    """

    def __init__(self, url: str = URL, token: str | None = None, *, seconds: float = 600.0, patience: float = 120.0):
        self._httpx = optional("httpx", "torchdeal.scale.client", "serve")
        headers = {} if token is None else {"Authorization": b"Bearer " + token.encode()}
        self._http: httpx.Client = self._httpx.Client(base_url=url, headers=headers, timeout=seconds)
        self._url, self._patience = url, patience

    def denoise(self, image: np.ndarray, sigma: float | None = None, **parameters: Any) -> Served:
        """Remove noise; its level is estimated if sigma is None."""
        return self._picture("denoise", {"image": image}, sigma=sigma, **parameters)

    def deblur(self, image: np.ndarray, kernel: str | np.ndarray, **parameters: Any) -> Served:
        """Undo a blur: a formula, such as `"gaussian:1.6"`, or an array."""
        return self._with_kernel("deblur", image, kernel, parameters)

    def upscale(
        self, image: np.ndarray, scale: int, kernel: str | np.ndarray | None = None, **parameters: Any
    ) -> Served:
        """Enlarge an image; the kernel is the blur before it was shrunk."""
        return self._with_kernel("upscale", image, kernel, {"scale": scale, **parameters})

    def inpaint(self, image: np.ndarray, mask: np.ndarray, **parameters: Any) -> Served:
        """Fill in what is missing; the mask is not 0 where the image is known."""
        return self._picture("inpaint", {"image": image, "mask": np.asarray(mask) != 0}, **parameters)

    def health(self) -> dict[str, Any]:
        """Whether the server is alive and ready."""
        response = self._send("GET", "/health")
        return response.json()

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _with_kernel(self, goal: str, image: Any, kernel: Any, parameters: Mapping[str, Any]) -> Served:
        if kernel is None or isinstance(kernel, str):
            return self._picture(goal, {"image": image}, kernel=kernel, **parameters)
        return self._picture(goal, {"image": image, "kernel_file": kernel}, **parameters)

    def _picture(self, goal: str, arrays: Mapping[str, Any], **parameters: Any) -> Served:
        files = {role: (f"{role}.npy", _npy(array), NPY) for role, array in arrays.items()}
        given = {name: value for name, value in parameters.items() if value is not None}
        response = self._patiently(f"/v1/{goal}", params={**given, "format": "npy"}, files=files)
        if response.status_code != 200:
            raise ServerError(_reason(response), response.status_code)
        image = np.load(io.BytesIO(response.content), allow_pickle=False)
        return Served(image, json.loads(response.headers["Deal-Report"]))

    def _patiently(self, address: str, **request: Any) -> httpx.Response:
        """Again, where the server is busy, after as long as it says; at most as long as there is patience."""
        waited = 0.0
        while True:
            response = self._send("POST", address, **request)
            pause = _retry_after(response)
            if response.status_code != 429 or waited + pause > self._patience:
                return response
            time.sleep(pause)
            waited += pause

    def _send(self, method: str, address: str, **request: Any) -> httpx.Response:
        try:
            return self._http.request(method, address, **request)
        except self._httpx.ConnectError as error:
            raise ServerError(
                f"no server answers at {self._url} ({error}): start deal serve, or check the URL"
            ) from None
        except self._httpx.TimeoutException:
            raise ServerError(f"{self._url} did not answer in time: raise seconds, or send a smaller image") from None
        except self._httpx.HTTPError as error:
            raise ServerError(f"the connection to {self._url} broke: {error or type(error).__name__}") from None


def _npy(array: Any) -> bytes:
    array = np.asarray(array)
    if array.dtype == bool:
        array = array.astype(np.uint8)
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else WAIT


def _reason(response: httpx.Response) -> str:
    """The sentence of the server, or what there is in its place."""
    try:
        return str(response.json()["error"])
    except (ValueError, LookupError, TypeError):
        return f"the server answered {response.status_code} {response.reason_phrase}"
