"""The command as a user runs it: exit codes, what is printed where, and what is left on disk."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from conftest import noisy, picture
from PIL import Image
from skimage import data

import torchdeal as td
from torchdeal.cli import run

ROUGH = ("--tolerance", 0.1)  # where the picture does not matter


def save(path, name="camera", size=24, sigma=20, **options):
    clean = picture(name, size, **options)
    pixels = (noisy(clean, sigma)[0].clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).squeeze(-1).numpy()
    Image.fromarray(pixels).save(path)
    return (clean[0].permute(1, 2, 0).squeeze(-1).numpy() * 255), pixels


def test_denoise_a_file(deal, tmp_path):
    clean, image = save("in.png")
    code, out, err = deal("denoise", "in.png", "out.png", "--sigma", 20)
    assert code == 0
    assert err == ""
    for word in ("out.png", "sigma 20", "iterations", "CONVERGED", "distance to the fixed point", " s"):
        assert word in out
    result = np.asarray(Image.open("out.png"))
    assert result.dtype == np.uint8
    assert np.mean((result - clean) ** 2) < 0.3 * np.mean((image - clean) ** 2)
    assert sorted(os.listdir(tmp_path)) == ["in.png", "out.png"]


def test_result_is_that_of_the_library(deal):
    _, image = save("in.png")
    deal("denoise", "in.png", "out.png", "--sigma", 20)
    assert np.array_equal(np.asarray(Image.open("out.png")), td.denoise(image, 20.0))


def test_sigma_means_the_same_at_every_bit_depth(deal):
    values = noisy(picture(size=24), 20)[0, 0].clamp(0, 1).numpy()
    tifffile.imwrite("u16.tif", (values * 65535).round().astype(np.uint16))
    tifffile.imwrite("f32.tif", values.astype(np.float32))
    np.save("range.npy", values.astype(np.float64) * 4000)
    for name in ("u16.tif", "f32.tif"):
        assert deal("denoise", name, f"out_{name}", "--sigma", 20)[0] == 0
    assert deal("denoise", "range.npy", "out.npy", "--sigma", 20, "--data-range", 4000)[0] == 0
    u16, f32, scaled = tifffile.imread("out_u16.tif"), tifffile.imread("out_f32.tif"), np.load("out.npy")
    assert (u16.dtype, f32.dtype, scaled.dtype) == (np.uint16, np.float32, np.float64)
    np.testing.assert_allclose(u16 / 65535, f32, atol=1e-3)
    np.testing.assert_allclose(scaled / 4000, f32, atol=1e-3)


def test_a_small_part_of_a_bit_depth_is_as_good_as_all_of_it(deal):
    clean, image = save("in.png")
    tifffile.imwrite("dark.tif", image.astype(np.uint16) * 4)  # 10 bits of a camera in a file of 16
    assert deal("denoise", "dark.tif", "dark_out.tif", "--sigma", 20 * 4 / 257, "--tolerance", 1e-2)[0] == 0
    error, best = (
        np.mean((array - clean) ** 2)
        for array in (tifffile.imread("dark_out.tif") / 4, td.denoise(image, 20, tolerance=1e-2))
    )
    assert error < 1.1 * best


def test_colour_and_gray_models_are_chosen_by_the_image(deal):
    save("gray.png")
    save("color.png", "astronaut")
    code, out, _ = deal("denoise", "gray.png", "color.png", "out", "--sigma", 20, *ROUGH, "--json")
    report = json.loads(out)
    assert code == 0
    assert [r["model"] for r in report["results"]] == ["gray", "color"]
    assert sorted(os.listdir("out")) == ["color.png", "gray.png"]


def test_json_report(deal):
    save("in.png")
    code, out, err = deal("denoise", "in.png", "out.png", "--sigma", 20, "--json")
    (result,) = json.loads(out)["results"]
    assert code == 0
    assert err == ""
    assert result["converged"] is True
    assert result["status"] == "CONVERGED"
    assert 0 < result["distance"] < 1e-3
    assert result["sigma"] == 20
    assert result["iterations"] > 2
    assert result["device"] in ("cpu", "cuda")


def test_folder(deal):
    os.mkdir("in")
    for index in range(2):
        save(f"in/{index}.png", row=10 * index)
    Path("in/notes.txt").touch()
    code, out, _ = deal("denoise", "in", "out", "--sigma", 20, *ROUGH)
    assert code == 0
    assert sorted(os.listdir("out")) == ["0.png", "1.png"]
    assert out.count("CONVERGED") == 2


def test_stack_in_colour(deal):
    frames = np.stack([noisy(picture("astronaut", 20, r), 15)[0].permute(1, 2, 0).numpy() for r in (0, 30)])
    np.save("stack.npy", frames)
    code, out, _ = deal("denoise", "stack.npy", "out.npy", "--sigma", 15, *ROUGH, "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["model"] == "color"
    assert np.load("out.npy").shape == (2, 20, 20, 3)


def test_data_range_into_an_8_bit_format(deal):
    values = noisy(picture(size=20), 15)[0, 0].numpy()
    np.save("in.npy", values * 4000)
    assert deal("denoise", "in.npy", "out.png", "--sigma", 15, "--data-range", 4000, *ROUGH)[0] == 0
    assert abs(np.asarray(Image.open("out.png")).mean() / 255 - values.mean()) < 0.01


def test_json_also_warns_and_reports_failures(deal):
    save("in.png")
    code, out, err = deal("denoise", "in.png", "out.png", "--sigma", 20, "--max-iterations", 2, "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["converged"] is False
    assert "did not converge" in err
    Path("bad.png").write_text("hello")
    code, out, err = deal("denoise", "bad.png", "out.png", "--json")
    assert code == 1
    assert list(json.loads(out)["failures"]) == ["bad.png"]


def test_an_unknown_format_leaves_no_folder(deal):
    save("in.png")
    Path("other.gif").touch()
    assert deal("denoise", "other.gif", "in.png", "out")[0] == 1
    assert not os.path.exists("out")


def test_stack(deal):
    frames = np.stack([(noisy(picture(size=20, row=r), 15)[0, 0].clamp(0, 1) * 65535).numpy() for r in (0, 30)])
    tifffile.imwrite("stack.tif", frames.round().astype(np.uint16), photometric="minisblack")
    assert deal("denoise", "stack.tif", "out.tif", "--sigma", 15, *ROUGH)[0] == 0
    result = tifffile.imread("out.tif")
    assert result.shape == (2, 20, 20)
    assert result.dtype == np.uint16


def test_sigma_is_estimated(deal):
    save("in.png", size=64, sigma=30)
    code, out, _ = deal("denoise", "in.png", "out.png", *ROUGH, "--json")
    assert code == 0
    result = json.loads(out)["results"][0]
    assert result["sigma"] == pytest.approx(30, rel=0.2)
    assert result["sigma_low"] < 30 < result["sigma_high"]


def test_how_sure_the_estimate_is(deal):
    save("in.png", size=64, sigma=30)
    _, out, _ = deal("denoise", "in.png", "out.png", *ROUGH)
    low, high = map(float, re.search(r"\(estimated, between (\S+) and (\S+)\)", out).groups())
    assert 20 < low < 30 < high < 40


def test_a_clean_picture_is_left_alone(deal):
    Image.fromarray(data.camera()[:128, :128]).save("clean.png")
    code, out, err = deal("denoise", "clean.png", "out.png")
    assert code == 0
    assert "unchanged" in out
    assert "left unchanged; to denoise it, give --sigma" in err
    assert np.array_equal(np.asarray(Image.open("out.png")), data.camera()[:128, :128])


@pytest.mark.parametrize(("noise", "changed"), [(100, True), (0, False)])
def test_twelve_bits_in_a_file_of_sixteen(deal, noise, changed):
    clean = picture("camera", 64, 96, 192)[0, 0].double().numpy() * 4095  # with detail
    pixels = clean + np.random.default_rng(0).normal(0, 1, clean.shape) * noise
    tifffile.imwrite("in.tif", pixels.clip(0, 4095).round().astype(np.uint16))
    assert deal("denoise", "in.tif", "out.tif", *ROUGH)[0] == 0
    assert bool((tifffile.imread("out.tif") != tifffile.imread("in.tif")).any()) == changed


def test_of_a_stack_the_clean_frames_are_left_alone(deal):
    clean = data.camera()[:64, :64]
    noisy_frame = clean + np.random.default_rng(0).normal(0, 20, clean.shape)
    frames = np.stack([clean, noisy_frame.round().clip(0, 255).astype(np.uint8), clean])
    tifffile.imwrite("stack.tif", frames, photometric="minisblack")
    code, _, err = deal("denoise", "stack.tif", "out.tif", *ROUGH)
    assert code == 0
    assert "so 2 of 3 frames (1, 3) are left unchanged" in err
    changed = [bool((one != other).any()) for one, other in zip(tifffile.imread("out.tif"), frames, strict=True)]
    assert changed == [False, True, False]


def test_a_clean_picture_is_denoised_where_sigma_says_so(deal):
    Image.fromarray(data.camera()[:32, :32]).save("clean.png")
    assert deal("denoise", "clean.png", "out.png", "--sigma", 10, *ROUGH)[2].count("unchanged") == 0
    assert not np.array_equal(np.asarray(Image.open("out.png")), data.camera()[:32, :32])


def test_lam_overrides_the_strength_that_was_learned(deal):
    _, image = save("in.png")
    for lam in (1, 50):
        assert deal("denoise", "in.png", f"{lam}.png", "--sigma", 20, "--lam", lam)[0] == 0
    weak, strong = (np.asarray(Image.open(f"{lam}.png")) for lam in (1, 50))
    assert np.array_equal(strong, td.reconstruct(image, sigma=20.0, lam=50.0).x)
    assert strong.std() < weak.std()


def test_own_weights(deal):
    save("in.png")
    td.save(td.load("gray"), "mine.safetensors")
    assert deal("denoise", "in.png", "a.png", "--sigma", 20, "--model", "mine.safetensors", *ROUGH)[0] == 0
    assert deal("denoise", "in.png", "b.png", "--sigma", 20, *ROUGH)[0] == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_not_converged_is_a_warning_and_exit_code_0(deal):
    save("in.png")
    code, out, err = deal("denoise", "in.png", "out.png", "--sigma", 20, "--max-iterations", 2)
    assert code == 0
    assert "MAX_ITERATIONS" in out
    assert "Warning" in err
    assert "--max-iterations" in err
    assert os.path.exists("out.png")


def test_untrained_sigma_is_a_warning(deal):
    save("in.png")
    code, _, err = deal("denoise", "in.png", "out.png", "--sigma", 70, "--max-iterations", 3)
    assert code == 0
    assert "beyond the noise levels" in err


def test_channelwise(deal):
    save("in.png", "astronaut")
    code, _, err = deal("denoise", "in.png", "out.png", "--sigma", 20, "--model", "gray")
    assert code == 1
    assert "channelwise" in err
    assert deal("denoise", "in.png", "out.png", "--sigma", 20, "--channelwise", *ROUGH)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.png", "out.png"], "missing.png: no such file"),
        (["in.png", "no/where/out.png"], "does not exist"),
        (["in.png", "in.png"], "would overwrite the input"),
        (["in.png", "./in.png"], "would overwrite the input"),
        (["in.png", "out.xyz"], "unknown format"),
        (["in.png"], "at least one input and then the output"),
        (["empty", "out"], "no images in this folder"),
        (["truncated.png", "out.png"], "not a readable image"),
        (["text.jpg", "out.png"], "not a readable image"),
        (["nan.npy", "out.npy"], "NaN"),
        (["wide.npy", "out.npy"], "data_range"),
        (["in.png", "out.png", "--sigma", "-3"], "sigma must be finite and at least 0"),
        (["in.png", "out.png", "--sigma", "nan"], "sigma must be finite"),
        (["in.png", "out.png", "--tolerance", "0"], "tolerance must be a positive number"),
        (["in.png", "out.png", "--model", "grey"], "no weights at grey"),
        (["in.png", "out.png", "--model", "hostile.pth"], "could run code"),
        (["in.png", "in.png", "out"], "two inputs have this name"),
        (["in.png", "tiny.png", "in.png"], "must be a folder"),
        (["folder", "folder"], "would overwrite the input"),
        *([] if torch.cuda.is_available() else [(["in.png", "out.png", "--device", "cuda"], "use --device cpu")]),
    ],
)
def test_bad_input_is_one_clear_line(deal, arguments, message):
    save("in.png")
    save("tiny.png", size=14)
    os.mkdir("empty")
    os.mkdir("folder")
    save("folder/a.png")
    Path("truncated.png").write_bytes(Path("in.png").read_bytes()[:200])
    Path("text.jpg").write_text("hello")
    np.save("nan.npy", np.full((20, 20), np.nan))
    np.save("wide.npy", np.full((20, 20), 200.0))
    torch.save({"a": os.system}, "hostile.pth")
    before = {name: os.path.getmtime(name) for name in os.listdir(".")}
    code, out, err = deal("denoise", *arguments)
    assert code == 1
    assert out == ""
    assert err.startswith("Error: ")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert {name: os.path.getmtime(name) for name in os.listdir(".")} == before


def test_usage_errors(deal):
    save("in.png")
    for arguments in (
        ["denoise", "in.png", "out.png", "--sgima", "3"],
        ["denoise", "in.png", "out.png", "--device", "tpu"],
    ):
        code, _, err = deal(*arguments)
        assert code == 2
        assert "Usage" in err
    assert not os.path.exists("out.png")


def test_one_bad_file_does_not_stop_the_others(deal):
    os.mkdir("in")
    save("in/good.png")
    Path("in/bad.png").write_text("hello")
    code, out, err = deal("denoise", "in", "out", "--sigma", 20, *ROUGH)
    assert code == 1
    assert "good.png" in out
    assert "bad.png" in err
    assert "1 of 2 images failed" in err
    assert os.listdir("out") == ["good.png"]


def test_interrupt_leaves_nothing(deal, monkeypatch):
    save("in.png")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "reconstruct", interrupted)
    code, _, err = deal("denoise", "in.png", "out.png", "--sigma", 20)
    assert code == 130
    assert "Interrupted" in err
    assert not os.path.exists("out.png")


def test_version(deal):
    assert deal("--version")[:2] == (0, f"torchdeal {td.__version__}\n")


def test_help_shows_examples(deal):
    code, out, _ = deal("denoise", "--help")
    assert code == 0
    assert "deal denoise noisy.png clean.png --sigma 25" in out
    assert "0..255" in out
