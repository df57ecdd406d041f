"""How a sample moves from phase to phase, with evaluations and estimates made by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from torchdeal.solvers.phases import STUCK_WINDOW, Phase, Phases
from torchdeal.solvers.result import Status

TOLERANCE, ROUNDING = 1e-3, 1e-6
UNKNOWN = SimpleNamespace(
    relative=np.array([np.inf]),
    accurate_steps=np.array([0]),
    trusted=np.array([False]),
)


def phases(ended=False):
    return Phases(np.array([ended]), TOLERANCE, ROUNDING)


def after(step, residual=0.5, size=1.0):
    """An evaluation with a relative step of that size."""
    vectors = {"step": step, "residual": residual, "size": size, "error": 0.0}
    return SimpleNamespace(**{name: np.array([float(value)]) for name, value in vectors.items()})


def estimate(distance, accurate_steps=5, trusted=True):
    return SimpleNamespace(
        relative=np.array([distance]),
        accurate_steps=np.array([accurate_steps]),
        trusted=np.array([trusted]),
    )


def phase(of):
    return Phase(of.phase.item())


def test_from_far_to_the_end():
    run = phases()
    assert (phase(run), run.all_far) == (Phase.FAR, True)
    run.update(after(0.1), UNKNOWN)
    assert phase(run) is Phase.FAR
    run.update(after(1.9e-3), UNKNOWN)  # too close for rough systems; a first small step
    assert (phase(run), run.all_far, bool(run.closing_in)) == (Phase.NEAR, False, False)
    run.update(after(1.9e-3), UNKNOWN)  # the second one
    assert (phase(run), bool(run.closing_in)) == (Phase.CLOSING_IN, True)
    run.update(after(1e-3), estimate(2e-3))
    assert phase(run) is Phase.CLOSING_IN
    run.update(after(1e-3), estimate(0.9e-3, trusted=False))  # small, but not to be trusted
    assert phase(run) is Phase.CLOSING_IN
    run.update(after(1e-3), estimate(0.9e-3))
    assert (phase(run), run.statuses()) == (Phase.ENDED, (Status.CONVERGED,))


def test_small_steps_must_follow_each_other():
    run = phases()
    for step in (1e-3, 1e-2, 1e-3, 1e-2):
        run.update(after(step), UNKNOWN)
    assert phase(run) is Phase.NEAR


def test_closing_in_is_called_off_where_it_began_too_early():
    run = phases()
    run.update(after(1e-3), UNKNOWN)
    run.update(after(1e-3), UNKNOWN)
    assert phase(run) is Phase.CLOSING_IN
    run.update(after(5e-3), estimate(0.02))
    assert phase(run) is Phase.NEAR
    run.update(after(1e-3), UNKNOWN)
    run.update(after(1e-3), estimate(0.02))  # two small steps again: not called off
    assert phase(run) is Phase.CLOSING_IN


def test_closing_in_is_called_off_to_where_the_steps_have_led():
    """With a large tolerance steps are small long before they are too small for rough systems."""
    run = Phases(np.array([False]), 1e-2, ROUNDING)
    run.update(after(0.01), UNKNOWN)
    run.update(after(0.01), UNKNOWN)
    assert phase(run) is Phase.CLOSING_IN
    run.update(after(0.05), estimate(0.2))
    assert (phase(run), run.all_far) == (Phase.FAR, True)


def stuck(run, residual, count, accurate_steps=0):
    result = np.array([False])
    for _ in range(count):
        result = run.update(after(0.1, residual), estimate(np.inf, accurate_steps, trusted=False))
    return result


def test_without_progress_it_insists_on_accuracy_for_good():
    run = phases()
    stuck(run, 0.5, STUCK_WINDOW)
    assert phase(run) is Phase.FAR
    assert not bool(stuck(run, 0.5, 1))  # momentum stays until accurate steps get nowhere either
    assert phase(run) is Phase.INSISTING
    run.update(after(5e-3), estimate(0.02))
    assert phase(run) is Phase.INSISTING
    assert bool(stuck(run, 0.5, 1, accurate_steps=STUCK_WINDOW))


def test_stalled_at_the_limit_of_the_precision():
    run = phases()
    stuck(run, 0.5 * ROUNDING, STUCK_WINDOW, accurate_steps=STUCK_WINDOW)
    assert phase(run) is not Phase.ENDED
    stuck(run, 0.5 * ROUNDING, 1, accurate_steps=STUCK_WINDOW)
    assert run.statuses() == (Status.STALLED,)


@pytest.mark.parametrize("bad", [after(0.1, residual=1e4), after(0.1, residual=np.nan), after(0.1, size=np.inf)])
def test_divergence(bad):
    run = phases()
    run.update(after(0.1), UNKNOWN)
    run.update(bad, UNKNOWN)
    assert run.statuses() == (Status.DIVERGED,)


def test_what_goes_on_at_the_end_has_reached_the_maximum():
    run = phases()
    run.update(after(0.1), UNKNOWN)
    assert run.statuses() == (Status.MAX_ITERATIONS,)


def test_what_has_its_answer_from_the_start():
    run = phases(ended=True)
    assert (bool(run.active), run.all_far, run.statuses()) == (False, True, (Status.CONVERGED,))
    run.update(after(0.1, residual=np.nan), UNKNOWN)
    assert run.statuses() == (Status.CONVERGED,)
