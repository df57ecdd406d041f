"""The pages are true: their Python runs, their links lead somewhere, their commands and files exist."""

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import noisy, picture, relative
from documents import BOOK, GALLERY, NOTES, PAGES, ROOT, examples, name, run_examples, shell_lines
from PIL import Image

import torchdeal as td
from torchdeal.operators import Blur, MultiCoilFourier

EVERY = [*PAGES, *NOTES, *BOOK]
COMMANDS = (
    "app",
    "benchmark",
    "ct",
    "deblur",
    "denoise",
    "explain",
    "info",
    "inpaint",
    "mri",
    "serve",
    "train",
    "tune",
    "upscale",
    "watch",
)
WITH_EXAMPLES = [page for page in PAGES if examples(page)]


def pages(which):
    return pytest.mark.parametrize("page", which, ids=name)


def write_picture(path, image):
    Image.fromarray((image[0, 0].clamp(0, 1) * 255).round().byte().numpy()).save(path)


def write_scan(path, size=48, coils=4):
    """A small fastMRI file, with the scale that such files have."""
    import h5py
    import sigpy.mri

    maps = torch.from_numpy(sigpy.mri.birdcage_maps((coils, size, size))).to(torch.complex64)
    columns = torch.arange(size) % 2 == 0
    columns[size // 2 - 8 : size // 2 + 8] = True
    kspace = MultiCoilFourier(maps, columns.expand(size, size), centered=True).forward(scanned(size))
    noise = 0.005 * torch.randn(kspace.shape, dtype=kspace.dtype, generator=torch.Generator().manual_seed(0))
    with h5py.File(path, "w") as file:
        file["kspace"] = 1e-4 * (kspace + noise * columns).numpy()
        file["mask"] = columns.numpy()


def scanned(size=48):
    window = torch.hann_window(size, periodic=False)
    return picture(size=size) * torch.outer(window, window)


def prepare(folder: Path):
    """The files that the pages read and do not write themselves."""
    clean = picture(size=48)
    write_picture(folder / "noisy.png", noisy(clean, 25))
    write_picture(folder / "blurred.png", noisy(Blur(torch.ones(5, 5) / 25).forward(clean), 2.55))
    write_scan(folder / "scan.h5")
    (folder / "run").mkdir()
    td.save(td.load("gray"), folder / "run" / "best.safetensors")


def check_readme(names):
    clean = picture(size=48)[0, 0].numpy()
    for before, after in (("noisy", "clean"), ("blurred", "sharp")):
        assert names[after].dtype == np.uint8
        errors = [np.abs(names[image] / 255 - clean).mean() for image in (before, after)]
        assert errors[1] < 0.7 * errors[0]
    assert Path("clean.png").stat().st_size > 0


def check_start(names):
    clean = names["clean"].astype(float)
    assert np.abs(names["denoised"] - clean).mean() < 0.5 * np.abs(names["noisy"] - clean).mean()
    assert relative(names["rec"].x, names["x"]) < 0.7 * relative(names["y"], names["x"])


def check_coming_from(names):
    """Least squares of SigPy leave what was not measured; a learned prior does better."""
    theirs, ours, image = (torch.from_numpy(abs(names[name])) for name in ("theirs", "ours", "image"))
    assert ours.shape == image.shape
    assert relative(ours, image) < 0.7 * relative(theirs, image)


def check_operators(names):
    assert td.operators.adjoint_gap(names["H"]) < 1e-5
    enlarged = torch.nn.functional.interpolate(names["y"], scale_factor=2, mode="bicubic")
    assert relative(names["rec"].x, names["x"]) < 0.9 * relative(enlarged, names["x"])


def check_mri(names):
    image = 1e-4 * scanned()
    assert relative(torch.from_numpy(np.asarray(Image.open("image.png")) / 65535), image[0, 0] / image.max()) < 0.1


CHECKS = {
    "README.md": check_readme,
    "docs/start.md": check_start,
    "docs/coming_from.md": check_coming_from,
    "docs/operators.md": check_operators,
    "docs/mri.md": check_mri,
}


def test_the_pages_have_examples():
    assert {name(page) for page in WITH_EXAMPLES} >= {*CHECKS, "docs/method.md", "docs/commands.md", "docs/training.md"}


@pages(WITH_EXAMPLES)
def test_examples(page, tmp_path, monkeypatch):
    for library in re.findall(r"^import (bm3d|sigpy)", "\n".join(examples(page)), re.MULTILINE):
        pytest.importorskip(library)
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    CHECKS.get(name(page), lambda names: None)(run_examples(page))


@pages(EVERY)
def test_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?://", target):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name(page)} links to {target}"
        if heading:
            assert heading in headings(file), f"{name(page)} links to {target}"


def headings(page):
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in lines}


