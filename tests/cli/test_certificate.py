"""`--certificate`: what is known about an answer, from the command line."""

import numpy as np
import pytest
import tifffile
from cli.helpers import noise, only_result, pixels, save

import torchdeal as td
from torchdeal.certificate import certify

FEW = 2


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(
        td.reconstruction.Reconstruction, "certificate", lambda rec, **how: certify(rec, steps=FEW, **how)
    )


def test_sentences(deal):
    save("in.png", pixels(size=24) + noise((24, 24), 20))
    code, out, err = deal("denoise", "in.png", "out.png", "--sigma", 20, "--tolerance", 0.05, "--certificate")
    assert (code, err) == (0, "")
    for words in ("Each step has one answer", "The spectral radius of T'(x)", "is vacuous", "It is no proof."):
        assert words in out
    plain = deal("denoise", "in.png", "out.png", "--sigma", 20, "--tolerance", 0.05)[1]
    assert "vacuous" not in plain


def test_numbers_are_those_of_the_library(deal):
    image = (pixels(size=24) + noise((24, 24), 20)).round().clip(0, 255).astype(np.uint8)
    save("in.png", image)
    limits = ("--tolerance", 0.05, "--certificate", "--json")
    _, out, _ = deal("denoise", "in.png", "out.png", "--sigma", 20, *limits)
    (found,) = only_result(out)["certificates"]
    expected = td.reconstruct(image, sigma=20.0, tolerance=0.05).certificate()
    assert found["sentences"] == expected.sentences()
    for name, value in expected.numbers().items():
        assert found["numbers"][name] == (pytest.approx(value, rel=1e-3) if np.isfinite(value) else None), name
    _, out, _ = deal("denoise", "in.png", "out.png", "--sigma", 20, "--tolerance", 0.05, "--json")
    assert only_result(out)["certificates"] == []


def test_each_frame_has_its_own(deal):
    stack = pixels(size=20) + noise((2, 20, 20), 20)
    tifffile.imwrite("in.tif", stack.clip(0, 255).astype(np.uint8), photometric="minisblack")
    kernel = ("--kernel", "gaussian:0.8", "--tolerance", 0.1, "--max-iterations", 2, "--certificate")
    code, out, _ = deal("deblur", "in.tif", "out.tif", "--sigma", 20, *kernel)
    assert code == 0
    for number in (1, 2):
        assert out.count(f"Frame {number}. The eigenvalues of A(x)") == 1
    assert out.count("The run did not converge") == 2
