"""Batches: order, bounded waiting, and what is broken fails alone."""

import gc
import weakref

import pytest
import torch

from torchdeal.operators import Blur, Identity, Mask
from torchdeal.scale.batches import Batches, attempt, batch_size, kind_of


class Solver:
    """Answers with ten times the item; keeps what it was given."""

    def __init__(self, memory=99):
        self.calls, self.memory = [], memory

    def __call__(self, items):
        self.calls.append(list(items))
        if len(items) > self.memory:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if -1 in items:
            raise ValueError("broken")
        return [10 * item for item in items]


def answers(items, size=3, solver=None, kind=lambda item: item % 2):
    solver = solver or Solver()
    return list(Batches(kind, lambda _: size, solver).answers(items)), solver.calls


def test_answers_come_in_order_and_batches_have_one_kind():
    items = [1, 3, 2, 5, 4, 7, 6]
    found, calls = answers(items)
    assert found == [(item, 10 * item) for item in items]
    assert calls == [[1, 3, 5], [2, 4, 6], [7]]


def test_what_is_broken_fails_alone():
    found, calls = answers([1, -1, 3])
    assert calls == [[1, -1, 3], [1], [-1], [3]]
    assert [answer for _, answer in found if not isinstance(answer, Exception)] == [10, 30]
    assert str(found[1][1]) == "broken"


def test_where_memory_runs_out_batches_get_smaller_and_stay_so():
    found, calls = answers([1, 3, 5, 7, 9, 11, 13, 15], size=4, solver=Solver(memory=2))
    assert [answer for _, answer in found] == [10, 30, 50, 70, 90, 110, 130, 150]
    assert calls == [[1, 3, 5, 7], [1, 3], [5, 7], [9, 11], [13, 15]]


def test_what_did_not_fit_is_gone_before_less_is_tried():
    """Also where it knows itself, so that only the garbage collector ends it."""
    held = []

    class Held:
        def __init__(self):
            self.itself = self

    def solve(items):
        assert all(one() is None for one in held)
        if len(items) > 1:
            held.append(weakref.ref(Held()))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [2 * item for item in items]

    gc.disable()
    try:
        assert attempt(solve, [1, 2]) == [2, 4]
    finally:
        gc.enable()


def test_one_that_does_not_fit_alone_is_an_error():
    found, _ = answers([1], solver=Solver(memory=0))
    assert isinstance(found[0][1], torch.OutOfMemoryError)


def test_items_without_a_kind_are_solved_at_once_and_alone():
    assert answers([1, 3], kind=lambda item: None)[1] == [[1], [3]]


def test_no_more_is_taken_than_is_needed():
    taken = []

    def items():
        for number in range(100):
            taken.append(number)
            yield number

    one_by_one = Batches(lambda item: 0, lambda _: 1, Solver()).answers(items())
    next(one_by_one)
    assert taken == [0]
    taken.clear()
    alternating = Batches(lambda item: item, lambda _: 3, Solver()).answers(items())  # each a kind of its own
    next(alternating)
    assert len(taken) <= 12


@pytest.mark.parametrize("items", [[], [1]])
def test_few_items(items):
    assert answers(items)[0] == [(item, 10 * item) for item in items]


def test_kinds_of_operators():
    kernel, mask = torch.ones(3, 3) / 9, torch.ones(4, 4)
    blur = Blur(kernel)
    assert kind_of(Identity()) == kind_of(Identity())
    assert kind_of(blur) == kind_of(blur.to(dtype=blur.kernel.dtype))
    assert kind_of(blur) == kind_of(Blur(kernel.clone()))
    assert kind_of(blur) != kind_of(Blur(torch.eye(3) / 3))
    assert kind_of(blur) != kind_of(Blur(blur.kernel, "zero"))
    assert kind_of(Identity()) != kind_of(Mask(mask))


def test_on_the_cpu_one_at_a_time():
    assert batch_size(64, 48, "cpu") == 1


def test_on_a_gpu_as_many_as_fill_it_and_fit(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2**30)
    for free, pixels, least, most in ((2**40, 2**30, 1, 1), (2**40, 481 * 321, 4, 64), (2**30, 481 * 321, 1, 2)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        assert least <= batch_size(pixels, 128, "cuda") <= most
