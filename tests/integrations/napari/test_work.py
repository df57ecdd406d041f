"""What the plugin of napari does, without napari: compared with the commands and with `td.denoise`."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from cli.helpers import load, noise, pixels, psnr, save

import torchdeal as td
from torchdeal.app.wishes import Goal, Wish
from torchdeal.cancelling import CancelledError
from torchdeal.integrations.napari import samples
from torchdeal.integrations.napari.work import LayerOrder, Pixels, work
from torchdeal.operators import BlurBoundary

QUICK = Wish(tolerance=0.05)


def nothing(title, done):
    pass


def done(picture, order, told=nothing):
    return work(picture, order, told, threading.Event())


def noisy(name="camera", size=24, sigma=20):
    clean = pixels(name, size)
    return (clean + noise(clean.shape, sigma)).round().clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("name", ["camera", "astronaut"])
def test_a_picture_is_denoised_as_by_the_command(deal, name):
    picture = noisy(name)
    save("in.png", picture)
    found = done(Pixels(picture, rgb=picture.ndim == 3), LayerOrder(QUICK, noise=20))
    model = f"{'gray' if name == 'camera' else 'color'}-light"
    assert deal("denoise", "in.png", "out.png", "--sigma", 20, "--model", model, "--tolerance", 0.05)[0] == 0
    assert found.data.dtype == np.uint8
    assert (found.data == load("out.png")).all()
    assert (found.report.status, found.report.model) == ("CONVERGED", model)


def test_transparency_stays():
    picture = np.concatenate([noisy("astronaut"), np.full((24, 24, 1), 77, np.uint8)], -1)
    found = done(Pixels(picture, rgb=True), LayerOrder(QUICK, noise=20))
    assert (found.data[..., 3] == 77).all()
    assert (found.data[..., :3] != picture[..., :3]).any()


def test_planes_are_done_one_by_one_and_stay_in_order():
    stack = np.stack([noisy(size=16, sigma=10 + shift) for shift in range(4)]).reshape(2, 2, 16, 16)
    heard = []
    found = done(Pixels(stack), LayerOrder(QUICK, noise=12), lambda *told: heard.append(told))
    assert found.data.shape == stack.shape
    assert found.start == (0, 0, 0, 0)
    one = done(Pixels(stack), LayerOrder(QUICK, noise=12, plane=(1, 0)))
    assert one.data.shape == (1, 1, 16, 16)
    assert one.start == (1, 0, 0, 0)
    assert (one.data[0, 0] == found.data[1, 0]).all()
    assert heard[0] == ("plane 1 of 4", 0)
    fractions = [fraction for _, fraction in heard]
    assert fractions == sorted(fractions)
    assert 0.75 < fractions[-1] < 1
    assert found.report.frames == 4


class Lazy:
    """An array that is read plane by plane, as those of dask and zarr are."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.largest = array, array.shape, array.dtype, 0

    def __getitem__(self, index):
        part = self.array[index]
        self.largest = max(self.largest, part.size)
        return part


def test_a_lazy_stack_is_never_read_as_a_whole():
    stack = np.stack([noisy(size=16)] * 2).astype(np.float32)  # floats that are not in 0..1: their range is looked for
    lazy = Lazy(stack)
    found = done(Pixels(lazy), LayerOrder(QUICK, noise=20))
    assert found.data.shape == stack.shape
    assert lazy.largest == 16 * 16


@pytest.mark.parametrize(
    ("dtype", "gain", "offset"),
    [("uint16", 16, 2000), ("int16", 16, -300), ("float32", 1 / 255, 0), ("float64", 40, 1e4)],
)
def test_noise_is_in_the_values_of_the_layer_whatever_their_type(dtype, gain, offset):
    clean = pixels(size=32) * gain + offset
    picture = (clean + noise(clean.shape, 20 * gain)).astype(dtype)
    found = done(Pixels(picture), LayerOrder(QUICK, noise=20 * gain))
    assert found.data.dtype == picture.dtype
    assert found.noise == pytest.approx(20 * gain, rel=1e-3)
    assert psnr(found.data, clean, 255 * gain) > psnr(picture, clean, 255 * gain) + 3
    assert f"Noise: {20 * gain:.3g} in the values of the layer (given)." in found.words()
    estimated = done(Pixels(picture), LayerOrder(QUICK))
    assert estimated.noise == pytest.approx(20 * gain, rel=0.3)
    assert "estimated, between" in estimated.words()[1]


