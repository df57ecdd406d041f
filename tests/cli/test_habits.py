"""What people and other programs expect of a command: names, errors, JSON, memory."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from cli.helpers import only_result, pixels, save

from torchdeal import memory as system_memory
from torchdeal.cli import memory, run
from torchdeal.cli.memory import memory_for
from torchdeal.cli.pictures import PictureTask
from torchdeal.cli.shared import in_words, is_foreseeable, print_json
from torchdeal.io import files

QUICK = ("--sigma", 10, "--max-iterations", 1)
HOSTILE = "a\x1b[31m\x1b]0;title\x07\u202egnp\n.png"


def shows_nothing_hostile(text):
    return all(character.isprintable() or character == "\n" for character in text)


def stack(name="stack.tif", frames=3):
    pictures = np.stack([pixels(size=16, row=40 * index) for index in range(frames)])
    tifffile.imwrite(name, pictures.round().astype(np.uint8), photometric="minisblack")


class TestNames:
    def test_a_terminal_obeys_no_name(self, deal):
        save(HOSTILE, pixels(size=16))
        code, out, err = deal("denoise", HOSTILE, f"out-{HOSTILE}", *QUICK)
        assert code == 0
        assert shows_nothing_hostile(out + err)
        assert len(out.splitlines()) == 1
        assert r"out-a\x1b[31m\x1b]0;title\x07\u202egnp\n.png" in out

    @pytest.mark.parametrize(
        "arguments",
        [
            ("denoise", HOSTILE, "out.png"),
            ("denoise", "in.png", f"{HOSTILE}/out.png"),
            ("denoise", "in.png", "out.png", "--model", HOSTILE),
            ("denoise", "in.png", "out.png", f"--{HOSTILE}"),
            ("denoise", "in.png", "out.png", "--device", HOSTILE),
            ("deblur", "in.png", "out.png", "--kernel", HOSTILE),
            ("info", HOSTILE),
            (HOSTILE,),
        ],
        ids=range(8),
    )
    def test_nor_an_error_that_holds_one(self, deal, arguments):
        save("in.png", pixels(size=16))
        for json_too in ((), ("--json",)):
            code, out, err = deal(*arguments, *json_too)
            assert code in (1, 2)
            assert "Error: " in err
            assert shows_nothing_hostile(out + err)
            if json_too:
                assert json.loads(out)["error"]

    def test_bytes_that_are_no_text(self, deal):
        name = os.fsdecode(b"\xff\xfe.png")
        save(name, pixels(size=16))
        code, out, _ = deal("denoise", name, "out.png", "--json", *QUICK)
        assert code == 0
        assert only_result(out)["input"] == name
        code, out, err = deal("denoise", "out.png", os.fsdecode(b"out\xff.png"), *QUICK)
        assert code == 0
        assert r"out\xff.png" in out
        assert shows_nothing_hostile(out + err)

    def test_no_emoji_and_no_markup(self, deal):
        save("[red]:smile:.png", pixels(size=16))
        out = deal("denoise", "[red]:smile:.png", "[bold]:cat:.png", *QUICK)[1]
        assert "[bold]:cat:.png: sigma 10" in out


class TestJSON:
    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (("denoise", "missing.png", "out.png"), 1),
            (("denoise", "in.png", "in.png"), 1),
            (("denoise", "in.png"), 1),
            (("denoise", "in.png", "out.png", "--sigma", "-1"), 1),
            (("denoise", "in.png", "out.png", "--sgima", "1"), 2),
            (("denoise", "in.png", "out.png", "--sigma", "much"), 2),
            (("deblur", "in.png", "out.png"), 2),
            (("deblur", "in.png", "out.png", "--kernel", "cube:3"), 1),
            (("info", "missing.safetensors"), 1),
        ],
    )
    def test_errors_are_json_too(self, deal, arguments, code):
        save("in.png", pixels(size=16))
        before = os.listdir()
        found, out, err = deal(*arguments, "--json")
        assert found == code
        assert err.splitlines()[-1] == f"Error: {json.loads(out)['error']}"
        assert os.listdir() == before

    def test_what_nobody_foresaw_is_json_too(self, deal, monkeypatch, capsys):
        save("in.png", pixels(size=16))
        monkeypatch.setattr(run, "reconstruct", lambda *_, **__: {}["missing"])
        with pytest.raises(KeyError):
            deal("denoise", "in.png", "out.png", "--sigma", 5, "--json")
        assert json.loads(capsys.readouterr().out) == {"error": "KeyError: 'missing'"}

    def test_numbers_that_it_does_not_know(self, capsys):
        print_json({"a": [float("nan"), (float("inf"), 1.5)], 2: Path("x\x1b"), "b": None, "c": True})
        out = capsys.readouterr().out
        assert out.isascii()
        assert json.loads(out) == {"a": [None, [None, 1.5]], "2": "x\x1b", "b": None, "c": True}


class TestWhatIsNotWritten:
    @staticmethod
    def broken(monkeypatch, frame, value):
        """The solution of one frame holds a value that is no number."""
        reconstruct, calls = run.reconstruct, []

        def spoiled(*given, **options):
            solution = reconstruct(*given, **options)
            calls.append(solution)
            if len(calls) == frame:
                solution.x[..., 3, 5] = value
            return solution

        monkeypatch.setattr(run, "reconstruct", spoiled)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_a_result_that_is_no_number(self, deal, monkeypatch, value):
        stack()
        Path("out.tif").write_text("mine")
        self.broken(monkeypatch, 2, value)
        code, out, err = deal("denoise", "stack.tif", "out.tif", *QUICK)
        assert (code, out) == (1, "")
        assert "stack.tif 2/3: the result holds NaN or infinite values" in err
        assert Path("out.tif").read_text() == "mine"
        assert sorted(os.listdir()) == ["out.tif", "stack.tif"]

    def test_the_others_of_a_folder_are(self, deal, monkeypatch):
        os.mkdir("in")
        for name in "ab":
            save(f"in/{name}.png", pixels(size=16))
        self.broken(monkeypatch, 1, float("nan"))
        code, out, _ = deal("denoise", "in", "out", "--json", *QUICK)
        assert code == 1
        assert list(json.loads(out)["failures"]) == ["in/a.png"]
        assert os.listdir("out") == ["b.png"]

    def test_what_the_format_cannot_hold_is_not_computed(self, deal, monkeypatch):
        monkeypatch.setattr(run, "reconstruct", lambda *_, **__: pytest.fail("computed"))
        save("in.png", pixels(size=16))

        def check(self, path, frames, kind):
            assert len(frames) == 1
            if path.name == name:
                raise files.ImageFileError(f"{path}: cannot hold it; write .tif")

        monkeypatch.setattr(PictureTask, "check_target", check)
        for name in ("out.png", "noisy.png"):
            code, _, err = deal("denoise", "in.png", "out.png", "--simulate", "--save-degraded", "noisy.png")
            assert code == 1
            assert f"{name}: cannot hold it" in err
        assert os.listdir() == ["in.png"]


class TestWhatIsTold:
    def test_which_frames_did_not_converge(self, deal, monkeypatch):
        stack()
        reconstruct, limits = run.reconstruct, iter([200, 1, 1])
        monkeypatch.setattr(
            run,
            "reconstruct",
            lambda *given, **options: reconstruct(*given, **options | {"max_iterations": next(limits)}),
        )
        code, out, err = deal("denoise", "stack.tif", "out.tif", "--sigma", 10, "--tolerance", 0.1, "--json")
        assert code == 0
        assert "out.tif did not converge in 2 of 3 frames (2, 3). The maximum number" in err
        result = only_result(out)
        assert result["not_converged"] == [2, 3]
        assert result["frames"] == 3
        assert result["status"] == "MAX_ITERATIONS"

    def test_what_could_not_be_kept(self, deal, monkeypatch):
        save("in.png", pixels(size=16))
        monkeypatch.setattr(PictureTask, "write", lambda *_: ["EXIF: it cannot hold it"])
        code, out, err = deal("denoise", "in.png", "out.png", "--json", *QUICK)
        assert code == 0
        assert "Note: out.png: EXIF: it cannot hold it\n" in err
        assert only_result(out)["notes"] == ["EXIF: it cannot hold it"]


OUT_OF_MEMORY = [
    (MemoryError(), None),
    (np._core._exceptions._ArrayMemoryError((60000, 60000), np.dtype(np.uint8)), "3.35 GiB"),
    (
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 14400000000 bytes."),
        "13.4 GiB",
    ),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"), "2.00 GiB"),
    (RuntimeError("CUDA error: out of memory"), None),
    (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), None),
]


class TestMemory:
    @pytest.mark.parametrize(("error", "size"), OUT_OF_MEMORY)
    def test_every_kind_of_it_is_one_sentence(self, error, size):
        with pytest.raises(MemoryError) as raised, memory_for("to read x.tif"):
            raise error
        text = in_words(raised.value)
        assert text.startswith("not enough memory to read x.tif")
        assert (f"({size} were asked for)" in text) == (size is not None)
        assert ("--device cpu" in text) == ("CUDA" in str(error) or "MPS" in str(error))
        assert "smaller" in in_words(error)
        assert is_foreseeable(error)

    @pytest.mark.parametrize("place", [(files, "read"), (run, "reconstruct"), (PictureTask, "write")], ids=str)
    def test_it_says_at_what(self, deal, monkeypatch, place):
        def too_much(*_, **__):
            torch.empty(2**62, dtype=torch.uint8)

        save("in.png", pixels(size=16))
        monkeypatch.setattr(*place, too_much)
        code, out, err = deal("denoise", "in.png", "out.png", *QUICK)
        assert (code, out) == (1, "")
        does = {"read": "to read in.png", "reconstruct": "to reconstruct in.png", "write": "to write out.png"}[place[1]]
        assert err.startswith(f"Error: not enough memory {does} (4294967296.0 GiB were asked for): use a smaller input")
        assert len(err.splitlines()) == 1
        assert not os.path.exists("out.png")

    def test_what_cannot_fit_is_not_begun(self, deal, monkeypatch):
        """The masks of 16 x 16 pixels are 128 numbers of 4 bytes for each."""
        save("in.png", pixels(size=16))
        for free, expected in ((16 * 16 * 128 * 4 - 1, 1), (16 * 16 * 128 * 4, 0)):
            monkeypatch.setattr(memory, "available_memory", lambda free=free: free)
            code, _, err = deal("denoise", "in.png", "out.png", *QUICK)
            assert code == expected
            assert ("not enough memory to reconstruct in.png (0.0 GiB were asked for" in err) == bool(expected)

    def test_how_much_there_is(self, tmp_path, monkeypatch):
        for name in ("MEMORY", "LIMIT"):
            monkeypatch.setattr(system_memory, name, tmp_path / name)
        assert system_memory.available_memory() is None
        system_memory.MEMORY.write_text("MemTotal:   99 kB\nMemAvailable:  30 kB\nSwapFree:  10 kB\n")
        assert system_memory.available_memory() == 40 * 1024
        for limit, expected in (("max", 40 * 1024), ("5000", 5000), ("500000", 40 * 1024)):
            system_memory.LIMIT.write_text(limit)
            assert system_memory.available_memory() == expected

    def test_other_errors_are_what_they_are(self):
        for error in (RuntimeError("something else"), KeyError("x")):
            assert not is_foreseeable(error)
            with pytest.raises(type(error)), memory_for("x"):
                raise error


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(deal, shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    code, out, _ = deal("--show-completion", shell)
    assert code == 0
    assert "_DEAL_COMPLETE" in out


def test_words_are_completed(deal, monkeypatch):
    monkeypatch.setenv("_DEAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "deal deno")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert deal()[1].split() == ["denoise"]
    monkeypatch.setenv("COMP_WORDS", "deal denoise --skip")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert deal()[1].split() == ["--skip-existing"]
