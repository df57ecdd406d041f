"""`deal watch`: files as another program writes them, slowly, under other names, broken, and again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from cli.helpers import load, noise, pixels, save

import torchdeal
from torchdeal.cli import watch
from torchdeal.cli.arrivals import JOURNAL, Arrivals, Journal, Version
from torchdeal.io import files

ROOT = Path(torchdeal.__file__).parents[1]
QUICK = ("--sigma", "20", "--max-iterations", "1", "--model", "gray-light")
AT_ONCE = (*QUICK, "--once", "--settle", "0", "--poll", "0.01")


def write_noisy(path, size=16, row=300):
    save(path, pixels(size=size, row=row) + noise((size, size), 20))


def written(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.suffix != ".jsonl")


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


class Watch:
    """A process that watches; what it prints, line by line."""

    def __init__(self, *arguments):
        call = [sys.executable, "-m", "torchdeal", "watch", *arguments]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.out, self.err = Path("stdout.txt"), Path("stderr.txt")
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(call, stdout=out, stderr=err, env=environment)
        wait_for(lambda: "watching" in self.err.read_text())

    def lines(self, file):
        reports = [json.loads(line) for line in self.out.read_text().splitlines()]
        return [report for report in reports if Path(report["input"]).name == file]

    def wait_for(self, file, times=1):
        wait_for(lambda: len(self.lines(file)) >= times)
        assert self.process.poll() is None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    return Path("in")


@pytest.fixture
def watching(folder):
    """Results go into the folder itself: they are not to be done again."""
    found = Watch("in", "in/out", *QUICK, "--settle", "1.5", "--poll", "0.1", "--json", "--recursive")
    yield found
    found.process.kill()
    found.process.wait()


def in_pieces(path, content, pieces=4, pause=0.3):
    with path.open("wb") as file:
        for part in np.array_split(np.frombuffer(content, np.uint8), pieces):
            file.write(part.tobytes())
            file.flush()
            time.sleep(pause)


def test_files_are_done_when_they_are_complete(watching, folder):
    write_noisy("whole.png")
    content = Path("whole.png").read_bytes()
    in_pieces(folder / "slow.png", content)
    (folder / "new.png.part").write_bytes(content)
    (folder / "broken.png").write_bytes(content[:-30])
    stack = np.stack([pixels(size=16, row=40 * index) + noise((16, 16), 20) for index in range(3)])
    with tifffile.TiffWriter(folder / "pages.tif") as file:
        for page in stack.clip(0, 255).astype(np.uint8):
            file.write(page, contiguous=False)
            time.sleep(0.3)
    (folder / "new.png.part").rename(folder / "new.png")
    (folder / "below").mkdir()
    Path("whole.png").rename(folder / "below" / "moved.png")
    for name in ("slow.png", "broken.png", "pages.tif", "new.png", "moved.png"):
        watching.wait_for(name)
    assert "truncated" in watching.lines("broken.png")[0]["error"]
    assert [len(watching.lines(name)) for name in ("slow.png", "pages.tif", "new.png")] == [1, 1, 1]
    assert tifffile.imread("in/out/pages.tif").shape == stack.shape
    assert (load("in/out/slow.png") == load("in/out/new.png")).all()
    assert (load("in/out/below/moved.png") == load("in/out/new.png")).all()

    (folder / "broken.png").write_bytes(content)  # repaired
    write_noisy(folder / "new.png", row=100)  # another picture
    (folder / "slow.png").unlink()
    before = load("in/out/new.png")
    watching.wait_for("broken.png", times=2)
    watching.wait_for("new.png", times=2)
    assert (load("in/out/broken.png") == before).all()
    assert (load("in/out/new.png") != before).any()
    assert written("in/out") == ["below", "below/moved.png", "broken.png", "new.png", "pages.tif", "slow.png"]

    watching.process.send_signal(signal.SIGTERM)
    assert watching.process.wait(timeout=10) == 0
    assert watching.err.read_text().count("Error: ") == 1  # told of once
    assert "6 done, 0 failed, 0 had their results already" in watching.err.read_text()


def test_a_restart_goes_on_after_a_kill(folder, deal, tmp_path):
    write_noisy(folder / "a.png")
    write_noisy(folder / "b.png", size=160)  # takes a while
    os.utime(folder / "a.png", (1, 1))  # the oldest is the first
    killed = Watch("in", "out", "--sigma", "20", "--model", "gray-light", "--settle", "0")
    wait_for(lambda: Path("out", JOURNAL).exists())
    time.sleep(0.2)
    killed.process.kill()
    killed.process.wait()
    assert written("out") == ["a.png"]
    made = Path("out/a.png").stat().st_mtime_ns
    code, out, err = deal("watch", tmp_path / "in", tmp_path / "out", *AT_ONCE)
    assert code == 0
    assert "1 of 2 files have their results already" in err
    assert Path("out/a.png").stat().st_mtime_ns == made
    assert len(out.splitlines()) == 1
    assert written("out") == ["a.png", "b.png"]


class TestOnce:
    def test_the_results_are_those_of_denoise(self, deal):
        Path("in").mkdir()
        write_noisy("in/a.png")
        assert deal("watch", "in", "out", *AT_ONCE)[0] == 0
        assert deal("denoise", "in/a.png", "other.png", *QUICK)[0] == 0
        assert (load("out/a.png") == load("other.png")).all()

    def test_what_has_its_result_is_done_again_only_if_it_changed(self, deal):
        Path("in").mkdir()
        write_noisy("in/a.png")
        write_noisy("in/b.png")
        deal("denoise", "in", "out", *QUICK)  # results that the journal does not know
        code, out, err = deal("watch", "in", "out", *AT_ONCE)
        assert (code, out) == (0, "")
        assert "0 done, 0 failed, 2 had their results already" in err
        write_noisy("in/a.png", row=100)
        os.utime("in/a.png", ns=(0, Path("out/a.png").stat().st_mtime_ns + 1))
        assert deal("watch", "in", "out", *AT_ONCE)[1].count("out/a.png") == 1
        write_noisy("in/a.png", row=200)
        os.utime("in/a.png", (1, 1))  # older than its result, as after `cp --preserve`: the journal knows better
        assert deal("watch", "in", "out", *AT_ONCE)[1].count("out/a.png") == 1
        assert deal("watch", "in", "out", *AT_ONCE)[1] == ""
        Path("out/a.png").unlink()
        assert deal("watch", "in", "out", *AT_ONCE)[1].count("out/a.png") == 1

    def test_a_broken_file_is_an_error_at_the_end(self, deal):
        Path("in").mkdir()
        write_noisy("in/good.png")
        Path("in/broken.tif").write_bytes(b"II*\0")
        code, out, err = deal("watch", "in", "out", *AT_ONCE)
        assert code == 1
        assert "out/good.png" in out
        assert "in/broken.tif" in err
        assert "1 done, 1 failed" in err

    def test_a_file_that_changes_meanwhile_is_not_written_but_done_again(self, deal, monkeypatch):
        Path("in").mkdir()
        write_noisy("in/a.png")
        pose, frames = watch.DenoisingArrival.pose, []

        def disturbed(self, frame):
            frames.append(frame)
            assert not Path("out/a.png").exists()
            if len(frames) == 1:  # it was read already
                write_noisy("in/a.png", size=20)
            return pose(self, frame)

        monkeypatch.setattr(watch.DenoisingArrival, "pose", disturbed)
        code, _, err = deal("watch", "in", "out", *AT_ONCE)
        assert (code, len(frames)) == (0, 2)
        assert "changed while it was worked on" in err
        assert load("out/a.png").shape == (20, 20)

    def test_what_the_system_refuses_is_tried_again_and_told_once(self, deal, monkeypatch):
        Path("in").mkdir()
        write_noisy("in/a.png")
        attempts, restore = [], watch.restore

        def refused(*given):
            attempts.append(1)
            if len(attempts) < 3:
                raise files.ImageFileError("out/a.png: could not be written") from OSError(
                    28, "No space left on device"
                )
            return restore(*given)

        monkeypatch.setattr(watch, "restore", refused)
        monkeypatch.setattr(watch, "RETRY", 0.0)
        code, _, err = deal("watch", "in", "out", *AT_ONCE)
        assert (code, len(attempts)) == (0, 3)
        assert err.count("could not be written") == 1

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    @pytest.mark.parametrize("times", [1, 2])
    def test_a_signal_ends_after_the_file_in_work_a_second_one_at_once(self, deal, monkeypatch, number, times):
        Path("in").mkdir()
        for name in "ab":
            write_noisy(f"in/{name}.png")
        restore = watch.restore

        def signalled(*given):
            for _ in range(times):
                os.kill(os.getpid(), number)
            return restore(*given)

        monkeypatch.setattr(watch, "restore", signalled)
        handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
        code, _, err = deal("watch", "in", "out", *AT_ONCE)
        assert "ends after in/a.png" in err
        assert code == (0 if times == 1 else 128 + number)
        assert written("out") == (["a.png"] if times == 1 else [])
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (("none", "out"), "no such folder"),
        (("in", "in"), "FOLDER is in it"),
        (("in/below", "in"), "FOLDER is in it"),
        (("in", "in/a.png"), "the name of a file"),
        (("in", "no/out"), "create it first"),
        (("in", "out", "--model", "none.pth"), "none.pth"),
        (("in", "out", "--settle", "inf"), "--settle must be finite"),
    ],
)
def test_what_cannot_be_ends_at_the_beginning(deal, places, message):
    Path("in/below").mkdir(parents=True)
    write_noisy("in/a.png")
    code, _, err = deal("watch", *places)
    assert code == 1
    assert message in err


def test_a_result_that_is_a_link_to_an_input_is_refused(deal):
    Path("in").mkdir()
    Path("out").mkdir()
    for name in "ab":
        write_noisy(f"in/{name}.png")
    before = Path("in/b.png").read_bytes()
    os.utime("in/a.png", (2e9, 2e9))  # newer than what the link leads to
    Path("out/a.png").symlink_to("../in/b.png")
    code, _, err = deal("watch", "in", "out", *AT_ONCE)
    assert code == 1
    assert "would overwrite" in err
    assert Path("in/b.png").read_bytes() == before


def test_a_file_has_settled_when_it_did_not_change_for_a_while(folder):
    now = [0.0]
    arrivals = Arrivals(folder, Path("out"), recursive=False, settle=2, clock=lambda: now[0])

    def settled(at):
        now[0] = at
        return [path.name for path, _ in arrivals.look(lambda error: None)]

    (folder / "a.png").write_bytes(b"1")
    (folder / ".hidden.png").write_bytes(b"1")
    (folder / "a.png.part").write_bytes(b"1")
    assert settled(0) == settled(1.9) == []
    assert settled(2) == ["a.png"]
    (folder / "a.png").write_bytes(b"12")
    assert settled(3) == settled(4.9) == []
    assert settled(5) == ["a.png"]
    (folder / "a.png").rename(folder / "b.png")
    assert settled(6) == settled(7) == []
    assert settled(8) == ["b.png"]


def test_a_journal_that_was_cut_off_goes_on(tmp_path):
    place, version = Path("a.png"), Version(3, 2**62)
    target = tmp_path / "a.png"
    target.write_bytes(b"")
    Journal(tmp_path).add(place, version, {"note": "\ud800"})
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"place": "b.p')
    Journal(tmp_path).add(Path("c.png"), version, {})
    found = Journal(tmp_path)
    assert found.is_done(place, version, target)
    assert found.is_done(Path("c.png"), version, target)
    assert not found.is_done(place, Version(4, 2**62), target)
    assert not found.is_done(Path("b.png"), version, target)  # newer than its result
    assert not found.is_done(place, version, tmp_path / "none.png")


def test_a_folder_that_is_away_for_a_while_is_told_of_once(folder, capsys):
    settings = watch.Settings()
    watcher = watch.Watcher(settings, folder, Path("out"), settle=0, once=False)
    folder.rename("elsewhere")
    for _ in range(2):
        assert not watcher.go_round(watch.Ending())
    assert capsys.readouterr().err.count("No such file or directory") == 1
    Path("elsewhere").rename(folder)
    write_noisy(folder / "a.png")
    Path("out").mkdir()
    watcher.go_round(watch.Ending())
    assert Path("out/a.png").exists()
