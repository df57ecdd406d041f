"""The passes of the packed backend as Triton kernels, for float32 weights on CUDA."""

from __future__ import annotations

from torchdeal.backends.cuda import triton_packing, triton_spectral, triton_spline


class TritonPasses:
    """See `Passes` for what each of them does, and `TorchPasses` for the same in plain torch."""

    pack_image = staticmethod(triton_packing.pack_image)
    fold_packed = staticmethod(triton_packing.fold_packed)
    overlap_add = staticmethod(triton_packing.overlap_add)
    unpacked_spline = staticmethod(triton_packing.unpacked_spline)
    spline_in_place = staticmethod(triton_spline.spline_in_place)
    packed_squared_mask = staticmethod(triton_packing.packed_squared_mask)
    pack_mask = staticmethod(triton_packing.pack_mask)
    mixing_weights = staticmethod(triton_spectral.mixing_weights)
    mixing = staticmethod(triton_spectral.mixing)
    weigh = staticmethod(triton_spectral.weigh)
    expand = staticmethod(triton_spectral.expand)
    contract = staticmethod(triton_spectral.contract)


def supports(features: int) -> bool:
    """Whether the kernels work for so many filters: tensor cores multiply matrices of 16."""
    return features % 16 == 0
