"""The command that times masks and penalties."""

from parts import TOOL


def test_one_row_per_backend_and_size(command):
    content, out, code = command(TOOL, "--size", 16, 20, "--repeats", 1)
    assert code == 0
    expected = [(f"gray 1 x {size} x {size}", name) for size in (16, 20) for name in ("direct", "fft")]
    assert [(row["image"], row["backend"]) for row in content["results"]] == expected
    assert all(row["mask_ms"] > 0 and row["penalty_ms"] > 0 for row in content["results"])
    assert all(f"| {image} | {name} |" in " ".join(out.split()) for image, name in expected)


def test_rough_parts_where_they_differ(command):
    content, *_ = command(TOOL, "--size", 16, 15, "--repeats", 1, "--backend", "packed")
    assert [row["rough_penalty_ms"] > 0 for row in content["results"]] == [True, True]
