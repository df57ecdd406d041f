"""The packed backend computes what the direct one does. (On the CPU: in the dtype of the weights, by plain torch.)"""

import pytest
import torch
import torch.nn.functional as F
from conftest import noisy, picture, relative, small_model
from hypothesis import given, settings
from hypothesis import strategies as st

import torchdeal as td
from torchdeal.backends import DirectBackend, choose_backend
from torchdeal.backends.cuda import packed, packing, spectral
from torchdeal.backends.cuda.packed import PackedBackend
from torchdeal.backends.cuda.packing import pack, unpack
from torchdeal.model.filters import impulse_responses, valid_convolutions


def visible(backend: PackedBackend, mask: packed.PackedMask):
    """The packed mask as a tensor `(B, N, H, W)`."""
    return unpack(mask.packed)[..., : backend.height, : backend.width]


def compare(model, x, sigma, tolerance):
    with torch.no_grad():
        weights = model.weights()
        alpha = weights.alpha(sigma.to(x.dtype))
        direct, fast = DirectBackend(weights), PackedBackend(weights, *x.shape[-2:])
        expected = direct.squared_mask(x, alpha)
        p = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(5)) + 0.3
        penalty = direct.penalty(p, expected)
        rough = fast.squared_mask(x, alpha, precise=False)
        assert rough.full is None
        assert relative(visible(fast, rough), expected) < tolerance
        assert relative(fast.penalty(p, rough, precise=False), penalty) < tolerance
        energy = torch.rand(expected.shape[1], x.shape[1], dtype=x.dtype, generator=torch.Generator().manual_seed(6))
        for found, true in zip(fast.mask_sums(rough, energy), direct.mask_sums(expected, energy), strict=True):
            assert relative(found, true) < tolerance
        precise = fast.squared_mask(x, alpha)
        assert relative(precise.full, expected) < tolerance
        assert relative(visible(fast, precise), expected) < tolerance
        for choice in (True, False):
            assert relative(fast.penalty(p, precise, precise=choice), penalty) < tolerance


@settings(max_examples=25, deadline=None)
@given(
    height=st.integers(15, 50),
    width=st.integers(15, 50),
    channels=st.sampled_from([1, 3]),
    batch=st.integers(1, 3),
    small=st.booleans(),
    seed=st.integers(0, 9),
)
def test_packed_equals_direct(height, width, channels, batch, small, seed):
    before = packed.STRIP_NUMBERS, packed.BATCH_NUMBERS, spectral.TILE, spectral.BLOCK_PIXELS
    try:
        if small:  # several strips, tiles and blocks of samples
            packed.STRIP_NUMBERS, packed.BATCH_NUMBERS = 5 * batch * width * 9, 1
            spectral.TILE, spectral.BLOCK_PIXELS = 19, 1
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(batch, channels, height, width, dtype=torch.float64, generator=generator)
        sigma = 50 * torch.rand(batch, generator=generator)
        compare(small_model(channels, features=5, seed=seed), x, sigma, 1e-10)
    finally:
        packed.STRIP_NUMBERS, packed.BATCH_NUMBERS, spectral.TILE, spectral.BLOCK_PIXELS = before


@pytest.mark.parametrize(("name", "image"), [("gray", "camera"), ("color", "astronaut")])
def test_packed_equals_direct_with_trained_weights(name, image):
    compare(td.load(name), noisy(picture(image, 45), 20), torch.tensor([20.0]), 2e-5)


@pytest.mark.parametrize("size", [9, 17])
def test_a_packed_kernel_is_the_same_convolution(size):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 32, 40, dtype=torch.float64, generator=generator)
    kernel = torch.randn(5, 3, size, size, dtype=torch.float64, generator=generator)
    fast = F.conv2d(pack(x), packing.pack_kernel(kernel))
    torch.testing.assert_close(unpack(fast), F.conv2d(x, kernel))


def test_filters_of_a_bank(gray_double):
    with torch.no_grad():
        bank = gray_double.weights().filters
        torch.testing.assert_close(spectral.filters_of(bank), impulse_responses(bank))


@pytest.mark.parametrize(("name", "image"), [("gray", "camera"), ("color", "astronaut")])
@torch.no_grad()
def test_the_precise_half_is_precise(name, image):
    x, sigma = noisy(picture(image, 64), 20), torch.tensor([20.0])
    double, single = td.load(name).double().weights(), td.load(name).weights()
    direct, fast = DirectBackend(double), PackedBackend(single, 64, 64)
    expected = direct.squared_mask(x.double(), double.alpha(sigma.double()))
    mask = fast.squared_mask(x, single.alpha(sigma))
    assert relative(mask.full, expected) < 3e-6
    assert relative(fast.penalty(x, mask), direct.penalty(x.double(), expected)) < 3e-6


