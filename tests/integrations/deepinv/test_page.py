"""The examples with DeepInverse in the pages run."""

import pytest
from documents import PAGES, ROOT, examples, name, run_examples

WITH_DEEPINV = [page for page in PAGES if examples(page, deepinv=True)]


@pytest.mark.parametrize(("page", "found"), [("deepinverse.md", "sharp"), ("coming_from.md", "theirs")])
def test_examples(page, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_examples(ROOT / "docs" / page, deepinv=True)
    before, after = ((image - names["x"]).norm() for image in (names["y"], names["rec"].x))
    assert after < 0.8 * before
    assert names[found].shape == names["x"].shape


def test_no_page_is_forgotten():
    assert [name(page) for page in WITH_DEEPINV] == ["docs/coming_from.md", "docs/deepinverse.md"]
