"""CUDA graphs: what they return, and what a failure leaves behind."""

import warnings

import pytest
import torch

from torchdeal.backends.cuda import graphs
from torchdeal.backends.cuda.graphs import Replays

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def test_results_of_a_graph_survive_other_graphs():
    """All graphs of a thread compute in the same memory."""
    first, second = Replays(), Replays()
    x = torch.arange(1000.0, device="cuda")

    def busy(x):  # takes and gives back memory of many sizes
        for _ in range(4):
            x = torch.cat([x, x]).sqrt().cumsum(0)[: len(x)] / len(x)
        return x

    def several(x):
        return x + 1, 2 * x, (x * x).sum()

    for _ in range(3):
        first.run("busy", busy, x)
    for _ in range(3):
        found = second.run("several", several, x)
        expected = [value.clone() for value in found]
        for _ in range(3):
            first.run("busy", busy, x)
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert torch.equal(found[1], 2 * x)


def test_a_capture_that_fails_does_not_spoil_the_next():
    replays, x = Replays(), torch.ones(100, device="cuda")

    def waits(x):
        return x * float(x.sum())  # which a graph cannot

    replays.run("waits", waits, x)
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        assert float(replays.run("waits", waits, x)[0]) == 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert float(replays.run("other", torch.square, 2 * x)[0]) == 4
        torch.cuda.empty_cache()


def test_without_memory_for_graphs_there_are_none(monkeypatch):
    def full():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    replays, x = Replays(), torch.ones(100, device="cuda")
    with monkeypatch.context() as patch:
        patch.setattr(graphs._of_thread, "pool", full)
        replays.run("doubled", lambda x: 2 * x, x)
        with pytest.warns(UserWarning, match="without a CUDA graph"):
            assert float(replays.run("doubled", lambda x: 2 * x, x)[0]) == 2
        assert float(replays.run("doubled", lambda x: 2 * x, 3 * x)[0]) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert float(replays.run("other", torch.square, 2 * x)[0]) == 4
