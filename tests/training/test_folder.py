"""The folder of a run: weights that a run did not make are never replaced, and a run that ended can be made longer."""

import json
import os

import pytest
from conftest import assert_same_tensors, small_model
from safetensors.torch import load_file

import torchdeal as td
from torchdeal.training import CheckpointError, ConfigError, Options, train
from torchdeal.training.folder import BEST, CHECKPOINT, LAST, LOG
from torchdeal.training.optimiser import learning_rate
from torchdeal.training.state import load_checkpoint, save_checkpoint

TOML = """
[model]
features = 4
[data]
train = ["train"]
patch = 16
batch = 2
[iterations]
outer = [[0.0, 1, 2]]
again = [1, 1]
pool = 3
[optimiser]
steps = {steps}
warmup = 1
[run]
report_every = 1
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(TOML.format(steps=2))
    return path


@pytest.fixture
def options(config, pictures, tmp_path):
    """`options(resume=True, ...)`: of a run in the folder `run`."""

    def make(data=pictures, output=tmp_path / "run", **others):
        return Options(config, output, data=data, **others)

    return make


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", [CHECKPOINT, BEST, LAST])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_new_run_refuses_a_folder_with_weights_before_any_work(options, tmp_path, name, is_link):
    run = tmp_path / "run"
    run.mkdir()
    if is_link:  # to where there is nothing yet
        (run / name).symlink_to(tmp_path / "elsewhere")
    else:
        (run / name).write_bytes(b"precious")
    with pytest.raises(CheckpointError, match=rf"{name} exists: .*another --output, so that nothing is lost"):
        train(options(data=tmp_path / "nowhere"), print)  # images that are not there are not looked for
    assert os.listdir(run) == [name]
    assert is_link or (run / name).read_bytes() == b"precious"


def test_weights_are_not_replaced_by_what_they_became(deal, config, pictures, tmp_path):
    (tmp_path / "mine").mkdir()
    model = small_model(features=4, dtype=td.DEAL().kappa.dtype)
    for name in (BEST, "other.safetensors"):
        td.save(model, tmp_path / "mine" / name)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    before = contents(tmp_path / "mine")
    for start in ("mine/best.safetensors", "mine/other.safetensors", "link/other.safetensors"):
        for output in ("mine", "link"):
            code, _, err = deal("train", config, "--data", pictures, "--from", start, "--output", output)
            assert code == 1
            assert "choose another --output" in err
    assert contents(tmp_path / "mine") == before


def test_a_trainer_refuses_too(make_trainer):
    make_trainer("run", engine="packed").run(until=1)
    before = contents(make_trainer("run").folder)
    with pytest.raises(CheckpointError, match="exists"):
        make_trainer("run", engine="packed").run(until=1)
    assert contents(make_trainer("run").folder) == before


def test_what_a_run_reads_is_not_written(config, options, tmp_path):
    (tmp_path / "run").mkdir()
    os.link(config, tmp_path / "run" / LOG)
    before = config.read_bytes()
    with pytest.raises(ValueError, match=r"log\.jsonl: would overwrite the input"):
        train(options(), print)
    assert config.read_bytes() == before


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_an_output_that_cannot_be_a_folder(options, tmp_path, place):
    (tmp_path / "file").write_text("text")
    with pytest.raises(NotADirectoryError, match="file is a file, and a run writes to a folder"):
        train(options(data=tmp_path / "nowhere", output=tmp_path / place), print)


@pytest.mark.parametrize("name", [BEST, LAST])
def test_a_run_that_goes_on_replaces_only_its_own_weights(config, options, tmp_path, name):
    train(options(seconds=0), print)
    assert train(options(resume=True, seconds=0), print)[0].step == 0
    td.save(small_model(features=4, dtype=td.DEAL().kappa.dtype), tmp_path / "run" / name)
    before = contents(tmp_path / "run")
    with pytest.raises(CheckpointError, match=f"{name} was not made by this run and would be lost; move it elsewhere"):
        train(options(resume=True), print)
    assert contents(tmp_path / "run") == before


def test_a_run_that_is_complete_says_so_and_how_to_go_on(deal, config, pictures, tmp_path):
    given = ("train", config, "--data", pictures, "--output", "run", "--device", "cpu")
    assert deal(*given)[0] == 0
    before = contents(tmp_path / "run")
    code, out, err = deal(*given, "--resume")
    assert code == 0
    assert "the run is complete: 2 of 2 steps. To go on, make optimiser.steps in" in err
    assert "run/last.safetensors: 2 steps" in out
    assert contents(tmp_path / "run") == before

    config.write_text(TOML.format(steps=3))
    code, out, err = deal(*given, "--resume")
    assert code == 0
    assert "the run was to have 2 steps, and now has 3" in err
    assert "going on from step 2" in err
    assert "run/last.safetensors: 3 steps" in out
    assert td.io.checkpoint.last_run(tmp_path / "run" / LAST)["config"]["optimiser"]["steps"] == 3

    config.write_text(TOML.format(steps=1))
    code, _, err = deal(*given, "--resume")
    assert code == 1
    assert "the run has made 3 steps, and optimiser.steps is 1. To go on" in err


def test_weights_that_are_missing_from_a_complete_run_are_written(options, tmp_path):
    train(options(), print)
    before = contents(tmp_path / "run")
    (tmp_path / "run" / LAST).unlink()
    train(options(resume=True), print)
    assert contents(tmp_path / "run") == before


SCHEDULES = {
    "constant": {"lr": 5e-3, "final_lr": 5e-3},
    "restarts": {"lr": 5e-3, "schedule": "restarts", "cycle": 3},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_longer_run_is_that_of_a_run_that_was_long_from_the_start(make_trainer, schedule):
    """Bit by bit, where the rate of a step does not depend on how many steps there are."""
    whole = make_trainer("whole", engine="packed", optimiser={"steps": 9, **SCHEDULES[schedule]})
    whole.run()
    short = make_trainer("run", engine="packed", optimiser={"steps": 5, **SCHEDULES[schedule]})
    short.run()
    longer = make_trainer("run", engine="packed", optimiser={"steps": 9, **SCHEDULES[schedule]})
    longer.resume(short.folder / CHECKPOINT)
    longer.run()
    for name in (CHECKPOINT, LAST):
        assert_same_tensors(load_file(longer.folder / name), load_file(whole.folder / name))
    assert load_checkpoint(longer.folder / CHECKPOINT)[1].step == 9


def test_the_rate_of_a_longer_run_is_that_of_its_schedule(make_trainer):
    short = make_trainer("run", engine="packed", optimiser={"steps": 4})
    short.run()
    longer = make_trainer("run", engine="packed", optimiser={"steps": 8}, run={"report_every": 1})
    # another setting is refused still
    with pytest.raises(CheckpointError, match=r"other settings \(run.report_every was 4, is 1\)"):
        longer.resume(short.folder / CHECKPOINT)
    longer = make_trainer("run", engine="packed", optimiser={"steps": 8})
    longer.resume(short.folder / CHECKPOINT)
    longer.run()
    rates = [json.loads(line)["report"]["lr"] for line in (longer.folder / LOG).read_text().splitlines()]
    assert rates == [learning_rate(3, short.config.optimiser), learning_rate(7, longer.config.optimiser)]


def test_seconds_that_cannot_be(options):
    for seconds in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="--seconds should be at least 0"):
            train(options(seconds=seconds), print)


def test_a_run_of_an_older_checkpoint_is_still_its_own(options, tmp_path):
    """Settings that a later version adds have their defaults there."""
    train(options(seconds=0), print)
    path = tmp_path / "run" / CHECKPOINT
    tensors, state, settings = load_checkpoint(path)
    del settings["loss"]["slowness"]
    save_checkpoint(path, tensors, state, settings)
    assert train(options(resume=True), print)[0].step == 2
