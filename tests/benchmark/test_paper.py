"""The values of the paper's tables, against those of the protocols, which were written down on their own."""

import re

import pytest

from torchdeal.benchmark.paper import PAPER, papers_value

NOISES = (2.55, 7.65, 12.75)

# In the order of the protocols: of our model, sigma or noise innermost.
DENOISING = {"BSD68": (37.85, 31.61, 29.16), "CBSD68 crops": (40.04, 33.61, 30.93), "CBSD68": (40.33, 33.95, 31.31)}
SUPERRES = {2: (27.99, 26.58, 25.75), 3: (26.20, 25.27, 24.59)}
DEBLUR = {
    (1, 2.55): (31.72, 35.20, 32.77),
    (3, 2.55): (31.64, 35.03, 32.48),
    (1, 7.65): (27.89, 32.24, 28.26),
    (3, 7.65): (27.79, 32.11, 28.15),
}
MRI = {"4x single coil": (36.59, 34.92), "8x 15 coils": (36.21, 35.32)}
TIME = {"4x single coil": (14, 17), "8x 15 coils": (22, 18)}

EXPECTED = {
    "denoising": {
        f"{images}, sigma {sigma}": value
        for images, row in DENOISING.items()
        for sigma, value in zip((5, 15, 25), row, strict=True)
    },
    "superres": {
        f"x{s}, noise {noise}": value for s, row in SUPERRES.items() for noise, value in zip(NOISES, row, strict=True)
    },
    "deblur": {
        f"image {image}, kernel {kernel}, noise {noise}": value
        for (kernel, noise), row in DEBLUR.items()
        for image, value in zip(("01", "02", "05"), row, strict=True)
    },
    "mri": {f"{coils}, {kind}": v for coils, row in MRI.items() for kind, v in zip(("PD", "PDFS"), row, strict=True)},
    "time": {f"{coils}, {kind}": v for coils, row in TIME.items() for kind, v in zip(("PD", "PDFS"), row, strict=True)},
}


@pytest.mark.parametrize("experiment", PAPER)
def test_our_values_are_those_of_the_protocols(experiment):
    assert {cell: papers_value(experiment, cell) for cell in PAPER[experiment]} == EXPECTED[experiment]


def test_all_of_the_papers_methods_are_there():
    """With as many values as the paper's tables have: a value that was left out would go unseen."""
    counts = {experiment: {} for experiment in PAPER}
    for experiment, cells in PAPER.items():
        for methods in cells.values():
            for method in methods:
                counts[experiment][method] = counts[experiment].get(method, 0) + 1
    gray_only = {"WCRR": 3, "SARR": 3, "SAFI": 3}
    assert counts["denoising"] == {"BM3D": 6, "DEAL": 9, "Prox-DRUNet": 6, "DnCNN": 5, "DRUNet": 6, **gray_only}
    assert counts["superres"] == dict.fromkeys(("DEAL", "Prox-DRUNet", "IRCNN", "DPIR"), 6)
    assert counts["deblur"] == dict.fromkeys(("EPLL", "DEAL", "FDN", "IRCNN", "DPIR"), 12)
    names = ("Zero-fill", "TV", "WCRR", "SARR", "SAFI", "DEAL", "Prox-DRUNet", "PnP-DnCNN")
    assert counts["mri"] == dict.fromkeys(names, 4)
    assert counts["time"] == dict.fromkeys(("WCRR", "SAFI", "DEAL", "Prox-DRUNet"), 4)


@pytest.mark.parametrize(
    ("cell", "method", "value"),
    [
        (("denoising", "BSD68, sigma 15"), "SAFI", 31.56),
        (("denoising", "CBSD68 crops, sigma 5"), "DnCNN", 39.80),
        (("denoising", "BSD68, sigma 5"), "DnCNN", None),
        (("denoising", "CBSD68, sigma 5"), "DRUNet", None),  # the paper's are for crops
        (("superres", "x3, noise 7.65"), "IRCNN", 25.72),
        (("deblur", "image 05, kernel 3, noise 2.55"), "EPLL", 22.92),
        (("deblur", "image 02, kernel 3, noise 7.65"), "DPIR", 32.87),
        (("mri", "8x 15 coils, PD"), "PnP-DnCNN", 35.11),
        (("time", "4x single coil, PDFS"), "Prox-DRUNet", 38),
        (("ct", "anything"), "DEAL", None),
    ],
)
def test_values_of_others(cell, method, value):
    assert papers_value(*cell, method) == value


def test_values_are_decibels_of_images():
    for experiment in set(PAPER) - {"time"}:
        values = [value for methods in PAPER[experiment].values() for value in methods.values()]
        assert all(20 < value < 45 for value in values)
        assert all(re.fullmatch(r"\d\d\.\d{1,2}", str(value)) for value in values)
