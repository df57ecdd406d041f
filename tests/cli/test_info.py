"""`deal info`: the machine, the bundled weights, and those of a user."""

import json

import pytest
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.io.checkpoint import card
from torchdeal.training import read_config


def test_info(deal):
    code, out, _ = deal("info")
    assert code == 0
    for word in (td.__version__, torch.__version__, "weights gray", "weights color", "BSD68", "468570", "MIT"):
        assert word in out
    code, out, _ = deal("info", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["weights"]["color"]["intact"] == "yes"
    assert facts["weights"]["gray"]["last_run"]["config"]["model"]["channels"] == 1


def test_info_of_named_weights_shows_the_config_of_their_last_run(deal, tmp_path):
    code, out, _ = deal("info", "gray")
    assert code == 0
    assert "weights color" not in out
    assert card("gray")["sha256"] in out.replace("\n", "").replace(" ", "")
    path = tmp_path / "again.toml"
    path.write_text(out.partition("config of the last run\n")[2])
    assert read_config(path).model.channels == 1


def test_info_tells_of_bundled_weights_that_are_damaged(deal, monkeypatch, tmp_path):
    (tmp_path / "gray.safetensors").write_bytes(b"half of it")
    monkeypatch.setattr("torchdeal.io.checkpoint.weights_path", lambda source: tmp_path / "gray.safetensors")
    code, out, _ = deal("info", "gray")
    assert code == 0
    assert "NO: reinstall" in out


def test_info_of_a_file(deal, tmp_path):
    path = tmp_path / "mine.safetensors"
    td.save(small_model(features=8, dtype=torch.float32), path)
    code, out, _ = deal("info", path.name)
    assert code == 0
    assert "boundary    reflect" in out
    assert "config" not in out
    for hostile in (
        "[not a card",
        '"a text"',
        '{"config": "a text"}',
        '{"config": {"a": 1}, "[/b]": "[red]"}',
        '{"steps": NaN, "config": {"a": {"b": -Infinity}}, "\\u001b[2J": "\\u001b]0;x\\u0007 \\ud800"}',
        9999 * "[",
    ):
        td.save(small_model(features=8, dtype=torch.float32), path, {"training": hostile})
        code, out, err = deal("info", path.name)
        assert code == 0
        assert "\x1b" not in out + err
        code, out, _ = deal("info", path.name, "--json")
        assert code == 0
        assert json.loads(out, parse_constant=pytest.fail)["weights"][path.name]["channels"] == 1  # no NaN in JSON
    (tmp_path / "broken.safetensors").write_bytes(path.read_bytes()[:100])
    code, _, err = deal("info", "broken.safetensors")
    assert code != 0
    assert "may be truncated" in err
    code, _, err = deal("info", "nothing.safetensors")
    assert code != 0
    assert "no weights at nothing.safetensors" in err
