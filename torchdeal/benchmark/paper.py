"""The values of the paper's tables: PSNR in dB, of DEAL and its competitors as the authors report them, and seconds.

They are quoted, never measured here: reports show them in columns of their own. A cell that the paper leaves blank
has no entry.
"""

from __future__ import annotations

from collections.abc import Iterable

DEAL = "DEAL"

Cells = dict[str, dict[str, float]]  # cell -> method, by the paper's name -> value


def _by_cell(cells: Iterable[str], rows: dict[str, tuple[float | None, ...]]) -> Cells:
    """A table of the paper, a row for each method, turned into cells; None where the paper has no value."""
    names = list(cells)
    columns: Cells = {name: {} for name in names}
    for method, values in rows.items():
        for name, value in zip(names, values, strict=True):
            if value is not None:
                columns[name][method] = value
    return columns


SIGMAS = (5, 15, 25)

# The paper's colour values are for the centre crops, 256 x 256.
DENOISING = _by_cell(
    [f"{images}, sigma {sigma}" for images in ("BSD68", "CBSD68 crops") for sigma in SIGMAS],
    {
        "BM3D": (37.54, 31.13, 28.61, 39.89, 33.17, 30.38),
        "WCRR": (37.65, 31.20, 28.68, None, None, None),
        "SARR": (37.80, 31.61, 29.13, None, None, None),
        "SAFI": (37.90, 31.56, 29.05, None, None, None),
        DEAL: (37.85, 31.61, 29.16, 40.04, 33.61, 30.93),
        "Prox-DRUNet": (37.97, 31.70, 29.18, 40.12, 33.60, 30.82),
        "DnCNN": (None, 31.72, 29.23, 39.80, 33.55, 30.87),
        "DRUNet": (38.09, 31.94, 29.48, 40.19, 33.85, 31.21),
    },
) | _by_cell(
    [f"CBSD68, sigma {sigma}" for sigma in SIGMAS],
    {DEAL: (40.33, 33.95, 31.31)},  # whole images, not in the paper: by its public code
)

BY_PUBLIC_CODE = frozenset(f"CBSD68, sigma {sigma}" for sigma in SIGMAS)  # cells whose values are not in the paper

SUPERRES = _by_cell(
    [f"x{scale}, noise {noise}" for scale in (2, 3) for noise in (2.55, 7.65, 12.75)],
    {
        DEAL: (27.99, 26.58, 25.75, 26.20, 25.27, 24.59),
        "Prox-DRUNet": (27.88, 26.61, 25.79, 26.13, 25.29, 24.67),
        "IRCNN": (26.97, 25.86, 25.45, 25.60, 25.72, 24.38),
        "DPIR": (27.79, 26.58, 25.83, 26.05, 25.27, 24.66),
    },
)

# Images 01, 02 and 05 of Set12 are the paper's Cameraman, House and Monarch; kernels 1 and 3 of Levin et al. are its
# 17 x 17 and 27 x 27.
DEBLUR = _by_cell(
    [
        f"image {image}, kernel {kernel}, noise {noise}"
        for noise in (2.55, 7.65)
        for kernel in (1, 3)
        for image in ("01", "02", "05")
    ],
    {
        "EPLL": (29.18, 32.33, 27.32, 27.85, 28.13, 22.92, 24.82, 28.50, 23.03, 24.31, 26.02, 20.86),
        DEAL: (31.72, 35.20, 32.77, 31.64, 35.03, 32.48, 27.89, 32.24, 28.26, 27.79, 32.11, 28.15),
        "FDN": (29.09, 29.75, 29.13, 28.78, 29.29, 28.60, 26.18, 28.01, 25.86, 26.13, 27.41, 25.39),
        "IRCNN": (31.69, 35.04, 32.71, 31.56, 34.73, 32.42, 27.70, 31.94, 28.23, 27.58, 31.55, 27.99),
        "DPIR": (32.05, 35.82, 33.38, 31.97, 35.52, 32.99, 28.17, 32.79, 28.48, 27.99, 32.87, 28.27),
    },
)

MRI_CELLS = ("4x single coil, PD", "4x single coil, PDFS", "8x 15 coils, PD", "8x 15 coils, PDFS")

MRI = _by_cell(
    MRI_CELLS,
    {
        "Zero-fill": (27.40, 29.68, 23.80, 27.19),
        "TV": (32.44, 32.67, 32.77, 33.38),
        "WCRR": (35.78, 34.63, 35.57, 35.16),
        "SARR": (36.25, 34.77, 35.98, 35.26),
        "SAFI": (36.43, 34.92, 36.06, 35.36),
        DEAL: (36.59, 34.92, 36.21, 35.32),
        "Prox-DRUNet": (36.20, 35.05, 35.82, 35.12),
        "PnP-DnCNN": (35.24, 34.63, 35.11, 35.14),
    },
)

# Seconds per image on one V100.
TIME = _by_cell(
    MRI_CELLS,
    {
        "WCRR": (12, 20, 9, 8),
        "SAFI": (436, 470, 388, 326),
        DEAL: (14, 17, 22, 18),
        "Prox-DRUNet": (113, 38, 170, 105),
    },
)

PAPER: dict[str, Cells] = {"denoising": DENOISING, "superres": SUPERRES, "deblur": DEBLUR, "mri": MRI, "time": TIME}


def papers_value(experiment: str, cell: str, method: str = DEAL) -> float | None:
    """What the paper reports for a method in a cell of an experiment; None where it reports nothing."""
    return PAPER.get(experiment, {}).get(cell, {}).get(method)