def test_two_layers_as_one():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 30, 25, dtype=torch.float64, generator=generator)
    first, second = (torch.randn(o, i, 9, 9, dtype=torch.float64, generator=generator) for o, i in ((4, 3), (5, 4)))
    torch.testing.assert_close(F.conv2d(x, packing.merged(first, second)), F.conv2d(F.conv2d(x, first), second))


def test_balanced_layers_are_the_same_bank():
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 1, 9, 9), (8, 4, 9, 9), (6, 8, 9, 9)]
    bank = [scale * torch.randn(s, generator=generator) for s, scale in zip(shapes, (1e-6, 3.0, 1e3), strict=True)]
    layers = packing.balanced(bank)
    x = torch.randn(1, 1, 30, 30, generator=generator)
    torch.testing.assert_close(valid_convolutions(x, layers), valid_convolutions(x, bank))
    gains = [float(layer.square().sum((1, 2, 3)).mean().sqrt()) for layer in layers]
    assert max(gains) < 4 * min(gains)
    assert all(layer.isfinite().all() for layer in packing.balanced([torch.zeros(s) for s in shapes]))


def test_zero_and_tiny_vectors():
    model = small_model()
    with torch.no_grad():
        weights = model.weights()
        x = torch.rand(3, 1, 20, 20, dtype=torch.float64)
        backend, direct = PackedBackend(weights, 20, 20), DirectBackend(weights)
        alpha = weights.alpha(torch.full((3,), 10.0, dtype=torch.float64))
        mask = backend.squared_mask(x, alpha)
        p = x * torch.tensor([0.0, 1e-12, 1e12]).view(-1, 1, 1, 1).double()
        result = backend.penalty(p, mask, precise=False)
        assert torch.equal(result[0], torch.zeros_like(result[0]))
        expected = direct.penalty(p, direct.squared_mask(x, alpha))
        for sample in (1, 2):
            assert relative(result[sample], expected[sample]) < 1e-9


def test_a_rough_mask_does_not_serve_a_precise_penalty():
    with torch.no_grad():
        weights = small_model().weights()
    x = torch.rand(1, 1, 20, 20, dtype=torch.float64)
    backend = PackedBackend(weights, 20, 20)
    rough = backend.squared_mask(x, weights.alpha(torch.tensor([10.0])).double(), precise=False)
    with pytest.raises(ValueError, match="needs a precise mask"):
        backend.penalty(x, rough)


def test_no_gradient_is_recorded():
    weights = small_model().weights()
    x = torch.rand(1, 1, 20, 20, dtype=torch.float64)
    backend = PackedBackend(weights, 20, 20)
    for precise in (True, False):
        mask = backend.squared_mask(x, weights.alpha(torch.tensor([10.0])).double(), precise=precise)
        assert not backend.penalty(x, mask, precise=precise).requires_grad


def test_choice():
    image = torch.zeros(1, 1, 20, 20)
    with torch.no_grad():
        reflecting, zero = small_model().weights(), small_model(boundary="zero").weights()
    assert isinstance(choose_backend(reflecting, image, "packed"), PackedBackend)
    assert not isinstance(choose_backend(reflecting, image), PackedBackend)
    with pytest.raises(ValueError, match="boundary='reflect'"):
        choose_backend(zero, image, "packed")


def test_reconstructions_agree(gray):
    y = noisy(picture("camera", 40), 15)
    results = [td.reconstruct(y, model=gray, sigma=15 / 255, backend=name) for name in ("direct", "packed")]
    assert all(r.converged for r in results)
    assert relative(results[0].x, results[1].x) < 1e-3


def test_masks_of_fewer_images_take_the_place_of_more():
    """So that a batch that shrinks needs no more memory; and they are right."""
    weights, x = small_model().weights(), torch.rand(4, 1, 20, 22, dtype=torch.float64)
    alpha = weights.alpha(torch.full((4,), 25.0, dtype=torch.float64))
    backend = PackedBackend(weights, 20, 22)
    whole = backend.squared_mask(x, alpha)
    places = whole.packed.data_ptr(), whole.full.data_ptr()
    part = backend.squared_mask(x[2:], alpha[2:])
    assert (part.packed.data_ptr(), part.full.data_ptr()) == places
    alone = PackedBackend(weights, 20, 22)
    expected = alone.squared_mask(x[2:], alpha[2:])
    assert relative(visible(backend, part), visible(alone, expected)) < 1e-12
    for precise in (True, False):
        found = backend.penalty(x[2:], part, precise=precise)
        assert relative(found, alone.penalty(x[2:], expected, precise=precise)) < 1e-12
