import copy

import pytest
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.model import Boundary
from torchdeal.model.deal import LAM_FLOOR


@pytest.mark.parametrize(("channels", "count"), [(1, 468_570), (3, 847_002)])
def test_parameter_count(channels, count):
    assert sum(p.numel() for p in td.DEAL(channels).parameters()) == count


@pytest.mark.parametrize("name", ["gray", "color"])
def test_bundled_weights_are_full_size(name):
    count = sum(p.numel() for p in td.load(name).parameters())
    assert count == {"gray": 468_570, "color": 847_002}[name]


def test_constraints_hold_whatever_the_parameters():
    model = small_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
        weights = model.weights()
        lam = weights.lam(torch.linspace(0, 50, 99, dtype=torch.float64))
    assert float(weights.phi[0].diff().min()) >= -1e-12
    assert float(weights.phi[1].diff().min()) >= -1e-12
    assert float(weights.phi[2].diff().max()) <= 1e-12
    assert float(lam.min()) >= LAM_FLOOR
    for bank in (weights.filters, weights.mask_filters):
        assert float(bank[0].mean((1, 2, 3)).abs().max()) < 1e-12


@pytest.mark.parametrize("boundary", list(Boundary))
def test_masks_lie_between_floor_and_one(boundary):
    model = small_model(boundary=boundary)
    with torch.no_grad():
        weights = model.weights()
        x = torch.rand(2, 1, 20, 17, dtype=torch.float64)
        masks = weights.mask(x, weights.alpha(torch.tensor([0.0, 40.0], dtype=torch.float64)))
    assert masks.shape == (2, 6, 20, 17)
    assert float(masks.min()) >= 0.01
    assert float(masks.max()) <= 1
    assert float(masks[1].std()) > 1e-3


def test_each_sample_has_its_own_sigma():
    model = small_model()
    with torch.no_grad():
        weights = model.weights()
        x = torch.rand(3, 1, 16, 16, dtype=torch.float64)
        sigma = torch.tensor([2.0, 15.0, 40.0], dtype=torch.float64)
        together = weights.mask(x, weights.alpha(sigma))
        for i in range(3):
            alone = weights.mask(x[i : i + 1], weights.alpha(sigma[i : i + 1]))
            torch.testing.assert_close(together[i : i + 1], alone)


def test_weights_are_cached_without_gradient_and_never_stale():
    model = small_model()
    with torch.no_grad():
        first = model.weights()
        assert model.weights() is first
        model.filters[1].mul_(2)
        model.phi1.add_(1)
        second = model.weights()
    assert second is not first
    assert float((second.phi[0] - first.phi[0]).abs().min()) > 0.5
    model.load_state_dict(copy.deepcopy(small_model(seed=1)).state_dict())
    with torch.no_grad():
        assert not torch.equal(model.weights().filters[0], second.filters[0])
    assert model.weights().filters[0].requires_grad  # with gradient: recomputed


def test_writing_to_data_is_noticed():
    model, other = small_model(), small_model(seed=1)
    with torch.no_grad():
        model.weights()
        for parameter, value in zip(model.parameters(), other.parameters(), strict=True):
            parameter.data.copy_(value)  # past the version counter, as averaging code does
        assert torch.equal(model.weights().filters[0], other.weights().filters[0])


def test_cache_filled_in_inference_mode_can_be_used_for_gradients():
    model = small_model().requires_grad_(False)
    with torch.inference_mode():
        model.weights()
    with torch.no_grad():
        weights = model.weights()
    x = torch.rand(1, 1, 16, 16, dtype=torch.float64, requires_grad=True)
    weights.mask(x, weights.alpha(torch.tensor([9.0], dtype=torch.float64))).sum().backward()
    assert float(x.grad.abs().max()) > 0


def test_weights_of_a_model_made_in_inference_mode():
    with torch.inference_mode():
        model = small_model()
        assert torch.equal(model.weights().filters[0], model.weights().filters[0])


def test_bad_configuration():
    with pytest.raises(ValueError, match="positive"):
        td.DEAL(channels=0)
    with pytest.raises(ValueError, match="mirror"):
        td.DEAL(boundary="mirror")
