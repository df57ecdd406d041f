"""The model on a GPU: rough answers by packed convolutions in half precision, precise ones by FFT in full precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.backends.base import Backend
from torchdeal.backends.cuda.graphs import Replays
from torchdeal.backends.cuda.packing import PACK, packed_bank, packed_size, unpack
from torchdeal.backends.cuda.passes import Passes, TorchPasses
from torchdeal.backends.cuda.spectral import SpectralModel
from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_REACH
from torchdeal.model.filters import REACH

STRIP_NUMBERS = 2**28  # features of a strip of the image at most, while its masks are computed: 0.5 GB in half
BATCH_NUMBERS = 2**29  # responses of the samples that are worked on together at most
GRAPH_NUMBERS = 2**26  # responses up to which a CUDA graph is worth its capture: beyond, launches are hidden anyway
CALLS = 16  # of a mask or penalty before its graph is worth the capture: most runs end before
TINY = 1e-36  # variance of a vector at least: 0 must not become 0 / 0

CHANNELS_LAST = torch.channels_last


@dataclass(frozen=True)
class PackedMask:
    """`M(x)^2`, zero beyond the image. It is valid until the next mask of the same backend is asked for."""

    packed: Tensor  # half precision on CUDA, packed, channels-last
    full: Tensor | None  # full precision, (B, N, H, W); None in a rough mask


class PackedBackend(Backend):
    """Packed convolutions where a rough answer will do, FFT where it will not.

    The rough half computes in float16 on CUDA (in the dtype of the weights elsewhere, where it is of use in tests
    only); the vector is scaled to mean 0, which `W` maps to 0, and variance 1 before, and back after.

    The object is for the images of one reconstruction: it keeps buffers and CUDA graphs for each batch size. (Whoever
    makes graphs of its own that contain these calls turns them off with `graphs=False`.)
    """

    def __init__(self, weights: Weights, height: int, width: int, *, graphs: bool | None = None):
        if weights.boundary is not Boundary.REFLECT:
            raise ValueError("the packed backend is for boundary='reflect'; use the direct backend")
        weights = _detached(weights)
        like = weights.mix[0]
        self.weights, self.height, self.width = weights, height, width
        self.features, self.device = len(like), like.device
        self.dtype = torch.float16 if like.is_cuda else like.dtype
        self.graphs = like.is_cuda if graphs is None else graphs
        self.passes = _passes(like)
        self.analysis = [self._half(kernel) for kernel in packed_bank(weights.filters)]
        self.mask_bank = [self._half(kernel) for kernel in packed_bank(weights.mask_filters)]
        self.mix = [self._half(kernel) for kernel in weights.mix]
        self._spectral: SpectralModel | None = None
        self._masks: dict[int, PackedMask] = {}
        self._replays = Replays(calls=CALLS)

    @torch.no_grad()
    def load(self, weights: Weights) -> None:
        """Other weights of the same shapes for the rough half, put where the CUDA graphs look for them."""
        if self._spectral is not None:
            raise ValueError("the precise half is in use and keeps its weights: make a new backend")
        new = PackedBackend(weights, self.height, self.width, graphs=False)
        for name in ("analysis", "mask_bank", "mix"):
            for place, values in zip(getattr(self, name), getattr(new, name), strict=True):
                place.copy_(values)
        for place, values in zip(self.weights.phi, new.weights.phi, strict=True):
            place.copy_(values)

    @torch.no_grad()
    def squared_mask(self, x: Tensor, alpha: Tensor, *, precise: bool = True) -> PackedMask:
        """`M(x)^2`, valid until the next call, which overwrites it.

        A precise mask serves both kinds of `penalty`, a rough one only the rough kind.
        """
        mask = self._mask_buffers(len(x), precise)
        inputs = x.contiguous(), alpha.expand(len(x), -1, -1, -1).contiguous()
        with self._device_of(x):
            if precise:
                self._run("precise mask", lambda x, alpha: self._precise_mask(x, alpha, mask), mask.packed, *inputs)
                return mask
            self._run("rough mask", lambda x, alpha: self._rough_mask(x, alpha, mask.packed), mask.packed, *inputs)
            return replace(mask, full=None)

    @torch.no_grad()
    def penalty(self, x: Tensor, squared_mask: PackedMask, *, precise: bool = True) -> Tensor:
        x, full, packed = x.contiguous(), squared_mask.full, squared_mask.packed
        with self._device_of(x):
            if not precise:
                return self._run("rough penalty", lambda x: self._rough_penalty(x, packed), packed, x)
            if full is None:
                raise ValueError("a precise penalty needs a precise mask, and this one is rough")
            return self._run("precise penalty", lambda x: self.spectral.penalty(x, full), full, x)

    def replayable(self, batch: int) -> bool:
        return self.graphs and batch * self.features * self.height * self.width <= GRAPH_NUMBERS

    @torch.no_grad()
    def mask_sums(self, squared_mask: PackedMask, energy: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, rows, columns = squared_mask.packed.shape
        # (B, h, w, pixels of a packed one, N), as it lies in memory
        pixels = squared_mask.packed.permute(0, 2, 3, 1).view(batch, rows, columns, -1, self.features)
        mean = pixels.sum((1, 2, 3), dtype=energy.dtype) / (self.height * self.width)
        largest = energy.amax()  # small numbers would suffer in half precision
        sums = (pixels @ (energy / largest).to(pixels.dtype)).flatten(3).permute(0, 3, 1, 2)
        images = unpack(sums)[..., : self.height, : self.width]
        return mean, largest * images.to(energy.dtype)

    @property
    def spectral(self) -> SpectralModel:
        """The precise half, made when it is first needed."""
        if self._spectral is None:
            self._spectral = SpectralModel(self.weights, self.height, self.width, self.passes)
        return self._spectral

    def _precise_mask(self, x: Tensor, alpha: Tensor, out: PackedMask) -> None:
        assert out.full is not None
        self.spectral.squared_mask(x, alpha, out.full)
        self.passes.pack_mask(out.full, out.packed)

    def _rough_mask(self, x: Tensor, alpha: Tensor, out: Tensor) -> None:
        """`M(x)^2` strip by strip. `W_mask` maps constants to 0: without its mean an image loses less to rounding."""
        mean, one = x.mean((1, 2, 3)), torch.ones(len(x), dtype=x.dtype, device=x.device)
        phi1, phi2, phi3 = self.weights.phi
        border = 2 * (MASK_REACH - REACH)
        for top, rows in self._strips(len(x)):
            image = self._packed_buffer(x, rows + border, self.width + border)
            self.passes.pack_image(x, mean, one, image, top, MASK_REACH)
            responses = _convolutions(image, self.mask_bank)
            features = self._empty(len(x), self.features, rows + border, self.width + border)
            self.passes.unpacked_spline(responses, phi1, features)
            del responses
            features = _convolutions(features, self.mix[:1])
            self.passes.spline_in_place(features, phi2)
            features = _convolutions(features, self.mix[1:])
            self.passes.packed_squared_mask(features, alpha, phi3, out, top)

    def _rough_penalty(self, x: Tensor, mask: Tensor) -> Tensor:
        step = max(1, BATCH_NUMBERS // (self.features * self.height * self.width))
        parts = [self._rough_penalty_of_part(*part) for part in zip(x.split(step), mask.split(step), strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rough_penalty_of_part(self, x: Tensor, mask: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x.flatten(1), 1, correction=0)
        variance = variance.clamp_min_(TINY)
        image = self._packed_buffer(x, self.height, self.width)
        self.passes.pack_image(x, mean, variance, image, 0, REACH)
        responses = _convolutions(image, self.analysis).mul_(mask)
        for kernel in reversed(self.analysis):
            responses = self._transposed_convolution(responses, kernel)
        out = torch.empty_like(x)
        self.passes.fold_packed(responses, variance, out, REACH)
        return out

    def _transposed_convolution(self, x: Tensor, kernel: Tensor) -> Tensor:
        """As a matrix product with all taps of the kernel at once, and the sum of its results where they overlap.

        A GPU has few outputs to work on, each of them the sum of 18432 products: its own algorithms leave half of it
        idle.
        """
        outputs, inputs, taps, _ = kernel.shape
        columns = x.permute(0, 2, 3, 1).reshape(-1, outputs) @ kernel.permute(0, 2, 3, 1).reshape(outputs, -1)
        out = self._empty(len(x), inputs, *(size + taps - 1 for size in x.shape[-2:]))
        self.passes.overlap_add(columns, out, taps)
        return out

    def _packed_buffer(self, x: Tensor, height: int, width: int) -> Tensor:
        """Room for the packed image that has `height x width` responses, or a few more to fill the last pixels."""
        rows, columns = (packed_size(size) + 2 * REACH // PACK for size in (height, width))
        return self._empty(len(x), PACK * PACK * x.shape[1], rows, columns)

    def _mask_buffers(self, batch: int, precise: bool) -> PackedMask:
        """Where masks of so many images go, in the same place each time. That of fewer images is a part of another."""
        larger = next((mask for size, mask in self._masks.items() if size > batch), None)
        mask = self._masks.get(batch)
        if mask is None:
            shape = PACK * PACK * self.features, packed_size(self.height), packed_size(self.width)
            mask = PackedMask(larger.packed[:batch] if larger else self._empty(batch, *shape), None)
        if precise and mask.full is None:
            room = larger.full if larger else None
            like, shape = self.weights.mix[0], (batch, self.features, self.height, self.width)
            mask = replace(mask, full=like.new_empty(shape) if room is None else room[:batch])
        self._masks[batch] = mask
        return mask

    def _strips(self, batch: int) -> list[tuple[int, int]]:
        """First row and number of rows of parts of the image, which begin at a packed row."""
        rows = PACK * max(1, STRIP_NUMBERS // (batch * self.features * self.width * PACK))
        return [(top, min(rows, self.height - top)) for top in range(0, self.height, rows)]

    def _run(self, name: str, function: Callable[..., Any], mask: Tensor, *inputs: Tensor) -> Any:
        """The function of the inputs, as a CUDA graph. That holds the address of the mask, hence the key."""
        batch = len(inputs[0])
        if not self.replayable(batch):
            return function(*inputs)
        return self._replays.run((name, batch, mask.data_ptr()), function, *inputs)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device, memory_format=CHANNELS_LAST)

    def _half(self, kernel: Tensor) -> Tensor:
        return kernel.to(self.dtype).contiguous(memory_format=CHANNELS_LAST)

    def _device_of(self, x: Tensor):
        return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def _convolutions(x: Tensor, kernels: list[Tensor]) -> Tensor:
    """One after the other, without padding."""
    for kernel in kernels:
        x = F.conv2d(x, kernel).contiguous(memory_format=CHANNELS_LAST)
    return x


def _detached(weights: Weights) -> Weights:
    """The weights without their gradients, contiguous."""
    return replace(
        weights,
        filters=tuple(kernel.detach() for kernel in weights.filters),
        mask_filters=tuple(kernel.detach() for kernel in weights.mask_filters),
        mix=tuple(kernel.detach().contiguous() for kernel in weights.mix),
        phi=tuple(values.detach().contiguous() for values in weights.phi),
    )


def _passes(like: Tensor) -> Passes:
    """The Triton kernels if they can run on such tensors, else plain torch."""
    if like.is_cuda and like.dtype is torch.float32:
        with contextlib.suppress(ImportError):
            from torchdeal.backends.cuda.triton_passes import TritonPasses, supports

            if supports(len(like)):
                return TritonPasses()
    return TorchPasses()
