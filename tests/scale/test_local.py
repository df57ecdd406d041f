"""What an operator is on a part of an image, beside what it is on the whole."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask, Scaled
from torchdeal.scale.grid import Box
from torchdeal.scale.local import hole_radius, local

KERNEL = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "H", [Identity(), Blur(KERNEL, "reflect"), Downsample(2, KERNEL, "reflect"), Scaled(2.0, Blur(KERNEL, "reflect"))]
)
def test_a_part_measures_what_the_whole_does_away_from_its_border(H):
    piece = local(H)
    x = torch.rand(1, 1, 48, 64, generator=torch.Generator().manual_seed(1))
    box = Box(4, 20, 6, 24)
    large = x[(..., *box.scaled(piece.scale).slices)] if piece.scale > 1 else x[(..., *box.slices)]
    y, part = H.forward(x)[(..., *box.slices)], piece.on(box).forward(large)
    inner = -(-piece.support // piece.scale)
    inside = slice(inner, -inner or None)
    torch.testing.assert_close(part[..., inside, inside], y[..., inside, inside])


def test_a_valid_blur_is_exact_on_a_part():
    """No border of a part is taken for one of the image: what lies beyond is unknown in both."""
    H = Blur(KERNEL, "valid")
    piece, x = local(H), torch.rand(1, 1, 40, 50)
    left, right, top, bottom = piece.margins
    box = Box(3, 20, 5, 30)
    seen = x[..., box.top : box.bottom + top + bottom, box.left : box.right + left + right]
    torch.testing.assert_close(piece.on(box).forward(seen), H.forward(x)[(..., *box.slices)])
    assert piece.measured(seen).shape[-2:] == torch.Size(box.size)


def test_masks_are_cut_and_batched():
    known = torch.rand(20, 30, generator=torch.Generator().manual_seed(0)) < 0.5
    piece, boxes = local(Mask(known)), (Box(0, 8, 0, 9), Box(4, 12, 10, 19))
    x = torch.rand(2, 1, 8, 9)
    expected = torch.stack([known[box.slices] * part for box, part in zip(boxes, x, strict=True)])
    torch.testing.assert_close(piece.on(*boxes).forward(x), expected)


def test_hole_radius_is_the_largest_distance():
    known = np.random.default_rng(0).random((60, 80)) < 0.02
    assert hole_radius(known) == ndimage.distance_transform_cdt(~known, "chessboard").max()
    with pytest.raises(ValueError, match="too far for tiles"):
        hole_radius(np.zeros((4, 4), bool))


@pytest.mark.parametrize(
    "H", [Fourier(torch.ones(8, 8)), Blur(KERNEL), Blur(KERNEL, "zero"), Downsample(2, KERNEL), Mask(torch.rand(8, 8))]
)
def test_what_is_not_local_is_refused(H):
    with pytest.raises(ValueError, match=r"can be cut|cannot be cut"):
        local(H)
