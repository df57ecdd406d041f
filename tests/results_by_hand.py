"""Results whose tables can be worked out on paper."""

from __future__ import annotations

from torchdeal.benchmark.results import Results, Row

GRAY, COLOUR = "Denoising, gray: BSD68", "Denoising, colour: CBSD68"
PLACE = {"date": "2026-01-02T03:04:05+00:00", "device": "cuda", "device_name": "H200", "torch": "2.9", "threads": 8}


def run(psnr, iterations=10, status="CONVERGED", seconds=0.5, cg_iterations=40, batch=4):
    """A row of ours."""
    how = {"seconds": seconds, "batch": batch, "status": status, "iterations": iterations}
    return {"psnr": psnr, **how, "cg_iterations": cg_iterations, "distance": 1e-4}


def other(psnr, seconds=2.0):
    return {"psnr": psnr, "seconds": seconds, "batch": 1}


def rows(cell, method, *values, variant=""):
    """Images a, b, c, ... in this order."""
    return [Row(cell, name, method, value, variant) for name, value in zip("abcdef", values, strict=False)]


def denoising(**settings):
    """Two sets and two noise levels. The paper has 31.61 and 29.16 (gray), 33.95 and 31.31 (colour)."""
    results = Results("denoising", {"protocol": "Noise is added.", "quick": False, "limit": None, **settings})
    for name, title in (("BSD68", GRAY), ("CBSD68", COLOUR)):
        for sigma in (15, 25):
            results.cells[f"{name}, sigma {sigma}"] = {"table": title, "column": f"sigma {sigma}"}
    results.weights = {"deal": {"gray": "abc123"}}
    results.environments = [PLACE]
    gray, rough = "BSD68, sigma 15", "BSD68, sigma 25"
    results.rows = [
        *rows(gray, "wcrr", other(31.0), other(30.5)),
        *rows(gray, "bm3d", other(31.1), other(30.9)),
        *rows(gray, "deal", run(31.7, 10), run(31.5, 14)),
        *rows(gray, "deal-light", run(31.4), run(31.4)),
        *rows(rough, "deal", run(29.3, 20), run(29.1, 30, "STALLED")),
        *rows(rough, "bm3d", other(28.6), other(28.4)),
        *rows(rough, "wcrr", other(29.9)),
    ]
    results.reasons = {
        "BSD68, sigma 15": {"dncnn": "there are no weights"},
        "BSD68, sigma 25": {"dncnn": "there are no weights", "deal-light": "it is too late."},
        "CBSD68, sigma 15": {"deal": "the images are licensed"},
        "CBSD68, sigma 25": {"deal": "the images are licensed"},
    }
    return results
