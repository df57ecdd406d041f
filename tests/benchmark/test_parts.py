"""The command that times masks and penalties."""

from torchdeal.benchmark import parts


def test_one_line_per_backend_and_size(capsys):
    parts.main(["--size", "16", "20", "--repeats", "1", "--threads", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"gray 1 x {size} x {size}, {name}" for size in (16, 20) for name in ("direct", "fft")
    ]
    assert all("mask" in line and "penalty" in line for line in lines)


def test_rough_parts_where_they_differ(capsys):
    parts.main(["--size", "16", "--repeats", "1", "--backend", "packed"])
    assert "penalty, rough" in capsys.readouterr().out
