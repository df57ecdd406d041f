"""What all measuring tools do: JSON of what is shown, kept as it comes; one line for what is wrong."""

import argparse
import json
import math
from dataclasses import dataclass

import frame
import pytest
from frame import Tool, arguments_of, at_least

import torchdeal as td


@dataclass(frozen=True)
class Measured:
    name: str
    value: float | None


def make_tool(results, fails=None):
    def measure(given, say):
        for count in range(1, len(results) + 1):
            say(f"{count} of {len(results)}")
            yield results[:count]
        if fails:
            raise fails

    parser = arguments_of("trial", "for the tests")
    parser.set_defaults(kind="gray")
    return Tool(parser, measure, summarise=lambda found: {"count": len(found)})


def test_json_and_table_say_the_same(command, tmp_path):
    tool = make_tool([Measured("one", 1.5), Measured("two", math.inf), Measured("three", None)])
    content, out, code = command(tool)
    assert code == 0
    assert content["results"] == [
        {"name": "one", "value": 1.5},
        {"name": "two", "value": None},
        {"name": "three", "value": None},
    ]
    assert content["count"] == 3
    assert [line.split()[1] for line in out.splitlines()[2:]] == ["one", "two", "three"]
    _, printed, _ = command(tool, "--json")
    assert json.loads(printed)["results"] == content["results"]


def test_what_is_needed_to_repeat_it_is_recorded(command, tmp_path):
    content, *_ = command(make_tool([Measured("one", 1.0)]))
    settings = content["settings"]
    assert settings["weights"] == {"gray": td.io.checkpoint.checksum("gray")}
    assert (settings["device"], settings["threads"], settings["torchdeal"]) == ("cpu", 1, td.__version__)
    assert str(tmp_path) not in json.dumps(content)


@pytest.mark.parametrize(("fails", "code"), [(KeyboardInterrupt(), 130), (ValueError("a\x1b[2J"), "Error: a\\x1b[2J")])
def test_what_was_measured_is_kept(command, fails, code):
    content, out, found = command(make_tool([Measured("one", 1.0), Measured("two", 2.0)], fails))
    assert [row["name"] for row in content["results"]] == ["one", "two"]
    assert (out, found) == ("", code)


@pytest.mark.parametrize("name", ["results.png", "a.json/b.json"])
def test_a_place_that_cannot_be_is_refused_before_anything_is_measured(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text("mine")
    (tmp_path / "results.png").write_text("mine")
    with pytest.raises(SystemExit, match="Error: "):
        make_tool([], AssertionError("measured")).main(["--save", name])
    assert {path.read_text() for path in tmp_path.iterdir()} == {"mine"}


def test_numbers_of_options():
    assert [at_least(1)("3"), at_least(0.0)("2.5")] == [3, 2.5]
    for kind, text in ((at_least(1), "0"), (at_least(0.0), "nan"), (at_least(0.0), "inf")):
        with pytest.raises(argparse.ArgumentTypeError, match="must be at least"):
            kind(text)
    with pytest.raises(ValueError):
        at_least(1)("1.5")


def test_lines_do_not_command_the_terminal(capsys):
    frame.tell("\x1b]0;owned\x07")
    assert capsys.readouterr().err == "\\x1b]0;owned\\x07\n"
