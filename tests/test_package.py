"""What would be published: the source archive and the wheel, their contents and their metadata."""

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from documents import ROOT
from readme_renderer import markdown

import torchdeal as td

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MADE = {"__pycache__", ".ipynb_checkpoints", "_build", "build"}
WEIGHTS = ("gray", "color", "gray-light", "color-light")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Built as `python -m build` does, but with what is installed here, so that no network is needed."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def in_wheel(archives):
    with zipfile.ZipFile(archives[1]) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


@pytest.fixture(scope="module")
def in_source(archives):
    with tarfile.open(archives[0]) as source:
        return {member.name.partition("/")[2] for member in source.getmembers() if member.isfile()}


@pytest.fixture(scope="module")
def metadata(in_wheel) -> Message:
    return message_from_bytes(in_wheel[f"torchdeal-{td.__version__}.dist-info/METADATA"])


def files_of(folder):
    """In the repository, relative to it, without what was made from others."""
    found = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file())
    made = Path("docs", "examples")  # by make docs
    kept = (path for path in found if not MADE.intersection(path.parts) and made not in path.parents)
    return {str(path) for path in kept if path.suffix != ".csv"}


def test_the_wheel_holds_the_package_and_nothing_else(in_wheel):
    about = f"torchdeal-{td.__version__}.dist-info"
    names = {f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert set(in_wheel) == files_of("torchdeal") | {"torchdeal_command.py"} | names


def test_the_wheel_has_types_weights_and_the_page(in_wheel):
    assert "torchdeal/py.typed" in in_wheel
    for name in WEIGHTS:
        assert len(in_wheel[f"torchdeal/weights/{name}.safetensors"]) > 100_000
    assert any(name.startswith("torchdeal/app/page/") and name.endswith(".html") for name in in_wheel)


def test_the_licence_is_that_of_the_weights(in_wheel, metadata):
    assert metadata["License-Expression"] == "MIT"
    for name in WEIGHTS:
        assert json.loads(in_wheel[f"torchdeal/weights/{name}.json"])["licence"] == "MIT"
    assert "for the code and for the bundled weights" in metadata.get_payload()


def test_the_source_archive_has_what_the_tests_need(in_source):
    for folder in ("torchdeal", "tests", "tools", "configs", "docs", "examples", "results", ".ci"):
        assert files_of(folder) - in_source == set(), folder
    pages = {path.name for path in ROOT.glob("*.md")}
    assert in_source >= pages | {"pyproject.toml", "Makefile", "LICENSE", "CITATION.cff", "constraints.txt"}
    assert in_source >= {"Containerfile", "environment.yml", "torchdeal_command.py", "constraints-deepinv.txt"}


def test_twine_finds_nothing_to_complain_of(archives):
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_description_has_no_link_that_leads_nowhere(metadata):
    """The same text as README.md, but a page of a package index is not in the repository."""
    text = metadata.get_payload()
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
    assert "![" not in text
    assert text.startswith("# torchdeal\n")
    assert "docs/method.md: the equations" in text
    assert len(text) > 0.8 * len((ROOT / "README.md").read_text())


def test_the_description_renders(metadata):
    """As the page of a package index does it. twine only warns where it cannot tell."""
    page = markdown.render(metadata.get_payload())
    assert page is not None
    assert page.count("<table>") == 2
    assert "<h2" in page
    assert "<!--" not in page


def test_classifiers(metadata):
    classifiers = metadata.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    pythons = [name.rpartition(" ")[2] for name in classifiers if re.search(r"Python :: 3\.\d+$", name)]
    assert f">={pythons[0]}" == metadata["Requires-Python"]


def least_versions(requirements):
    return dict(
        re.match(r"([\w-]+)>=([\w.]+)", line).groups() for line in requirements if not line.startswith("torchdeal")
    )


def test_the_environment_of_conda_asks_for_the_same_versions():
    lines = re.findall(r"^  - ([\w-]+>=[\w.]+)$", (ROOT / "environment.yml").read_text(), re.MULTILINE)
    extras = PROJECT["optional-dependencies"]
    wanted = least_versions(PROJECT["dependencies"] + extras["app"] + extras["demo"] + extras["plot"])
    wanted.pop("tomli")  # for Python 3.10; pip adds it
    wanted["pytorch"] = wanted.pop("torch")  # as conda calls it
    assert least_versions(lines) == wanted | {"python": PROJECT["requires-python"].removeprefix(">=")}


def test_the_container_copies_what_there_is_and_starts_with_options_that_exist(deal):
    text = (ROOT / "Containerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()]
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / name).exists() for name in copied)
    program, command, *options = json.loads(re.search(r"^CMD (.*)$", text, re.MULTILINE).group(1))
    code, out, _ = deal(command, "--help")
    assert (program, code) == ("deal", 0)
    assert all(option in out for option in options if option.startswith("--"))
    assert "USER " in text
