"""The options that commands share."""

from dataclasses import fields

import pytest
from typer.main import get_command

from torchdeal.cli import app
from torchdeal.cli.options import Settings

ALL = {"json" if field.name == "as_json" else field.name.replace("_", "-") for field in fields(Settings)}
OF_PICTURES = {"noise-model", "gain", "read-noise", "noise-map", "noise-per"}
OF_MUCH = {"tile", "overlap", "resume", "dask"}
MISSING = {
    "denoise": {"model-sigma", "parameters"},  # the sigma of the model is the noise
    "watch": {"model-sigma", "parameters", "error-bars", "simulate", "seed", "save-degraded", "skip-existing"}
    | OF_MUCH,
    "deblur": set(),
    "upscale": set(),
    "inpaint": {"recursive"},
    "explain": {"certificate", "error-bars", "parameters", "quality", "recursive", "save-degraded", "skip-existing"}
    | {"batch", "symmetries"}
    | OF_PICTURES
    | OF_MUCH,
    "mri": {"batch", "channelwise", "data-range", "quality", "recursive"} | OF_PICTURES | OF_MUCH,
    "ct": {"batch", "channelwise", "data-range", "quality", "recursive"} | OF_PICTURES | OF_MUCH,
}


@pytest.mark.parametrize("command", MISSING)
def test_each_command_has_those_that_mean_something_to_it(command):
    parameters = get_command(app).commands[command].params
    options = [name.removeprefix("--") for parameter in parameters for name in parameter.opts]
    assert ALL - set(options) == MISSING[command]
    assert len(options) == len(set(options))
    assert "settings" not in options


def test_one_that_a_command_does_not_have_is_a_usage_error(deal):
    code, _, err = deal("denoise", "in.png", "out.png", "--model-sigma", "1")
    assert code == 2
    assert "--model-sigma" in err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": -1.0}, "--sigma must be finite and at least 0, got -1"),
        ({"model_sigma": float("inf")}, "--model-sigma must be finite"),
        ({"lam": 0.0}, "--lam must be finite and above 0"),
        ({"save_degraded": "x.png"}, "use it with --simulate"),
    ],
)
def test_what_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)
