"""No output is an input, by whatever name."""

from pathlib import Path

import pytest

from torchdeal.io.overwriting import refuse_overwriting


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.png").write_text("mine")
    Path("folder").mkdir()
    Path("folder/link.png").symlink_to(tmp_path / "in.png")
    Path("hard.png").hardlink_to("in.png")
    Path("elsewhere").symlink_to("folder")


@pytest.mark.parametrize("name", ["in.png", "folder/../in.png", "folder/link.png", "elsewhere/link.png", "hard.png"])
def test_an_input_is_an_input_by_every_name(name):
    for inputs, output in (([Path("in.png")], name), ([Path(name)], "in.png")):
        with pytest.raises(ValueError, match="would overwrite the input"):
            refuse_overwriting([Path("new.png"), Path(output)], inputs)


def test_two_outputs_are_two_files_also_before_they_exist():
    for one, other in (
        ("new.png", "folder/../new.png"),
        ("elsewhere/new.png", "folder/new.png"),
        ("in.png", "hard.png"),
    ):
        with pytest.raises(ValueError, match=f"{other}: would be written twice .{one} is the same file"):
            refuse_overwriting([Path(one), Path(other)], [])


def test_links_in_a_circle_are_no_file():
    Path("circle.png").symlink_to("circle.png")
    refuse_overwriting([Path("circle.png")], [Path("in.png")])


def test_names_that_differ_in_case_are_one_file_where_case_is_ignored():
    """Here a link makes one folder answer to both names, as such a file system does."""
    Path("Folder").mkdir()
    outputs = [Path("Folder/a.png"), Path("Folder/A.png")]
    refuse_overwriting(outputs, [])
    Path("fOLDER").symlink_to("Folder")
    with pytest.raises(ValueError, match=r"A\.png: would be written twice"):
        refuse_overwriting(outputs, [])


def test_others_may_be_replaced():
    Path("old.png").write_text("old")
    refuse_overwriting([Path("old.png"), Path("new.png")], [Path("in.png"), Path("gaussian:1.6"), Path("missing.png")])
