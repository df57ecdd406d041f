"""The table says what the machine allows and what Dask costs, of runs that give the same bits."""

import pytest

pytest.importorskip("distributed", reason="needs pip install 'torchdeal[dask]'")

import cluster_speed


def test_with_and_without_dask(command):
    content, _, code = command(cluster_speed.TOOL, "--size", "48", "--tile", "24", "--sigma", "5")
    alone, plain, dask = content["results"]
    assert code == 0
    assert [row["processes"] for row in (alone, plain, dask)] == ["1, without Dask", "2, without Dask", "2"]
    for row in (plain, dask):
        assert (row["same_bits"], row["tiles"]) == ("yes", 4)
        assert row["times_faster"] == pytest.approx(alone["seconds"] / row["seconds"])
        # Seconds of the busiest process are at least half of those of both.
        assert 0 < row["by_processor"] <= 2.001 * alone["tile_processor_seconds"] / row["tile_processor_seconds"]