def test_a_blurred_picture_is_sharp_as_by_the_command(deal):
    save("in.png", pixels(size=16))
    wish = replace(QUICK, goal=Goal.DEBLUR, boundary=BlurBoundary.CIRCULAR)
    order = LayerOrder(wish, noise=3, kernel="disk:1.5")
    found = done(Pixels(load("in.png").astype(np.uint8)), order)
    options = ("--kernel", "disk:1.5", "--boundary", "circular", "--model", "gray-light", "--tolerance", 0.05)
    assert deal("deblur", "in.png", "out.tif", "--sigma", 3, *options)[0] == 0
    assert (found.data == tifffile.imread("out.tif")).all()
    with pytest.raises(ValueError, match="no such kernel; use gaussian"):
        done(Pixels(load("in.png")), replace(order, kernel="gauss:2"))


def test_an_enlarged_picture_covers_the_same_place():
    picture = noisy(size=12, sigma=1)
    found = done(Pixels(picture), LayerOrder(replace(QUICK, goal=Goal.UPSCALE, scale=3)))
    assert found.data.shape == (36, 36)
    assert found.magnification == 3
    # The middle of the first of three pixels that lie where one lay, from -0.5 to 0.5.
    assert found.start == pytest.approx((-1 / 3, -1 / 3))


class TestInpainting:
    order = LayerOrder(replace(QUICK, goal=Goal.INPAINT), noise=2)

    def test_what_is_painted_over_is_filled_in(self):
        clean = pixels(size=24)
        missing = np.zeros((24, 24), int)
        missing[10:13, 5:20] = 3  # any label
        damaged = np.where(missing, 0, clean).astype(np.uint8)
        found = done(Pixels(damaged), replace(self.order, missing=missing))
        errors = [np.abs(image - clean)[missing != 0].mean() for image in (damaged, found.data)]
        assert errors[1] < 0.3 * errors[0]
        both = done(Pixels(np.stack([damaged, damaged])), replace(self.order, missing=np.stack([missing, missing])))
        assert (both.data == found.data).all()

    @pytest.mark.parametrize(
        ("missing", "message"),
        [
            (None, "paint over what is missing"),
            (np.ones((24, 24)), "leave some of it"),
            (np.ones((8, 24)), "the labels are 8 x 24 and image is 24 x 24: make them equal"),
        ],
    )
    def test_what_cannot_be(self, missing, message):
        with pytest.raises(ValueError, match=message):
            done(Pixels(noisy()), replace(self.order, missing=missing))


def test_it_can_be_cancelled_in_the_middle():
    stop = threading.Event()
    with pytest.raises(CancelledError):
        work(
            Pixels(noisy()),
            LayerOrder(Wish(tolerance=1e-5), noise=20),
            lambda title, done: done > 0 and stop.set(),
            stop,
        )


@pytest.mark.parametrize(
    ("picture", "message"),
    [(np.zeros((8, 8), bool), "bool"), (np.zeros((8, 8), complex), "complex"), (np.full((8, 8), np.nan), "NaN")],
)
def test_what_is_no_picture_is_refused_in_words(picture, message):
    with pytest.raises((TypeError, ValueError), match=message):
        done(Pixels(picture), LayerOrder(QUICK))


def test_a_layer_without_rows_is_refused():
    with pytest.raises(ValueError, match="at least two axes"):
        Pixels(np.zeros(5))


def test_a_result_tells_numbers_and_words():
    found = done(Pixels(noisy(), name="mine"), LayerOrder(QUICK, noise=20))
    facts = found.facts()
    assert (facts["status"], facts["noise"], facts["sigma"]) == ("CONVERGED", 20, 20)
    assert 0 < facts["distance"] < 0.05
    assert found.words()[0].startswith("Converged: ")
    assert found.name == "mine denoised"
    clean = done(Pixels(np.tile(np.arange(24, dtype=np.uint8), (24, 1))), LayerOrder(QUICK))
    assert "The picture was left as it is." in clean.words()
    assert "--" not in " ".join(clean.words())


def test_samples_are_noisy():
    for sample in (samples.camera, samples.astronaut, samples.stack):
        ((data, properties, kind),) = sample()
        assert kind == "image"
        assert properties["name"]
        white = np.iinfo(data.dtype).max
        planes = data if sample is samples.stack else data[None]
        estimate = td.noise.noise_levels(planes[0], data_range=white)[0].sigma / white * 255
        assert estimate == pytest.approx(samples.NOISE, rel=0.2)
