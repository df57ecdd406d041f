"""Pictures side by side, and the files of the figures."""

import re
import sys

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from torchdeal.benchmark import figures
from torchdeal.benchmark.figures import FIGURES, Study, compare_pictures, draw_all, write
from torchdeal.benchmark.figures.panels import interesting_place
from torchdeal.benchmark.figures.style import in_style
from torchdeal.metrics import psnr


@pytest.fixture
def tiny(monkeypatch):
    """Figures of pictures so small that all of them take seconds."""
    small = classmethod(lambda cls, device, image: cls(size=26, tolerance=0.2, steps=1, device=device, image=image))
    monkeypatch.setattr(Study, "quick", small)


def texts_of(figure):
    return [text.get_text() for text in figure.texts]


@pytest.fixture
def clean():
    return np.random.default_rng(0).random((24, 32)) * 0.1 + 0.4


def test_every_figure_is_written_in_both_formats_and_the_same_again(tiny, tmp_path):
    said = []
    files = draw_all(tmp_path / "new" / "a", quick=True, say=said.append)
    assert sorted(p.name for p in files) == sorted(f"{name}.{kind}" for name in FIGURES for kind in ("pdf", "png"))
    assert [line.split(":")[0] for line in said] == list(FIGURES)
    assert sorted((tmp_path / "new" / "a").iterdir()) == sorted(files)  # nothing temporary is left
    for again in draw_all(tmp_path / "b", quick=True, only=["path", "filters"], say=said.append):
        assert again.read_bytes() == (tmp_path / "new" / "a" / again.name).read_bytes()