def test_every_page_is_linked_from_the_readme_and_every_note_from_the_index():
    for start, linked in ((ROOT / "README.md", PAGES), (ROOT / "docs" / "notes" / "README.md", NOTES)):
        text = start.read_text()
        for page in linked:
            assert page == start or f"({page.relative_to(start.parent)})" in text, name(page)


@pytest.fixture
def options_of(deal):
    """The options of a command, as its help tells them."""
    pytest.importorskip("typer")

    @cache
    def options(*command):
        code, out, _ = deal(*command, "--help")
        assert code == 0, f"there is no command deal {' '.join(command)}"
        return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", out))

    return options


def commands(page):
    """`deal ...` in the page: the command, and the options that are given to it."""
    for line in shell_lines(page):
        words = line.split()
        if words[:1] == ["deal"] and len(words) > 1 and re.fullmatch("[a-z]+", words[1]):
            nested = words[1] == "benchmark" and len(words) > 2 and re.fullmatch("[a-z]+", words[2])
            yield line, words[1 : 3 if nested else 2], [word.split("=")[0] for word in words if word.startswith("--")]


@pages([page for page in PAGES if list(commands(page))])
def test_commands_and_their_options_exist(page, options_of):
    for line, command, options in commands(page):
        missing = set(options) - options_of(*command)
        assert not missing, f"{name(page)}: {line}"


@pages(PAGES)
def test_modules_and_files_that_are_named_exist(page):
    """`torchdeal.mri` can be imported; `solvers/cg.py` is in the package, `configs/gray.toml` in the repository."""
    words = set(re.findall(r"`([\w./]+)`", page.read_text()))
    for word in words:
        if re.fullmatch(r"torchdeal(\.[a-z_]+)+", word):
            assert any(module(word).with_suffix(end).exists() for end in ("", ".py")), f"{name(page)}: {word}"
        if re.fullmatch(r"[\w/]+/[\w]*\.(py|toml)|\w+\.py", word):
            assert (ROOT / word).exists() or (ROOT / "torchdeal" / word).exists(), f"{name(page)}: {word}"


def module(word):
    return ROOT.joinpath(*word.split("."))


def test_the_architecture_names_every_module():
    """In the row of its room; the modules of commands and Triton kernels are named together."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = dict(re.findall(r"^\| `([\w./]+)` \| (.*) \|$", text, re.MULTILINE))
    together = {"__init__", "__main__", *COMMANDS}
    for path in sorted((ROOT / "torchdeal").rglob("*.py")):
        *rooms, name_of_file = path.relative_to(ROOT / "torchdeal").parts
        if not rooms:
            assert name_of_file in rows, path
        elif path.stem not in together and not path.stem.startswith("triton_"):
            inside, outside = "/".join(rooms) + "/", f"{rooms[0]}/"
            assert f"`{path.stem}`" in rows.get(inside, rows[outside]), path


def test_no_page_claims_that_an_answer_is_certified():
    """There are certificates, but what they report are estimates."""
    for page in PAGES:
        assert not re.search(r"certif(?!icate)", page.read_text().lower()), name(page)
    (section,) = re.findall(
        r"^## Certificates\n(.*?)^## ", (ROOT / "docs" / "trust.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert "Estimates, no proof" in section


def test_the_book_describes_every_public_name():
    text = (ROOT / "docs" / "book" / "api.md").read_text()
    described = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", text, re.MULTILINE))
    operators = {f"torchdeal.operators.{name}" for name in td.operators.__all__ if name != "as_operator"}
    public = {f"torchdeal.{name}" for name in td.__all__} | operators  # torchdeal.as_operator is the same
    assert public - described == set()


def test_the_book_has_every_page_and_example():
    index = (ROOT / "docs" / "index.md").read_text()
    entries = set(re.findall(r"^[\w/*]+$", index, re.MULTILINE))
    pages_of_docs = {page.stem for page in PAGES if page.parent.name == "docs"} - {"index"}
    assert pages_of_docs | {f"book/{page.stem}" for page in BOOK} <= entries
    (order,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "docs" / "book" / "gallery.py").read_text()).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "ORDER"
    )
    assert sorted(order) == [script.stem for script in GALLERY]
