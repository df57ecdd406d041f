"""The settings of a run: read, checked, written and read again."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from torchdeal.io.checkpoint import last_run
from torchdeal.training import Config, ConfigError, parse_config, read_config

CONFIGS = Path(__file__).parents[2] / "configs"
DATA = {"train": ["images"]}


@pytest.mark.parametrize(
    ("name", "channels", "features", "steps"),
    [
        ("gray", 1, 128, 30_000),
        ("color", 3, 128, 20_000),
        ("tiny", 1, 8, 40),
        ("fine-tune", 1, 48, 10_000),
        ("fine-tune-cpu", 1, 48, 2_500),
    ],
)
def test_the_files_that_come_with_the_package(name, channels, features, steps):
    config = read_config(CONFIGS / f"{name}.toml")
    assert (config.model.channels, config.model.features, config.optimiser.steps) == (channels, features, steps)
    assert all(isinstance(path, str) for path in config.data.train)
    assert config.task.operator == "identity"


@pytest.mark.parametrize("name", ["fine-tune", "fine-tune-cpu"])
def test_the_files_for_fine_tuning_fit_the_light_weights(name):
    """And have the loss that these were made with."""
    config, made = read_config(CONFIGS / f"{name}.toml"), parse_config(last_run("gray-light")["config"])
    assert (config.model, config.loss) == (made.model, made.loss)
    assert config.optimiser.lr < made.optimiser.lr


@pytest.mark.parametrize("start", ["gray", "color-light", "color"])
@pytest.mark.parametrize("name", ["fine-tune", "fine-tune-cpu"])
def test_what_they_say_about_other_weights_is_true(name, start):
    """The comments are settings: with them the file fits the weights."""
    path, made = CONFIGS / f"{name}.toml", parse_config(last_run(start)["config"])
    (words,) = re.findall(rf"^#   --from {start} +also set (.*)$", path.read_text(), re.MULTILINE)
    given = dict(pair.split(" = ") for pair in words.split(", "))
    config = dataclasses.asdict(read_config(path))
    for section in ("model", "loss"):
        config[section] |= {key: json.loads(value) for key, value in given.items() if key in config[section]}
    changed = parse_config(config)
    assert (changed.model, changed.loss) == (made.model, made.loss)


def test_what_is_not_named_has_its_default():
    config = parse_config({"data": DATA, "optimiser": {"steps": 7}})
    assert config.optimiser == dataclasses.replace(Config().optimiser, steps=7)
    assert config.data == dataclasses.replace(Config().data, train=("images",))
    for section in ("model", "task", "iterations", "loss", "run"):
        assert getattr(config, section) == getattr(Config(), section)
    assert (config.task.sigma, config.data.patch, config.optimiser.betas) == ((0.0, 50.0), 128, (0.9, 0.99))


@pytest.mark.parametrize("name", ["gray", "color", "tiny", "fine-tune", "fine-tune-cpu"])
def test_a_config_survives_json(name):
    config = read_config(CONFIGS / f"{name}.toml")
    assert parse_config(json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_unusual_settings_survive_json():
    content = {
        "model": {"channels": 3, "boundary": "zero"},
        "data": {"train": ["a", "b"], "validation": ["c"]},
        "task": {"operator": "blur", "kernel": [[0.2, 0.3], [0.1, 0.4]], "sigma": [1, 2], "validation_sigma": [1]},
        "iterations": {"outer": [[0, 1, 2], [0.5, 3, 4]]},
        "optimiser": {"schedule": "restarts", "betas": [0, 0.5], "clip": 1},
    }
    config = parse_config(content)
    assert config.task.kernel == ((0.2, 0.3), (0.1, 0.4))
    assert config.iterations.outer == ((0.0, 1, 2), (0.5, 3, 4))
    assert parse_config(json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.parametrize(
    ("section", "key"), [("optimiser", "learning_rate"), ("task", "sigmas"), ("model", "Channels"), ("run", "steps")]
)
def test_a_setting_that_does_not_exist(section, key):
    with pytest.raises(ConfigError, match=rf"no setting {section}\.{key}: {section} has .*"):
        parse_config({"data": DATA, section: {**(DATA if section == "data" else {}), key: 1}})


def test_a_section_that_does_not_exist():
    with pytest.raises(ConfigError, match="no setting optimizer: the file has model, data, task"):
        parse_config({"data": DATA, "optimizer": {}})
    with pytest.raises(ConfigError, match="model should be a table"):
        parse_config({"data": DATA, "model": 1})


WRONG_TYPES = [
    ("loss.remember", 1, "true or false"),
    ("loss.remember", "yes", "true or false"),
    ("model.features", 12.5, "a whole number"),
    ("model.features", True, "a whole number"),
    ("model.boundary", 3, "a text"),
    ("data.train", "images", "a list of texts"),
    ("data.train", [1], "a text"),
    ("optimiser.lr", "high", "a number"),
    ("optimiser.lr", True, "a number"),
    ("optimiser.betas", [0.9], "a list of 2 values"),
    ("optimiser.betas", 0.9, "a list of 2 values"),
    ("task.kernel", [[1, "x"]], "a number"),
    ("task.kernel", [1, 2], "a list of numbers"),
    ("task.kernel", 1, "a list of lists of numbers"),
    ("iterations.outer", [[0.0, 1]], "a list of 3 values"),
]

IMPOSSIBLE = [
    ("model.channels", 2),
    ("model.boundary", "circular"),
    ("model.features", 0),
    ("data.train", []),
    ("data.train", [""]),
    ("data.validation", ["images", ""]),
    ("data.patch", 8),
    ("data.batch", 0),
    ("data.batch", 10**30),
    ("task.operator", "tomography"),
    ("task.sigma", [30, 20]),
    ("task.sigma", [-1, 20]),
    ("task.sigma", [0, float("inf")]),
    ("task.known", 0),
    ("task.known", 1.5),
    ("task.validation_sigma", [15, -1]),
    ("task.validation_sigma", [float("inf")]),
    ("iterations.outer", []),
    ("iterations.outer", [[0.1, 1, 2]]),
    ("iterations.outer", [[0.0, 1, 2], [0.8, 1, 2], [0.5, 1, 2]]),
    ("iterations.outer", [[0.0, 3, 2]]),
    ("iterations.again", [0, 2]),
    ("iterations.visits", 0),
    ("iterations.pool", 0),
    ("optimiser.steps", 0),
    ("optimiser.lr", 0),
    ("optimiser.lr", float("nan")),
    ("optimiser.lr", float("inf")),
    ("optimiser.final_lr", 1.0),
    ("optimiser.warmup", -1),
    ("optimiser.schedule", "linear"),
    ("optimiser.cycle", 0),
    ("optimiser.betas", [0.9, 1]),
    ("optimiser.clip", 0),
    ("optimiser.ema", 1),
    ("optimiser.above", 50),
    ("loss.gamma", -1),
    ("loss.gamma", float("inf")),
    ("loss.occasional", 0),
    ("loss.slowness", -1.0),
    ("loss.contraction", 1.0),
    ("run.seed", -1),
    ("run.report_every", 0),
    ("run.save_every", 0),
    ("run.validate_every", 0),
]


def with_value(name, value):
    section, key = name.split(".")
    content = {"data": dict(DATA)}
    content.setdefault(section, {})[key] = value
    return content


@pytest.mark.parametrize(("name", "value", "expected"), WRONG_TYPES)
def test_a_value_of_the_wrong_type(name, value, expected):
    with pytest.raises(ConfigError, match=rf"^{name} should be {expected}, got "):
        parse_config(with_value(name, value))


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_a_value_that_cannot_be(name, value):
    with pytest.raises(ConfigError, match=rf"^{name} should be "):
        parse_config(with_value(name, value))


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"kernel": [[1]], "blur_sigma": 1},
        {"kernel": [[0.5, 0.5], [1]]},
        {"kernel": [[0, 0]]},
        {"kernel": [[float("nan"), 1]]},
        {"blur_sigma": -1},
    ],
)
def test_a_blur_needs_one_kernel(task):
    with pytest.raises(ConfigError, match=r"^task\.(kernel|blur_sigma) should be "):
        parse_config({"data": DATA, "task": {"operator": "blur", **task}})


def test_the_file_is_named(tmp_path):
    path = tmp_path / "run.toml"
    with pytest.raises(ConfigError, match=r"run\.toml: no such file; give a config file, such as those in configs/"):
        read_config(path)
    with pytest.raises(ConfigError, match="is a folder; give a config file"):
        read_config(tmp_path)
    path.write_text("[model\n")
    with pytest.raises(ConfigError, match=r"run\.toml: cannot be read as TOML"):
        read_config(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"run\.toml: not a text file; give a config file"):
        read_config(path)
    path.write_text("[data]\ntrain = ['x']\n[run]\nsed = 1\n")
    with pytest.raises(ConfigError, match=r"run\.toml: there is no setting run\.sed"):
        read_config(path)


def test_iterations_grow_with_the_share_of_the_run():
    iterations = Config().iterations
    assert [iterations.bounds(share) for share in (0.0, 0.59, 0.6, 0.84, 0.85, 1.0)] == [
        (8, 18), (8, 18), (12, 24), (12, 24), (15, 40), (15, 40)
    ]  # fmt: skip
