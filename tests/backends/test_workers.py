"""Threads that share pieces of work: what they may use, what they leave behind, and what goes wrong in them."""

import multiprocessing
import subprocess
import sys
import threading
import time

import pytest
import torch
from conftest import noisy, picture

import torchdeal as td
from torchdeal.backends.cpu import workers
from torchdeal.backends.cpu.workers import alone, share, steady, together


@pytest.fixture(autouse=True)
def threads():
    """Four, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield 4
    torch.set_num_threads(before)


def denoised(count, **options):
    torch.set_num_threads(count)
    return td.reconstruct(noisy(picture("camera", 40), 25), sigma=25 / 255, **options)


def seen_by_new_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_results_are_in_order(count):
    torch.set_num_threads(count)
    assert share(lambda piece, worker: piece**2, range(20)) == [piece**2 for piece in range(20)]
    assert share(lambda piece, worker: piece, []) == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_more_threads_than_the_caller_has(count):
    torch.set_num_threads(count)
    lock, used, at_work = threading.Lock(), set(), []

    def work(piece, worker):
        with lock:
            at_work.append(worker)
            used.add((worker, threading.get_ident(), torch.get_num_threads()))
            assert len(set(at_work)) == len(at_work)  # each number once at a time
        time.sleep(0.01)
        with lock:
            at_work.remove(worker)

    share(work, range(12))
    assert {worker for worker, _, _ in used} == set(range(count))
    assert len({thread for _, thread, _ in used}) == count
    assert {threads for _, _, threads in used} == {1}  # within a piece nothing is cut further


def test_the_number_of_threads_is_left_as_it_was(threads):
    share(lambda piece, worker: piece, range(8))
    assert torch.get_num_threads() == seen_by_new_thread() == threads
    with pytest.raises(ZeroDivisionError):
        share(lambda piece, worker: piece / 0, range(8))
    assert torch.get_num_threads() == seen_by_new_thread() == threads


def test_other_threads_keep_theirs(threads):
    """One begins while another one is alone, and ends later."""
    found, began, over = [], threading.Event(), threading.Event()

    def second():
        with alone() as count:
            began.set()
            over.wait(10)
            found.append(count)
        found.append(torch.get_num_threads())

    thread = threading.Thread(target=second)
    with alone():
        share(lambda piece, worker: piece, range(8))  # begins threads, too
        assert seen_by_new_thread() == threads
        thread.start()
        assert began.wait(10)
    over.set()
    thread.join()
    assert found == [threads, threads]
    assert torch.get_num_threads() == seen_by_new_thread() == threads


def test_within(threads):
    with alone() as outer:
        assert (outer, torch.get_num_threads()) == (threads, 1)
        with alone() as inner:
            assert inner == threads
        assert torch.get_num_threads() == 1
        with together():
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 1
    with together():
        assert torch.get_num_threads() == threads


def test_large_images_are_for_all_threads(threads):
    with steady(torch.empty(1, 1, 2048, 2048)):
        assert torch.get_num_threads() == threads
    with steady(torch.empty(1, 1, 256, 256)):
        assert torch.get_num_threads() == 1


def test_an_error_of_a_piece_reaches_the_caller():
    caller, helped, done = threading.get_ident(), threading.Event(), []

    def work(piece, worker):
        if threading.get_ident() == caller:
            helped.wait(10)
            done.append(piece)
            return
        helped.set()
        raise KeyError("in a helper")

    with pytest.raises(KeyError, match="in a helper"):
        share(work, range(1000))
    assert len(done) < 1000  # nothing was begun afterwards


def test_an_interrupt_stops_all():
    caller, done = threading.get_ident(), []

    def work(piece, worker):
        if threading.get_ident() == caller:
            raise KeyboardInterrupt
        time.sleep(0.01)
        done.append(piece)

    with pytest.raises(KeyboardInterrupt):
        share(work, range(1000))
    count = len(done)
    assert count < 100
    time.sleep(0.05)
    assert len(done) == count


def test_modes_are_those_of_the_caller():
    def modes(piece, worker):
        time.sleep(0.005)
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert set(share(modes, range(12))) == {(True, False)}
    with torch.no_grad():
        assert set(share(modes, range(12))) == {(False, False)}
    with torch.inference_mode():
        assert set(share(modes, range(12))) == {(False, True)}


def test_callers_in_several_threads():
    found = {}

    def call(index):
        torch.set_num_threads(3)
        found[index] = share(lambda piece, worker: (time.sleep(0.001), piece + index)[1], range(30))

    callers = [threading.Thread(target=call, args=(index,)) for index in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == {index: [piece + index for piece in range(30)] for index in range(4)}


def test_no_thread_can_begin(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers, "_pool", workers._Pool())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert share(lambda piece, worker: (piece, worker), range(3)) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_for_any_number_of_threads(dtype):
    model = td.load("gray-light").to(dtype)
    first, *others = (denoised(count, model=model) for count in (1, 2, 3))
    assert first.x.dtype == torch.float32
    for other in others:
        assert torch.equal(first.x, other.x)
        assert torch.equal(first.residuals, other.residuals)


def test_a_callback_has_all_threads(threads):
    seen = []
    denoised(threads, callback=lambda progress: seen.append(torch.get_num_threads()), max_iterations=3)
    assert seen == 3 * [threads]
    assert torch.get_num_threads() == threads


def test_within_inference_mode(threads):
    with torch.inference_mode():
        inside = denoised(threads, max_iterations=3).x
    assert torch.equal(inside, denoised(threads, max_iterations=3).x)


def _in_child(connection):
    torch.set_num_threads(2)
    connection.send(share(lambda piece, worker: piece + 1, range(6)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process")  # is multi-threaded: that is the point
def test_a_forked_process_has_threads_of_its_own():
    share(lambda piece, worker: piece, range(8))  # the threads of this process
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(there,), daemon=True)
    child.start()
    assert here.poll(30)
    assert here.recv() == [1, 2, 3, 4, 5, 6]
    child.join(30)
    assert child.exitcode == 0


def test_at_the_end_of_the_interpreter():
    code = (
        "import atexit, torch; from torchdeal.backends.cpu.workers import share; torch.set_num_threads(3);"
        "run = lambda: print(share(lambda piece, worker: piece + 1, range(4)));"
        "atexit.register(run); run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, 2 * "[1, 2, 3, 4]\n", "")
