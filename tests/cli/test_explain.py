"""The page that explains a result, and the pictures beside it."""

import base64
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.helpers import load, noise, only_result, pixels, save
from PIL import Image

import torchdeal as td
from torchdeal.cli import explanation_pictures as drawn
from torchdeal.cli.explain import parse_pixel
from torchdeal.explain import FilterBank
from torchdeal.operators import Blur
from torchdeal.operators.blur_kernels import parse_kernel

QUICK = ("--max-iterations", 2)
ALWAYS = {"picture", "result", "mask", "responses", "responses-masked", "pixels", "filters"}


def write_noisy(name="in.png", size=32, picture="camera", sigma=25):
    noisy = (pixels(picture, size) + noise(pixels(picture, size).shape, sigma)).round().clip(0, 255)
    save(name, noisy)
    return noisy


def of_a_pixel(row, column):
    return {f"pixel-{row}-{column}-{part}" for part in ("data", "result", "weights")}


def embedded(page):
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(code))))
        for code in re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    ]


def test_a_page_and_its_pictures(deal):
    noisy = write_noisy()
    code, out, err = deal("explain", "in.png", "why", "--sigma", 25, "--pixel", "4,20", "--tolerance", 0.02)
    assert (code, err) == (0, "")
    assert {path.stem for path in Path("why").glob("*.png")} == ALWAYS | of_a_pixel(4, 20)
    assert np.array_equal(load("why/picture.png")[..., 0], noisy)
    rec = td.reconstruct(noisy.astype(np.uint8), sigma=25, tolerance=0.02)
    assert np.abs(load("why/result.png")[..., 1] - rec.x).max() <= 1
    (averaged,) = re.findall(r"as the plain mean of (\S+) measured pixels", out)
    assert float(averaged) == pytest.approx(float(td.explain(rec).row(4, 20).averaged), rel=1e-2)
    page = Path("why/explanation.html").read_text()
    assert "sigma of 25" in page
    assert f"lam, which weighs weak patterns against the data, is {float(rec.lam):.3g}" in page
    assert "ended with CONVERGED" in page
    assert page.count("<h2>") == 5
    assert len(embedded(page)) == 10
    assert page.count('class="squares"') == 6  # not those that are enlarged and marked already
    assert any(np.array_equal(picture[..., 0], noisy) for picture in embedded(page))


def test_the_page_needs_nothing_from_elsewhere(deal):
    write_noisy("a<b>&.png")
    assert deal("explain", "a<b>&.png", "why", "--sigma", 25, *QUICK, "--pixel", "1,1")[0] == 0
    page = Path("why/explanation.html").read_text()
    assert "How a&lt;b&gt;&amp;.png was denoised" in page
    assert "a<b>" not in page
    assert not re.search(r"https?://|<script|<link|url\(", page)
    assert not re.findall(r'(?:src|href)="(?!data:image/png)', page)
    assert all(f'alt="{words}' in page for words in ("The data.", "The result.", "The mean mask"))


def test_three_telling_pixels_by_default_and_json(deal):
    write_noisy(size=40)
    code, out, _ = deal("explain", "in.png", "why", "--sigma", 25, *QUICK, "--json")
    result = only_result(out)
    assert code == 0
    assert [pixel["kind"] for pixel in result["pixels"]] == ["edge", "texture", "flat"]
    assert all(Path(name).stat().st_size > 0 for name in result["files"])
    assert {Path(name).name for name in result["files"]} == {path.name for path in Path("why").iterdir()}
    edge, _, flat = result["pixels"]
    assert flat["averaged"] > edge["averaged"] > 1
    for pixel in result["pixels"]:
        assert pixel["sum_of_weights"] == pytest.approx(1, abs=1e-3)
        assert 0 < pixel["weight_in_window"] <= 1 + 1e-9
    assert result["status"] == "MAX_ITERATIONS"
    assert "Raise --max-iterations" in Path("why/explanation.html").read_text()


