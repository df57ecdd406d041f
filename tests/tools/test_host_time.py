"""The command that times what the solver does beside the system."""

import pytest
from host_time import TOOL


def test_the_parts_add_up(command):
    content, out, code = command(TOOL, "--samples", 1, 3, "--runs", 2)
    assert code == 0
    assert [row["samples"] for row in content["results"]] == [1, 3]
    for row in content["results"]:
        assert row["iterations"] > 20
        assert row["bookkeeping"] > 0
        assert row["of_them_system"] > 0
        assert row["microseconds"] == pytest.approx(row["bookkeeping"] + row["of_them_system"])
    assert "bookkeeping" in out
