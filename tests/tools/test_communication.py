"""What processes tell each other: counted by torch itself, and the arithmetic of a ring."""

import communication
import pytest
import torch
import torch.distributed as dist

import torchdeal as td

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo")


def test_all_gradients_are_sent_once(command):
    content, printed, code = command(communication.TOOL, "--kinds", "gray-light", "--repeats", "2")
    (found,) = content["results"]
    assert code == 0
    assert found["bytes"] == 4 * sum(parameter.numel() for parameter in td.load("gray-light").parameters())
    assert found["gloo_seconds"] > 0
    assert found["step_seconds"] is None
    assert "NVLink 4" in printed


def test_a_ring_by_hand():
    """Four processes: each sends three of its four parts to be added, and three as sums."""
    parts, sent = torch.arange(16.0).view(4, 4).tolist(), [0] * 4
    for turn in range(6):
        moving = [parts[who][(who - turn) % 4] for who in range(4)]
        for who in range(4):
            sent[who] += 1
            place = (who - turn) % 4
            added = parts[(who + 1) % 4][place] if turn < 3 else 0.0
            parts[(who + 1) % 4][place] = added + moving[who]
    assert parts == 4 * [torch.arange(16.0).view(4, 4).sum(0).tolist()]
    size, bandwidth = 4 * 10, 5.0
    assert communication.expect(size, bandwidth, None, 4).reduce_seconds == sent[0] * (size / 4) / bandwidth


def test_efficiency():
    found = communication.expect(1000, 1000.0, 1.75, 8)
    assert (found.reduce_seconds, found.efficiency) == (1.75, 0.5)


@pytest.mark.parametrize("option", ["--step", "--link"])
def test_what_has_no_name_is_refused(command, option):
    assert "give NAME=NUMBER" in command(communication.TOOL, option, "3")[2]
