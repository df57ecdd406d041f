import math

import pytest

from torchdeal.tuning import FURTHEST, search_pair


def surface(sigma, lam):
    """One peak, at sigma 20 and lam 0.5, along a ridge."""
    across, along = math.log2(sigma / 20), math.log2(lam / 0.5)
    return 30 - (across - along) ** 2 - 0.1 * (across + along) ** 2


def test_the_peak_is_found_from_afar():
    found = search_pair(surface, 5.0, 0.02)
    assert found.best.psnr > 29.97
    assert found.best.sigma == pytest.approx(20, rel=0.2)
    assert found.best in found.trials
    assert max(trial.psnr for trial in found.trials) == found.best.psnr
    pairs = [(trial.sigma, trial.lam) for trial in found.trials]
    assert len(set(pairs)) == len(pairs)
    assert len(pairs) < 60


def test_a_pair_without_an_answer_is_never_the_best():
    found = search_pair(lambda sigma, lam: math.nan if lam < 1 else -lam, 10.0, 1.0)
    assert found.best.lam == 1.0


def test_the_search_ends_where_more_is_always_better():
    found = search_pair(lambda sigma, lam: sigma + math.log2(lam), 10.0, 1.0)
    assert found.best.sigma == 50
    assert found.best.lam <= FURTHEST
    assert search_pair(lambda sigma, lam: -sigma, 1e9, 1.0).best.sigma == 1


def test_it_is_written_with_all_of_its_surface():
    found = search_pair(surface, 15.0, 0.4)
    held = found.as_json()
    assert (held["sigma"], held["lam"], held["psnr"]) == (found.best.sigma, found.best.lam, found.best.psnr)
    assert len(held["surface"]) == len(found.trials)
