"""The examples of docs/deepinverse.md run."""

from documents import ELSEWHERE, examples, run_examples


def test_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(examples(ELSEWHERE)) == 2
    names = run_examples(ELSEWHERE)
    before, after = ((names[image] - names["x"]).norm() for image in ("y", "sharp"))
    assert after < 0.8 * before
