"""What is left behind where work is cancelled."""

import threading

import pytest
import torch

from torchdeal.cancelling import CancelledError, Interruptible


def count_up(stop, done):
    with Interruptible(stop):
        for _ in range(5):
            done.append(torch.ones(2).sum())
            stop.set()


def cancelled_without_gradients(stop):
    with Interruptible(stop), torch.no_grad():
        stop.set()
        torch.ones(2).sum()


def test_work_ends_at_the_next_operation():
    done = []
    with pytest.raises(CancelledError):
        count_up(threading.Event(), done)
    assert len(done) == 1


def test_gradients_are_as_they_were():
    """`no_grad` ends by an operation of torch, which must not be cancelled."""
    with pytest.raises(CancelledError):
        cancelled_without_gradients(threading.Event())
    assert torch.is_grad_enabled()