def test_weights_that_were_not_solved_for_precisely_are_called_rough(deal, monkeypatch):
    write_noisy()
    for iterations, rough in ((1, True), (2000, False)):
        monkeypatch.setattr(sys.modules["torchdeal.explain"], "MOST_CG_ITERATIONS", iterations)
        deal("explain", "in.png", "why", "--sigma", 25, *QUICK, "--pixel", "5,5")
        assert ("The weights are rough" in Path("why/explanation.html").read_text()) is rough


def test_deblurring_is_explained_at_the_place_in_the_picture(deal):
    """The solution is larger than the picture by the border that the blur saw."""
    H = Blur(parse_kernel("gaussian:0.8"), "valid")
    sharp = torch.from_numpy(pixels(size=40)).float()[None, None]
    blurred = H.forward(sharp)[0, 0].numpy()
    save("in.png", blurred + noise(blurred.shape, 5))
    code, out, _ = deal(
        "explain", "in.png", "why", "--kernel", "gaussian:0.8", "--sigma", 5, *QUICK, "--pixel", "15,20", "--json"
    )
    assert code == 0
    (pixel,) = only_result(out)["pixels"]
    rec = td.reconstruct(load("in.png").astype(np.float32) / 255, H, noise=5 / 255, max_iterations=2)
    left, _, top, _ = H.margins()
    mean = td.explain(rec).row(15 + top, 20 + left)
    assert top > 0
    assert pixel["averaged"] == pytest.approx(float(mean.averaged), rel=1e-2)
    assert pixel["averaged"] != pytest.approx(float(td.explain(rec).row(15, 20).averaged), rel=0.05)
    assert load("why/result.png").shape == load("why/picture.png").shape == load("why/mask.png").shape
    assert "was deblurred" in Path("why/explanation.html").read_text()


def test_colour_and_simulation(deal):
    save("clean.png", pixels("astronaut", 28, 40, 160))
    code, out, _ = deal("explain", "clean.png", "why", "--sigma", 15, "--simulate", *QUICK, "--pixel", "3,3")
    assert code == 0
    assert "PSNR" in out
    assert "the truth is known: PSNR" in Path("why/explanation.html").read_text()
    assert np.ptp(load("why/result.png"), axis=2).max() > 20


def test_what_else_is_in_the_folder_stays_and_an_earlier_explanation_is_replaced(deal):
    write_noisy()
    Path("why").mkdir()
    Path("why/notes.txt").write_text("mine")
    first, again = (deal("explain", "in.png", "why", "--sigma", sigma, *QUICK, "--pixel", "1,1") for sigma in (10, 30))
    assert (first[0], again[0]) == (0, 0)
    assert Path("why/notes.txt").read_text() == "mine"
    assert "sigma of 30" in Path("why/explanation.html").read_text()
    assert not list(Path("why").glob(".*"))


@pytest.mark.parametrize("name", ["result.png", "explanation.html", "pixel-1-1-data.png"])
def test_a_file_of_someone_else_is_not_replaced(deal, name):
    write_noisy()
    Path("why").mkdir()
    Path("why", name).write_text("mine")
    code, _, err = deal("explain", "in.png", "why", "--sigma", 25, *QUICK, "--pixel", "1,1")
    assert code == 1
    assert "is not of an earlier explanation; give another folder" in err
    assert [path.read_text() for path in Path("why").iterdir()] == ["mine"]


def test_the_input_is_not_replaced(deal):
    Path("why").mkdir()
    write_noisy("why/result.png")
    before = Path("why/result.png").read_bytes()
    code, _, err = deal("explain", "why/result.png", "why", "--sigma", 25, *QUICK)
    assert code == 1
    assert "would overwrite the input" in err
    assert Path("why/result.png").read_bytes() == before


def test_a_full_disk_leaves_what_was_there(deal, monkeypatch):
    write_noisy()
    arguments = ("explain", "in.png", "why", *QUICK, "--pixel", "1,1", "--sigma")
    deal(*arguments, 10)
    before = {path.name: path.read_bytes() for path in Path("why").iterdir()}

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    code, _, err = deal(*arguments, 30)
    assert code == 1
    assert "No space left" in err
    assert {path.name: path.read_bytes() for path in Path("why").iterdir()} == before


