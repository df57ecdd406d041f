"""A command as a process: Ctrl-C and other signals, streams, what libraries say."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from cli.helpers import pixels, save

import torchdeal
from torchdeal.cli import run, shared
from torchdeal.io import files

ROOT = Path(torchdeal.__file__).parents[1]


def command(*arguments, module="-m", name="torchdeal", **options):
    """In a process of its own."""
    call = [sys.executable, module, name, *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    return subprocess.run(call, timeout=120, env=environment, **options)


@pytest.fixture
def picture(deal):
    save("in.png", pixels(size=16))
    Path("out.png").write_text("mine")


def sends(number):
    """In place of some function: it is in the middle of it that the signal comes."""

    def function(*_, **__):
        os.kill(os.getpid(), number)
        signal.getsignal(number)  # a call, where Python looks for signals
        raise AssertionError("the signal did not come")

    return function


PLACES = [(run, "load"), (run, "reconstruct"), (run, "check_outputs"), (files, "read"), (np, "asarray")]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.usefixtures("picture")
def test_a_signal_ends_a_command_in_order(deal, monkeypatch, place, number, code):
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    monkeypatch.setattr(*place, sends(number))
    assert deal("denoise", "in.png", "out.png", "--sigma", 20)[0] == code
    monkeypatch.undo()
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("picture")
def test_a_signal_while_a_file_is_written_leaves_the_old_one(deal, monkeypatch, number):
    monkeypatch.setattr(os, "fsync", sends(number))
    code, out, err = deal("denoise", "in.png", "out.png", "--sigma", 20, "--max-iterations", 1)
    assert (code, out) == (128 + number, "")
    assert err == "Interrupted: files that were not finished are as they were\n"
    assert sorted(os.listdir()) == ["in.png", "out.png"]
    assert Path("out.png").read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("picture")
def test_the_cursor_comes_back(deal, monkeypatch, number):
    monkeypatch.setattr(shared.messages, "_force_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(run, "reconstruct", sends(number))
    err = deal("denoise", "in.png", "out.png", "--sigma", 20)[2]
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert hidden in err
    assert err.rindex(shown) > err.rindex(hidden)


def test_an_interrupted_report_is_json_with_what_was_done(deal, monkeypatch):
    for name in "ab":
        save(f"{name}.png", pixels(size=16))
    reconstruct = run.reconstruct
    results = iter([reconstruct, sends(signal.SIGINT)])
    monkeypatch.setattr(run, "reconstruct", lambda *given, **options: next(results)(*given, **options))
    code, out, _ = deal("denoise", "a.png", "b.png", "out", "--sigma", 20, "--max-iterations", 1, "--json")
    report = json.loads(out)
    assert code == 130
    assert [result["output"] for result in report["results"]] == ["out/a.png"]
    assert report["error"] == "interrupted"


def test_an_interrupt_while_torch_is_imported_is_silent(tmp_path):
    """A torch that is interrupted as soon as it is imported."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(9**9): pass"
    )
    code = "import torchdeal_command; torchdeal_command.main()"
    done = command(module="-c", name=code, env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_installed_command_begins_there():
    assert 'deal = "torchdeal_command:main"' in (ROOT / "pyproject.toml").read_text()


def test_python_m_torchdeal():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"torchdeal {torchdeal.__version__}\n", "")


def test_a_reader_that_has_enough_is_no_error():
    """As in `deal info | head -1`: here nobody reads at all."""
    reading, writing = os.pipe()
    os.close(reading)
    for options in ([], ["--json"]):
        done = command("info", *options, stdout=writing)
        assert done.returncode == 1
        assert done.stderr == ""
    os.close(writing)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_output_that_cannot_be_printed_is_one_line():
    with open("/dev/full", "w") as full:
        done = command("info", "--json", stdout=full)
    assert done.returncode == 1
    assert re.fullmatch(r"Error: .*No space left on device\n", done.stderr)


def test_closed_streams(tmp_path):
    """As in `deal ... >&- 2>&-`."""
    save(tmp_path / "in.png", pixels(size=16))
    shell = f'"{sys.executable}" -m torchdeal denoise in.png out.png --sigma 9 --max-iterations 1 <&- >&- 2>&-'
    assert subprocess.run(shell, shell=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}).returncode == 0
    assert (tmp_path / "out.png").stat().st_size > 0


@pytest.mark.usefixtures("picture")
def test_what_libraries_say_is_a_warning_of_the_command(deal, monkeypatch):
    def read(path):
        warnings.warn("one\nthing", RuntimeWarning, stacklevel=1)
        logging.getLogger("tifffile").error("another \x1b[31m%s", "thing")
        logging.getLogger("PIL").info("nothing")
        return original(path)

    original = files.read
    monkeypatch.setattr(files, "read", read)
    code, _, err = deal("denoise", "in.png", "out.png", "--sigma", 20, "--tolerance", 1)
    assert code == 0
    assert err == "Warning: one thing\nWarning: another \\x1b[31mthing\n"
    assert warnings.showwarning.__module__ != "torchdeal.cli.process"