def test_only_some_figures_of_another_picture(tiny, tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    ours, others = (
        draw_all(tmp_path / name, quick=True, only=["rows"], image=image, say=lambda line: None)
        for name, image in (("camera", None), ("mine", tmp_path / "a.png"))
    )
    assert [p.name for p in ours] == ["rows.pdf", "rows.png"]
    assert ours[1].read_bytes() != others[1].read_bytes()


def test_text_in_a_pdf_is_truetype_and_a_file_has_no_date(tmp_path):
    pdf, png = draw_all(tmp_path, quick=True, only=["splines"], say=lambda line: None)
    content = pdf.read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert b"/CreationDate" not in content
    assert Image.open(png).info.keys() == {"dpi"}


def test_a_figure_has_the_width_of_the_page(tmp_path):
    _, png = draw_all(tmp_path, quick=True, only=["filters"], say=lambda line: None)
    image = Image.open(png)
    assert image.width / image.info["dpi"][0] == pytest.approx(6.75, abs=0.01)


def test_an_unknown_figure_is_refused_with_the_names(tmp_path):
    with pytest.raises(ValueError, match=r"no figure nothing: choose of path, .*starts"):
        draw_all(tmp_path / "a", only=["path", "nothing"])
    assert not (tmp_path / "a").exists()


def test_without_matplotlib_the_extra_is_named_before_the_work(monkeypatch, tmp_path, clean):
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for attempt in (lambda: draw_all(tmp_path / "a"), lambda: compare_pictures({"a": clean})):
        with pytest.raises(ImportError, match=re.escape("needs matplotlib: pip install 'torchdeal[benchmark]'")):
            attempt()
    assert not (tmp_path / "a").exists()


def test_drawing_leaves_the_settings_of_matplotlib_alone(tmp_path, clean):
    before = dict(mpl.rcParams)
    figure = compare_pictures({"a": clean})
    write(figure, tmp_path / "a.png")
    assert dict(mpl.rcParams) == before
    assert figure.texts[0].get_fontfamily() == ["serif"]


def test_a_figure_that_fails_leaves_the_file_that_was_there(tmp_path, monkeypatch, clean):
    figure, path = compare_pictures({"a": clean}), tmp_path / "a.png"
    path.write_bytes(b"before")

    def full_disk(temporary, **options):
        temporary.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(figure, "savefig", full_disk)
    with pytest.raises(OSError, match="no space"):
        write(figure, path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_only_pdf_and_png_are_written(tmp_path, clean):
    with pytest.raises(ValueError, match=r"\.pdf or \.png"):
        write(compare_pictures({"a": clean}), tmp_path / "a.jpg")


def test_each_picture_has_its_name_and_psnr_and_the_clean_one_comes_first(clean):
    pictures = {"Noisy": clean + 0.1, "DEAL": clean + 0.01}
    figure = compare_pictures(pictures, clean=clean)
    expected = ["Ground truth", ""] + [t for n, p in pictures.items() for t in (n, f"{psnr(p, clean):.2f} dB")]
    assert texts_of(figure) == expected
    assert [axes.get_images()[0].get_array().shape for axes in figure.axes] == [clean.shape] * 6


def test_values_are_shown_as_given(clean):
    figure = compare_pictures({"a": clean, "b": clean, "c": clean}, clean=clean, values={"a": 30.118, "b": "4 x"})
    assert texts_of(figure) == ["Ground truth", "", "a", "30.12 dB", "b", "4 x", "c", ""]


def test_the_same_place_is_framed_and_enlarged_in_each(clean):
    figure = compare_pictures({"low": clean[::2, ::2], "DEAL": clean}, clean=clean, zoom=(3, 5, 6, 8))
    for whole, part in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        corners = whole.patches[0].get_xy()
        assert (corners.min(0).tolist(), corners.max(0).tolist()) == ([5, 3], [13, 9])
        assert (part.get_xlim(), part.get_ylim()) == ((5, 13), (9, 3))
        assert tuple(part.get_images()[0].get_extent()) == (0, 32, 24, 0)  # whatever the number of pixels
        frame = part.get_position()
        size = figure.get_size_inches()
        assert frame.width * size[0] / (frame.height * size[1]) == pytest.approx(8 / 6)


def test_colour_is_shown_in_colour_and_many_pictures_in_rows():
    colour = np.random.default_rng(0).random((20, 20, 3)) * 1.2
    figure = compare_pictures({str(number): colour for number in range(6)}, columns=5)
    assert figure.axes[0].get_images()[0].get_array().shape == (20, 20, 3)
    lefts, tops = zip(*(axes.get_position().p0.round(6).tolist() for axes in figure.axes[::2]), strict=True)
    assert (len(set(lefts)), len(set(tops))) == (3, 2)  # not 5 and 1
    assert figure.get_size_inches()[0] <= 6.76


def test_long_names_stay_under_their_pictures(clean):
    names = ["PnP-DnCNN with a long name", "MMMMMMMMMMMMMMMM", "short", "b", "c", "d"]
    figure = compare_pictures(dict.fromkeys(names, clean))
    tiles = [axes.get_window_extent() for axes in figure.axes[::2]]
    with in_style():
        extents = [text.get_window_extent() for text in figure.texts[::2]]
    for extent, tile in zip(extents, tiles, strict=True):
        assert tile.x0 - 4 <= extent.x0 < extent.x1 <= tile.x1 + 4  # pixels; the gap between pictures has 12
    assert figure.texts[4].get_fontsize() == 8


def test_what_is_enlarged_is_where_the_results_differ(clean):
    a, b = clean + 0.001, clean.copy()
    b[14:18, 20:26] += 0.3
    noisy = clean + np.random.default_rng(1).normal(0, 0.5, clean.shape)
    top, left, height, width = interesting_place([noisy, a, b], clean)
    assert top <= 14 < 18 <= top + height
    assert left <= 20 < 26 <= left + width


def test_with_one_result_texture_is_enlarged():
    clean = np.zeros((40, 40))
    clean[26:30, 4:10] = np.random.default_rng(0).random((4, 6))
    top, left, height, width = interesting_place([clean + 1, clean], clean)
    assert top <= 27 < 29 <= top + height
    assert left <= 5 < 9 <= left + width


@pytest.mark.parametrize("zoom", [(-1, 0, 4, 4), (0, 0, 25, 4), (20, 30, 4, 4), (0, 0, 0, 4)])
def test_a_zoom_that_is_not_inside_is_refused(clean, zoom):
    with pytest.raises(ValueError, match="not inside the picture, which has 24 x 32 pixels"):
        compare_pictures({"a": clean}, zoom=zoom)


def test_nothing_to_compare_is_refused():
    with pytest.raises(ValueError, match="no pictures"):
        compare_pictures({})


def test_what_other_modules_use_is_exported():
    assert set(figures.__all__) >= {"FIGURES", "compare_pictures", "draw_all", "write"}
