"""A short part of `python -m torchdeal.fuzz`, and that it would notice."""

import subprocess
import sys
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import torchdeal as td
from torchdeal import cli
from torchdeal.fuzz import calls, command_lines, commands
from torchdeal.fuzz.commands import Command, FaultError
from torchdeal.fuzz.inputs import Array, File

bounded = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


seeds = st.integers(0, 2**32).map(Random)


@bounded
@given(seeds.map(command_lines.any_command))
def test_commands_leave_everything_in_order(command):
    with commands.folder_for(command) as folder:
        commands.check(command, folder)


@bounded
@given(seeds.map(calls.any_call))
def test_calls_say_the_truth(call):
    calls.check(call)


@settings(bounded, max_examples=12)
@given(seeds.map(calls.gain_call))
def test_any_gain_gives_the_same_image(call):
    calls.check_gain(call)


@settings(bounded, max_examples=16)
@given(seeds.map(calls.truth_call))
def test_what_is_said_to_have_converged_has(call):
    calls.check_truth(call)


PICTURE = File(Array((4, 5), "uint8", "uniform", 0), ".npy")
DENOISE = Command(("denoise", "--json", "in.npy", "old.npy"), (("in.npy", PICTURE),), old=("old.npy",))
REPORT = '{"results": [{"converged": true, "status": "CONVERGED", "distance": 1e-4}]}'


def saves(values, name="old.npy", report=REPORT):
    """A command that writes an array and reports."""

    def main():
        with open(name, "wb") as file:  # whatever its suffix
            np.save(file, values)
        print(report)

    return main


def fails(*files):
    """A command that leaves files behind, and fails."""

    def main():
        for name in files:
            np.save(name, np.zeros(2))
        print("Error: no", file=sys.stderr)
        sys.exit(1)

    return main


def raises():
    raise RuntimeError("deep inside")


def test_a_command_that_does_its_work_passes(monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "main", saves(PICTURE.array.build()))
    assert commands.check(DENOISE, tmp_path).code == 0


@pytest.mark.parametrize(
    ("main", "fault"),
    [
        (raises, "a traceback: RuntimeError"),
        (saves(np.zeros((4, 5)), "in.npy"), "files were changed: {'in.npy'}"),
        (saves(np.full((4, 5), np.nan)), "NaN was written"),
        (saves(np.zeros((4, 5))), "a uniform picture of 127"),
        (saves(PICTURE.array.build(), "left.tmp"), "temporary files"),
        (saves(PICTURE.array.build(), report="{} {}"), "not JSON"),
        (saves(PICTURE.array.build(), report='{"results": NaN}'), "NaN in the JSON report"),
        (saves(PICTURE.array.build(), report=REPORT.replace("true", "false")), "the status is not true"),
        (saves(PICTURE.array.build(), report=REPORT.replace("1e-4", "null")), "an unknown distance"),
        (saves(PICTURE.array.build(), report=REPORT + "\x1b[31m"), "control characters"),
        (fails(), "not JSON"),
        (lambda: sys.exit(1), "failed without a word"),
        (lambda: sys.exit(7), "exit code 7"),
    ],
)
def test_a_command_that_does_not_is_noticed(main, fault, monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "main", main)
    with pytest.raises(FaultError, match=fault):
        commands.check(DENOISE, tmp_path)


@pytest.mark.parametrize(
    ("left", "fault"), [("new.npy", "failed, but left"), ("old.npy", "files were changed"), ("in.npy", "were changed")]
)
def test_a_failure_that_leaves_something_is_noticed(left, fault, monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "main", fails(left))
    with pytest.raises(FaultError, match=fault):
        commands.check(replace(DENOISE, arguments=("denoise", "in.npy", "old.npy")), tmp_path)


CALL = calls.Call(Array((16, 16), "float32", "smooth", 0), True, "", 1.0, (("sigma", 0.1),), 1)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda y, rec: replace(rec, x=torch.full_like(rec.x, torch.nan)), "NaN in the result"),
        (lambda y, rec: replace(rec, x=rec.x.double()), "became"),
        (
            lambda y, rec: replace(
                rec, x=rec.x * 0, statuses=(td.Status.CONVERGED,), distance=rec.distance.new_zeros(1)
            ),
            "zeros",
        ),
        (lambda y, rec: y.zero_() is None or rec, "measurements were changed"),
    ],
)
def test_a_wrong_result_is_noticed(change, fault, monkeypatch):
    reconstruct = td.reconstruct
    monkeypatch.setattr(td, "reconstruct", lambda y, *a, **k: change(y, reconstruct(y.clone(), *a, **k)))
    with pytest.raises(FaultError, match=fault):
        calls.check(CALL)


def test_an_error_from_elsewhere_is_noticed(monkeypatch):
    monkeypatch.setattr(td, "reconstruct", lambda *a, **k: torch.zeros(2) + torch.zeros(3))
    with pytest.raises(FaultError, match="must match the size"):
        calls.check(CALL)


def test_a_flaw_that_nobody_notices_is_noticed(monkeypatch):
    whole = td.reconstruct(torch.rand(1, 1, 16, 16), sigma=0.1, max_iterations=1)
    monkeypatch.setattr(td, "reconstruct", lambda *a, **k: whole)
    with pytest.raises(FaultError, match="was not noticed: none"):
        calls.check(replace(CALL, operator="own none"))


def test_the_command_counts(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "torchdeal.fuzz", "--minutes", "0.05", "--keep", tmp_path],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "0 kinds of faults" in ended.stdout
