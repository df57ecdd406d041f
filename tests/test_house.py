"""What keeps the code base one that can be read: its limits, as a test."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import torchdeal

PACKAGE = Path(torchdeal.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
KNOWS_NOTHING_OF = {  # the main path joins these; they do not know each other
    "solvers": ("model", "operators", "backends", "training", "benchmark", "cli", "mri"),
    "operators": ("model", "solvers", "backends", "training", "benchmark", "cli"),
    "model": ("solvers", "operators", "training", "benchmark", "cli", "mri"),
    "backends": ("solvers", "operators", "training", "benchmark", "cli", "mri"),
    "reconstruct.py": ("training", "benchmark", "cli", "mri", "integrations"),
    "training": ("benchmark", "cli"),
    "benchmark": ("cli",),
}


def code_lines(function: ast.FunctionDef) -> int:
    """From `def` to the end, without the docstring."""
    docstring = function.body[0] if ast.get_docstring(function) else None
    described = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
    return function.end_lineno - function.lineno + 1 - described


@pytest.fixture(scope="module")
def trees():
    return {path: ast.parse(path.read_text()) for path in MODULES}


def test_no_file_is_long():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_long(trees):
    functions = [
        (str(path.relative_to(PACKAGE)), node.name, code_lines(node))
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    assert [found for found in functions if found[2] > LONGEST_FUNCTION] == []


def test_a_class_has_a_name_of_its_own(trees):
    names = Counter(node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef))
    names["DEAL"] -= 1  # the reconstructor of `torchdeal.deepinv` is called as its users expect
    assert [name for name, count in names.items() if count > 1] == []


def imported(tree: ast.Module) -> set[str]:
    """What of the package a module imports, at once or later."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torchdeal"):
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if alias.name.startswith("torchdeal")}
    return modules


@pytest.mark.parametrize("part", KNOWS_NOTHING_OF)
def test_parts_do_not_know_each_other(part, trees):
    rooms = tuple(f"torchdeal.{room}" for room in KNOWS_NOTHING_OF[part])
    wrong = {
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path, tree in trees.items()
        if path.relative_to(PACKAGE).parts[0] == part
        for module in imported(tree)
        if any(module == room or module.startswith(f"{room}.") for room in rooms)
    }
    assert wrong == set()