@pytest.mark.parametrize("text", ["", "3", "a,b", "1,2,3", "1.5,2", "1;2", "1,"])
def test_a_malformed_pixel_is_refused(text):
    with pytest.raises(ValueError, match="give row and column as two whole numbers, such as 12,34"):
        parse_pixel(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in.png", "why", "--pixel", "32,0"), "--pixel 32,0 is outside of the picture: rows go from 0 to 31"),
        (("in.png", "why", "--pixel", "-1,3"), "--pixel -1,3 is outside"),
        (("in.png", "why", "--pixel", "3"), "--pixel 3: give row and column"),
        (("in.png", "in.png"), "in.png: not a folder; give a folder"),
        (("in.png", "no/why"), "the folder no does not exist; create it first"),
        (("missing.png", "why"), "missing.png: no such file"),
        (("line.png", "why"), "too small to look for an edge in it: say which pixels, by --pixel Y,X"),
        (("stack.npy", "why"), "several pictures or channels; explain one picture"),
        (("in.png", "why", "--boundary", "zero"), "use it with --kernel"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(deal, arguments, message):
    write_noisy()
    Image.fromarray(np.full((1, 20), 90, np.uint8)).save("line.png")
    np.save("stack.npy", np.zeros((5, 20, 20, 1), np.uint8))
    code, out, err = deal("explain", *arguments, "--sigma", 25, *QUICK)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("why").exists()


def test_a_picture_that_would_be_left_alone_is_not_explained(deal):
    save("flat.png", np.full((32, 32), 128))
    code, _, err = deal("explain", "flat.png", "why", *QUICK)
    assert code == 1
    assert "would be left unchanged: give --sigma" in err


def test_a_picture_of_one_row_is_explained_where_one_says(deal):
    Image.fromarray((90 + noise((1, 20), 5)).astype(np.uint8)).save("line.png")
    assert deal("explain", "line.png", "why", "--sigma", 5, *QUICK, "--pixel", "0,9")[0] == 0
    assert load("why/mask.png").shape == (1, 20, 3)


def test_a_window_holds_most_of_the_weight():
    weights = np.zeros((60, 70))
    weights[30, 35], weights[30, 48] = 0.8, 0.2
    window = drawn.window_of(weights, (30, 35))
    assert window.size == (33, 33)
    assert window.holds == 1
    assert drawn.window_of(np.ones((200, 200)), (0, 0)).size == (41, 41)


def test_weights_are_blue_above_and_orange_below_zero():
    weights = np.array([[1.0, 0, -1.0]])
    above, none, below = drawn.with_weights(np.full((1, 3, 3), 0.5), weights)[0]
    assert above[2] > above[0]
    assert below[0] > below[2]
    assert np.allclose(none, 0.5, atol=1e-6)


def test_colours_go_from_the_first_to_the_last():
    found = drawn.in_colours(np.array([[-1.0, 0, 0.5, 1, 9]]), 0, 1)[0]
    assert np.allclose(found[[0, 1]], drawn.rgb(drawn.STOPS[0]))
    assert np.allclose(found[2], drawn.rgb(drawn.STOPS[4]))
    assert np.allclose(found[[3, 4]], drawn.rgb(drawn.STOPS[-1]))


def test_every_filter_is_in_the_mosaic():
    values = np.random.default_rng(0).standard_normal((20, 1, 25, 25))
    sheet = drawn.mosaic(FilterBank(np.arange(20), values))
    assert sheet.shape == (52, 16 * 27 - 2, 3)
    last = sheet[27:52, 3 * 27 : 3 * 27 + 25, 0]
    assert np.allclose(last, values[19, 0] / np.abs(values[19]).max() / 2 + 0.5)


def test_a_picture_in_the_page_has_a_limit():
    picture = np.zeros((20, 3000, 3))
    assert Image.open(io.BytesIO(drawn.png(picture, 1000))).size == (1000, 7)
    assert Image.open(io.BytesIO(drawn.png(picture))).size == (3000, 20)
