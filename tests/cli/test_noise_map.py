import numpy as np
import pytest
from cli.helpers import load, noise, only_result, pixels, psnr, save

LEVELS = np.full((32, 32), 8.0)
LEVELS[:, 16:] = 40.0


@pytest.fixture
def pictures(deal):  # the fixture brings a folder of its own
    clean = pixels(size=32)
    save("noisy.png", clean + LEVELS * noise(clean.shape, 1))
    np.save("levels.npy", LEVELS)
    save("levels.png", LEVELS)
    save("small.png", LEVELS[:, :20])
    np.save("negative.npy", -LEVELS)
    np.save("stack.npy", np.zeros((2, 32, 32, 3), np.float32))
    return clean


def test_a_map_is_better_than_its_mean(deal, pictures):
    code, out, _ = deal("denoise", "noisy.png", "out.png", "--noise-map", "levels.npy", "--json")
    result = only_result(out)
    assert (code, result["estimated"]) == (0, False)
    assert result["sigma"] == pytest.approx(np.sqrt((LEVELS**2).mean()), rel=1e-3)
    assert deal("denoise", "noisy.png", "mean.png", "--sigma", LEVELS.mean())[0] == 0
    assert psnr(load("out.png"), pictures) > psnr(load("mean.png"), pictures) + 0.5
    assert deal("denoise", "noisy.png", "by_png.png", "--noise-map", "levels.png")[0] == 0
    np.testing.assert_array_equal(load("by_png.png"), load("out.png"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noise-map", "small.png"], "the noise map is 32 x 20 and the picture 32 x 32"),
        (["--noise-map", "negative.npy"], "negative.npy: the noise map must be finite and at least 0"),
        (["--noise-map", "stack.npy"], "stack.npy: a noise map is one picture"),
        (["--noise-map", "none.npy"], "none.npy"),
        (["--noise-map", "levels.npy", "--sigma", "5"], "leave out --sigma and --simulate"),
        (["--noise-map", "levels.npy", "--simulate"], "leave out --sigma and --simulate"),
    ],
)
def test_maps_that_cannot_be(deal, pictures, arguments, message):
    code, _, err = deal("denoise", "noisy.png", "out.png", *arguments)
    assert code == 1
    assert message in " ".join(err.split())


def test_the_map_is_not_overwritten(deal, pictures):
    code, _, err = deal("denoise", "noisy.png", "levels.png", "--noise-map", "levels.png")
    assert code == 1
    assert "levels.png" in err
    np.testing.assert_array_equal(load("levels.png"), LEVELS)
