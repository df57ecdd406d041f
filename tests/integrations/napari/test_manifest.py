"""What napari is told about the plugin."""

import importlib
import inspect

import pytest
from documents import ROOT
from npe2 import PluginManifest

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ENTRY = "torchdeal.integrations.napari:napari.yaml"


@pytest.fixture(scope="module")
def manifest():
    module, _, name = ENTRY.partition(":")
    return PluginManifest.from_file(ROOT.joinpath(*module.split("."), name))


def test_the_package_announces_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["napari.manifest"] == {project["name"]: ENTRY}


def test_it_is_sound(manifest):
    assert manifest.name == "torchdeal"
    commands = {command.id for command in manifest.contributions.commands}
    used = [*manifest.contributions.widgets, *manifest.contributions.sample_data]
    assert {one.command for one in used} == commands


def test_each_name_exists(manifest):
    for command in manifest.contributions.commands:
        module, _, name = command.python_name.partition(":")
        source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
        assert f"def {name}(" in source or f"class {name}(" in source
    samples = importlib.import_module("torchdeal.integrations.napari.samples")
    for sample in manifest.contributions.sample_data:
        assert not inspect.signature(getattr(samples, sample.command.rpartition(".")[2])).parameters
