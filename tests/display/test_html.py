"""What a notebook shows of a reconstruction."""

import base64
import io
import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from conftest import noisy, picture, small_model
from PIL import Image

import torchdeal as td


def parsed(rec):
    """As XML: an unescaped `<` or an open tag would not pass."""
    return ElementTree.fromstring(rec._repr_html_())


def words(rec):
    return " ".join(" ".join(parsed(rec).itertext()).split())


def pictures_of(rec):
    sources = [image.get("src").removeprefix("data:image/png;base64,") for image in parsed(rec).iter("img")]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(source)))) for source in sources]


def enlarged(pixels, times):
    return pixels.repeat(times, 0).repeat(times, 1)


def assert_within_one_level(shown, expected):
    np.testing.assert_allclose(shown.astype(float), expected.astype(float), atol=1)


def test_gray(gray_rec):
    (shown,) = pictures_of(gray_rec)
    assert_within_one_level(shown, enlarged(gray_rec.x, 3))
    assert "black 0, white 255" in words(gray_rec)


def test_colour(color_rec):
    (shown,) = pictures_of(color_rec)
    pixels = (color_rec.x[0].permute(1, 2, 0).clamp(0, 1) * 255).numpy()
    assert_within_one_level(shown, enlarged(pixels, 5))


def test_a_complex_image_is_shown_by_its_magnitude(kspace_rec):
    (shown,) = pictures_of(kspace_rec)
    magnitude = kspace_rec.x[0, 0].abs().numpy()
    assert_within_one_level(shown, enlarged(magnitude / magnitude.max() * 255, 4))
    assert f"magnitude: black 0, white {magnitude.max():.3g}" in words(kspace_rec)


def test_other_channels_are_told_of():
    image = noisy(picture(size=24), 15).repeat(1, 5, 1, 1)
    rec = td.reconstruct(image, model=small_model(), sigma=15 / 255, channelwise=True)
    assert "channel 1 of 5" in words(rec)
    assert pictures_of(rec)[0].ndim == 2


def test_a_dark_picture_is_spread_and_says_so(degraded):
    rec = td.reconstruct(degraded // 8, model=small_model(), sigma=2)
    (shown,) = pictures_of(rec)
    assert (shown.min(), shown.max()) == (0, 255)
    assert "white 255" not in words(rec)


def test_a_large_picture_is_made_smaller():
    rec = td.reconstruct(np.full((8, 700), 0.5), model=small_model(), sigma=0.1)
    assert pictures_of(rec)[0].shape[1] == 256


def test_numbers(gray_rec):
    text = words(gray_rec)
    assert f"{gray_rec.status.name} {gray_rec.status.value}" in text
    assert f"distance {float(gray_rec.distance):.1e}" in text
    assert f"{int(gray_rec.iterations)} outer, {int(gray_rec.cg_iterations)} CG" in text
    assert f"sigma 15 lam {float(gray_rec.lam):.4g}" in text
    assert "40 x 40, numpy uint8" in text


def test_a_batch_shows_the_first_few_and_says_how_many_more(batch_rec):
    assert len(pictures_of(batch_rec)) == 4
    text = words(batch_rec)
    assert "and 2 more" in text
    assert [f"{sigma:.4g}" in text for sigma in batch_rec.sigma.tolist()] == [True] * 4 + [False] * 2


def test_every_way_that_samples_ended_is_told(batch_rec):
    mixed = replace(batch_rec, statuses=(*batch_rec.statuses[:5], td.Status.DIVERGED))
    assert f"DIVERGED 1: {td.Status.DIVERGED.value}" in words(mixed)


def test_unknown_distance_and_unsettled_movement(gray_rec):
    from torchdeal.solvers.result import Movement

    numbers = [torch.tensor([value], dtype=torch.double) for value in (0.01, 0.9, 3, 4)]
    unsettled = replace(
        gray_rec,
        statuses=(td.Status.UNSETTLED,),
        distance=torch.tensor([torch.inf]),
        movement=Movement(1e-3, 19, *numbers),
    )
    assert "distance unknown" in words(unsettled)
    assert "most around row 3, column 4" in words(unsettled)


def test_a_map_of_noise(degraded):
    levels = np.linspace(5, 20, degraded.size).reshape(degraded.shape)
    assert "sigma 5 to 20 (a map)" in words(td.reconstruct(degraded, model=small_model(), sigma=levels))


def test_text_has_the_colour_of_the_page(batch_rec, gray_rec):
    """So it can be read on light and on dark ones: only the dots of a status have a colour of their own."""
    for rec in (batch_rec, gray_rec):
        coloured = [element.text for element in parsed(rec).iter() if re.search("color:#", element.get("style", ""))]
        assert set(coloured) == {"●"}


def test_matplotlib_is_not_needed(gray_rec, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert pictures_of(gray_rec)


@pytest.mark.parametrize("broken", [{"image": "no image"}, {"sigma": None}, {"x": object()}])
def test_it_never_raises(gray_rec, broken):
    assert replace(gray_rec, **broken)._repr_html_() is None


def test_without_a_problem_there_are_numbers_alone(gray_rec):
    bare = replace(gray_rec, image=None, equation=None)
    assert pictures_of(bare) == []
    assert gray_rec.status.name in words(bare)
