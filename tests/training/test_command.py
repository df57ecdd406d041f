"""`deal train` and `python -m torchdeal.training`, as commands."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from conftest import assert_same_tensors
from safetensors.torch import load_file

import torchdeal as td
from torchdeal.training import CheckpointError, ConfigError, Options, Validated, train
from torchdeal.training.folder import BEST, CHECKPOINT, LAST
from torchdeal.training.run import main
from torchdeal.training.state import load_checkpoint

TOML = """
[model]
features = 4
[data]
train = ["train"]
validation = ["validation"]
patch = 16
batch = 2
[task]
validation_sigma = [25]
[iterations]
outer = [[0.0, 1, 2]]
again = [1, 1]
visits = 2
pool = 3
[optimiser]
steps = {steps}
lr = 5e-3
warmup = 2
ema = 0.8
[run]
report_every = 2
validate_every = {steps}
"""


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(TOML.format(steps=20))
    return path


def arguments(config, output, pictures, *others):
    return [str(config), "--output", str(output), "--data", str(pictures), "--device", "cpu", *others]


def exit_code(*given):
    with pytest.raises(SystemExit) as stop:
        main(*given)
    return stop.value.code


def test_sigterm_saves_and_resume_goes_on_to_the_same_weights(config_file, pictures, tmp_path, capsys):
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    command = [sys.executable, "-m", "torchdeal.training", *arguments(config_file, stopped, pictures)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as run:
        lines = []
        with contextlib.suppress(StopIteration):
            while not lines or not lines[-1].startswith("step "):
                lines.append(next(run.stdout))
        run.send_signal(signal.SIGTERM)
        rest, _ = run.communicate(timeout=60)
    assert run.returncode == 143, "".join(lines) + rest
    assert "(SIGTERM): go on with --resume" in rest
    step = load_checkpoint(stopped / CHECKPOINT)[1].step
    assert 2 <= step < 20

    assert exit_code(arguments(config_file, stopped, pictures)) != 0  # it would lose what is there
    assert exit_code(arguments(config_file, stopped, pictures, "--resume")) == 0
    assert f"going on from step {step}" in capsys.readouterr().out
    assert exit_code(arguments(config_file, whole, pictures)) == 0
    for name in (LAST, BEST):
        assert_same_tensors(load_file(stopped / name), load_file(whole / name))


def options(config_file, pictures, tmp_path, **others):
    return Options(config_file, tmp_path / "run", data=pictures, **others)


def test_a_run_from_other_weights(config_file, pictures, tmp_path):
    model = td.DEAL(features=4)
    td.save(model, tmp_path / "start.safetensors")
    start = str(tmp_path / "start.safetensors")
    messages = []
    # No step is made, so that the weights are still those
    train(options(config_file, pictures, tmp_path, start=start, seconds=0), messages.append)
    assert_same_tensors(load_file(tmp_path / "run" / LAST), model.state_dict())
    assert any("6 images" in message for message in messages)


def test_weights_to_start_from_are_scored_first_and_are_the_best_until_others_are(config_file, pictures, tmp_path):
    """A rate at which everything gets worse: what is called the best is what the run began with."""
    good = td.load("gray-light")
    td.save(good, tmp_path / "start.safetensors")
    text = TOML.format(steps=2).replace("features = 4", "features = 48").replace("lr = 5e-3", "lr = 0.5")
    config_file.write_text(text)
    events = []
    state, _ = train(options(config_file, pictures, tmp_path, start=str(tmp_path / "start.safetensors")), events.append)
    first, last = (event for event in events if isinstance(event, Validated))
    assert (first.step, last.step, state.best_step) == (0, 2, 0)
    assert first.scores[0].psnr > last.scores[0].psnr + 1
    assert_same_tensors(load_file(tmp_path / "run" / BEST), good.state_dict())


def test_weights_that_do_not_fit_are_refused(config_file, pictures, tmp_path):
    td.save(td.DEAL(3, features=4), tmp_path / "colour.safetensors")
    with pytest.raises(ConfigError, match=r"config.toml: channels is 3 and in \[model\] 1\. Change"):
        train(options(config_file, pictures, tmp_path, start=str(tmp_path / "colour.safetensors")), print)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError("Unable to allocate 745. GiB for an array"), r"not enough memory \(to allocate 745\. GiB\): make"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: tried to allocate 8 bytes."),
            "allocate 8 bytes",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "allocate 2.00 GiB"),
    ],
)
def test_memory_that_does_not_suffice_is_told_with_the_settings(
    config_file, pictures, tmp_path, monkeypatch, error, told
):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("torchdeal.training.run.read_images", fail)
    with pytest.raises(ConfigError, match=told) as raised:
        train(options(config_file, pictures, tmp_path), print)
    assert "data.batch, data.patch or model.features smaller" in str(raised.value)


@pytest.mark.parametrize("message", ["a mistake", "CUDA error: an illegal memory access was encountered"])
def test_other_errors_stay_what_they_are(config_file, pictures, tmp_path, monkeypatch, message):
    def fail(*arguments, **options):
        raise RuntimeError(message)

    monkeypatch.setattr("torchdeal.training.run.read_images", fail)
    with pytest.raises(RuntimeError, match=message):
        train(options(config_file, pictures, tmp_path), print)


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


def test_ctrl_c_before_the_first_step_is_one_line(config_file, pictures, tmp_path, monkeypatch, capsys, deal):
    monkeypatch.setattr("torchdeal.training.run.read_images", interrupted)
    assert exit_code(arguments(config_file, tmp_path / "run", pictures)) == 130
    assert capsys.readouterr().err == "Interrupted: what was saved before is as it was\n"
    assert deal("train", *arguments(config_file, tmp_path / "run", pictures))[0] == 130
    assert not (tmp_path / "run").exists()


def test_the_cursor_comes_back_where_the_bar_had_no_time_to_begin(monkeypatch):
    from torchdeal.cli import process, shared

    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    monkeypatch.setattr(process, "messages", shared.Terminal(file=stream, force_terminal=True))
    process.messages.show_cursor(False)
    with pytest.raises(SystemExit), process.a_command():
        raise SystemExit(143)
    assert stream.getvalue().endswith("\x1b[?25h")


def test_what_is_skipped_is_told_by_name_and_cannot_command_the_terminal(config_file, tmp_path, pictures, capsys):
    shutil.copytree(pictures, tmp_path / "data")
    for folder in ("train", "validation"):
        (tmp_path / "data" / folder / "bad\x1b[2J.png").write_bytes(b"no image")
        for number in range(9):
            (tmp_path / "data" / folder / f"{number}.txt").write_text("no image")
    exit_code([*arguments(config_file, tmp_path / "run", tmp_path / "data"), "--seconds", "0"])
    out = capsys.readouterr().out
    assert out.count("bad\\x1b[2J.png: cannot be read") == 2
    assert out.count("skipped 9 files that are not JPEG, PNG, WebP or TIFF") == 2
    assert "\x1b" not in out


def test_a_checkpoint_that_exists_is_not_lost(config_file, pictures, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CHECKPOINT).write_bytes(b"precious")
    with pytest.raises(CheckpointError, match="exists: go on with --resume"):
        train(options(config_file, pictures, tmp_path), print)
    assert (tmp_path / "run" / CHECKPOINT).read_bytes() == b"precious"
    with pytest.raises(ConfigError, match="leave out --from"):
        train(options(config_file, pictures, tmp_path, resume=True, start="gray"), print)


def test_errors_of_the_command_are_sentences(config_file, pictures, tmp_path):
    code = exit_code(arguments(tmp_path / "missing.toml", tmp_path / "run", pictures))
    assert code.startswith("Error: ")
    assert "missing.toml" in code
    code = exit_code(arguments(config_file, tmp_path / "run", tmp_path / "nowhere"))
    assert code.startswith("Error: ")
    assert "there is no such folder" in code
    code = exit_code(arguments(config_file, tmp_path / "run", pictures, "--resume"))
    assert "there is no checkpoint to go on from" in code


def test_deal_train_ends_in_json(deal, config_file, pictures):
    code, out, _ = deal("train", *arguments(config_file, "run", pictures), "--seconds", "0", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["step"], told["stopped"], told["best"]) == (0, "0 seconds are over", None)
    assert td.load(told["last"]).features == 4
    code, out, _ = deal("train", *arguments(config_file, "run", pictures), "--json")
    assert code == 1
    assert "exists" in json.loads(out)["error"]


def test_a_run_that_does_not_begin_leaves_no_folder(deal, config_file, tmp_path):
    pytest.importorskip("tensorboard")
    assert deal("train", *arguments(config_file, "run", "nowhere"), "--tensorboard")[0] == 1
    assert not (tmp_path / "run").exists()


def test_deal_train_tells_how_it_goes_and_logs_it(deal, config_file, pictures, tmp_path):
    pytest.importorskip("tensorboard")
    config_file.write_text(TOML.format(steps=2))
    code, out, err = deal("train", *arguments(config_file, "run", pictures), "--tensorboard")
    assert code == 0
    for told in ("training images: 6 images", "step 2/2  loss ", "validation at step 2: sigma 25: "):
        assert told in err
    assert "run/last.safetensors: 2 steps" in out
    assert "best on the validation images at step 2" in out
    (log,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert log.stat().st_size > 1000
