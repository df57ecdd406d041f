"""The benchmark of training: its gradients, its reports, its errors."""

import pytest
import torch
import training_speed
from conftest import small_model
from PIL import Image
from skimage import data

from torchdeal.training import read_images
from torchdeal.training.batches import draw
from torchdeal.training.config import TaskConfig


@pytest.fixture
def folder(tmp_path):
    Image.fromarray(data.camera()[100:180, 150:230]).save(tmp_path / "a.png")
    return tmp_path


def test_the_engines_have_the_same_gradient_in_full_precision(folder):
    model = small_model(features=5, dtype=torch.float32).requires_grad_(True)
    images = read_images([folder], channels=1, patch=24)
    found = training_speed.cosines(model, draw(images, TaskConfig(), 2, seed=1))
    assert set(found) == {name for name, _ in model.named_parameters()} | {"all"}
    assert min(found.values()) > 0.99
    assert found["all"] > 0.999


def test_a_gradient_in_the_other_direction_is_seen():
    a = torch.tensor([1.0, 2.0, 3.0])
    assert training_speed.cosine(a, -a) == pytest.approx(-1)


def test_the_command_prints_cosines_and_reports(folder, capsys):
    training_speed.TOOL.main([str(folder), "--patch", "24", "--batch", "1", "--steps", "2", "--report-every", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("gradient of all: cosine 1.0") or "cosine 0.99" in line for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("step")] == ["1/20000", "2/20000"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["."], "no usable image"),
        ([".", "--patch", "3"], "patch"),
        ([], "required: folders"),
    ],
)
def test_errors(command, arguments, message):
    _, _, error = command(training_speed.TOOL, *arguments)
    assert message in error
