"""`deal app` as a command; the page itself is in tests/app."""

import os
import signal
import socket
import subprocess
import sys

import pytest

pytest.importorskip("starlette", reason="the page needs pip install 'torchdeal[app]'")


def test_the_extra_is_named_where_it_is_missing(deal, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    code, _, err = deal("app")
    assert code == 1
    assert err.strip() == "Error: deal app needs starlette: pip install 'torchdeal[app]'"


def test_a_port_that_is_taken(deal):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = deal("app", "--no-browser", "--port", taken.getsockname()[1])
    assert code == 1
    assert "choose another --port" in err


def _hear_interrupts():
    """A shell's background jobs ignore them, and so would the process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize(("arguments", "ending"), [((), signal.SIGINT), (("--host", "0.0.0.0"), signal.SIGTERM)])
def test_it_ends_in_order_and_asks_for_a_password_where_others_can_ask(arguments, ending, tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "torchdeal", "app", "--no-browser", "--port", "0", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, preexec_fn=_hear_interrupts, **pipes) as process:
        try:
            line = process.stdout.readline()
            if arguments:
                assert line.startswith("The password of the page is ")
                line = process.stdout.readline()
            assert line.startswith("The page is at http://")
            assert list(tmp_path.glob("deal-app-*"))
            process.send_signal(ending)
            assert process.wait(20) in (0, 130, 143)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()  # what failed must not be waited for
    assert list(tmp_path.glob("deal-app-*")) == []
