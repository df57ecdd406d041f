"""Pruning: what is left computes what the larger model did with the same channels."""

import prune
import pytest
import torch
from conftest import relative, small_model
from PIL import Image
from skimage import data

import torchdeal as td
from torchdeal.model.filters import impulse_responses
from torchdeal.operators import Identity
from torchdeal.training.batches import Batch

USED = torch.tensor([1, 2, 4, 7])  # channels of a model of eight


@pytest.fixture(scope="module")
def batch():
    clean = torch.from_numpy(data.astronaut()[60:92, 200:232] / 255).float().permute(2, 0, 1)[None].repeat(2, 1, 1, 1)
    sigma = torch.tensor([10.0, 30.0])
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    return Batch(clean, Identity(), clean + sigma.view(-1, 1, 1, 1) / 255 * noise, sigma)


@pytest.fixture(scope="module")
def large():
    return small_model(channels=3, features=8, dtype=torch.float32).requires_grad_(False)


@pytest.fixture
def half_empty():
    """A model of eight channels of which four are nothing, and the model of the other four."""
    model = small_model(channels=3, features=4, dtype=torch.float32).requires_grad_(False)
    state = model.state_dict()
    wide = td.DEAL(3, features=8).requires_grad_(False)
    wide_state = {name: value.clone() for name, value in state.items()}
    for name in ("filters.2", "mask_filters.2", "mix.0", "mix.1", "scaling"):
        wide_state[name] = torch.zeros_like(wide.state_dict()[name])
    for name in ("filters.2", "mask_filters.2", "scaling"):
        wide_state[name][USED] = state[name]
    for name in ("mix.0", "mix.1"):
        wide_state[name][USED[:, None], USED] = state[name]
    wide.load_state_dict(wide_state)
    return wide, model


def test_channels_that_do_nothing_are_left_out(half_empty, batch):
    wide, expected = half_empty
    small, kept = prune.prune(wide, batch, 4)
    assert kept.filters.tolist() == kept.first.tolist() == kept.second.tolist() == USED.tolist()
    assert kept.share == pytest.approx(1)
    for name, value in expected.state_dict().items():
        assert torch.allclose(small.state_dict()[name], value, rtol=1e-4, atol=1e-5), name


def test_the_filters_that_stay_have_the_largest_part_of_the_penalty(large, batch):
    small, kept = prune.prune(large, batch, 3)
    weights, x = large.weights(), prune.fixed_points(large, batch)
    mask = weights.mask(x, weights.alpha(batch.sigma)).double()
    energy = impulse_responses(weights.filters).double().flatten(1).norm(dim=1) ** 2
    penalty = {channel: float(energy[channel] * (mask[:, channel] ** 2).mean()) for channel in range(8)}
    assert kept.filters.tolist() == sorted(sorted(penalty, key=penalty.__getitem__)[-3:])
    assert kept.share == pytest.approx(sum(penalty[int(c)] for c in kept.filters) / sum(penalty.values()), rel=1e-4)
    assert small.features == 3


def test_the_strength_of_the_penalty_stays(large, batch):
    small, kept = prune.prune(large, batch, 3)
    squared = torch.rand(2, 8, 32, 32, generator=torch.Generator().manual_seed(1))
    only = torch.zeros(8).index_fill(0, kept.filters, 1).view(1, -1, 1, 1)
    before = large.weights().lam(batch.sigma) * large.weights().penalty(batch.clean, squared * only)
    after = small.weights().lam(batch.sigma) * small.weights().penalty(batch.clean, squared[:, kept.filters])
    assert relative(after, before) < 1e-5


def test_kernels_are_the_best_for_what_they_can_still_read():
    activations = torch.rand(2, 5, 20, 20, generator=torch.Generator().manual_seed(0))
    activations[:, 4] = activations[:, 1] - 0.5 * activations[:, 2]  # left out, but the others say it
    kernel = torch.randn(3, 5, 3, 3, generator=torch.Generator().manual_seed(1))
    kept = torch.tensor([0, 1, 2, 3])
    small = prune.refitted(kernel, activations, kept)
    conv2d = torch.nn.functional.conv2d
    assert relative(conv2d(activations[:, kept], small), conv2d(activations, kernel)) < 1e-2
    assert relative(conv2d(activations[:, kept], kernel[:, kept]), conv2d(activations, kernel)) > 0.1


def test_the_layers_end_in_the_masks_of_the_model(large, batch):
    weights = large.weights()
    layers = prune.layers_of(weights, batch.clean, batch.sigma)
    assert torch.equal(layers.mask, weights.mask(batch.clean, weights.alpha(batch.sigma)))


@pytest.fixture
def folder(tmp_path):
    Image.fromarray(data.astronaut()[60:110, 200:250]).save(tmp_path / "a.png")
    return tmp_path


def command(folder, large, *more):
    td.save(large, folder / "large.safetensors")
    output = folder / "small.safetensors"
    given = [folder / "large.safetensors", folder / "a.png", "--output", output, "--patches", 2, "--patch", 32, *more]
    prune.main([str(word) for word in given])
    return output


def test_the_command_writes_weights_that_can_be_used(folder, large, capsys):
    small = td.load(command(folder, large, "--features", 5))
    assert (small.channels, small.features) == (3, 5)
    assert td.denoise(data.astronaut()[60:92, 200:232], sigma=15.0, model=small).shape == (32, 32, 3)
    assert capsys.readouterr().out.startswith("5 of 8 filters have ")


def test_a_file_that_exists_stays(folder, large):
    (folder / "small.safetensors").write_text("mine")
    with pytest.raises(SystemExit, match=r"must name a \.safetensors file that does not exist yet"):
        command(folder, large, "--features", 5)
    assert (folder / "small.safetensors").read_text() == "mine"


@pytest.mark.parametrize("features", [0, 8])
def test_features_must_be_fewer(folder, large, features):
    with pytest.raises(SystemExit, match=f"features must be from 1 to 7, fewer than the model has, got {features}"):
        command(folder, large, "--features", features)
