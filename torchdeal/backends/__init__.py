"""How `W^T M^2 W` and `M` are applied: by direct convolutions everywhere, by FFT on the CPU, packed on CUDA."""

from __future__ import annotations

from torch import Tensor

from torchdeal.backends.base import Backend
from torchdeal.backends.cpu.fft import FFTBackend
from torchdeal.backends.direct import DirectBackend
from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_REACH

__all__ = ["BACKENDS", "Backend", "DirectBackend", "FFTBackend", "choose_backend"]

BACKENDS = ("direct", "fft", "packed")


def choose_backend(weights: Weights, image: Tensor, name: str | None = None, *, local: bool = False) -> Backend:
    """The backend of that name, or the fastest one, for images like `image`.

    The packed one takes no noise level of its own for each pixel (`local`), and mirrors an image only once.
    """
    packable = min(image.shape[-2:]) > MASK_REACH and not local
    if name == "packed" and not packable:
        raise ValueError(
            f"the packed backend is not for noise maps, nor for images under {MASK_REACH + 1} x {MASK_REACH + 1}: "
            "leave backend out"
        )
    if name is None and image.is_cuda and weights.boundary is Boundary.REFLECT and packable:
        name = "packed"
    if name is None:
        name = "fft" if image.device.type == "cpu" else "direct"
    if name == "fft":
        return FFTBackend(weights, *image.shape[-2:])
    if name == "packed":
        from torchdeal.backends.cuda.packed import PackedBackend

        return PackedBackend(weights, *image.shape[-2:])
    if name == "direct":
        return DirectBackend(weights)
    raise ValueError(f"there is no backend {name!r}: choose one of {', '.join(BACKENDS)}")
