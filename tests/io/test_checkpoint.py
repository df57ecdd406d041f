import os
import pickle

import pytest
import torch
from conftest import DATA, small_model
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import torchdeal as td
from torchdeal.io.checkpoint import BUNDLED, bundled_path, card, write_tensors
from torchdeal.model import Boundary
from torchdeal.model.filters import squared_norm, zero_mean


def official_state(model: td.DEAL) -> dict[str, torch.Tensor]:
    """The state dict that the paper's public code would write for these weights."""
    ours = model.state_dict()
    state = {}
    for name, theirs in (("filters", "W1"), ("mask_filters", "M1")):
        state[f"{theirs}.conv_layers.0.parametrizations.weight.original"] = ours[f"{name}.0"]
        state[f"{theirs}.conv_layers.1.weight"] = ours[f"{name}.1"]
        state[f"{theirs}.conv_layers.2.weight"] = ours[f"{name}.2"]
    state["M2.weight"], state["M3.weight"] = ours["mix.0"], ours["mix.1"]
    for i in (1, 2, 3):
        state[f"spline{i}.coefficients"] = ours[f"phi{i}"][None]
        state[f"spline{i}.D2_filter"] = torch.tensor([[[10.0, -20.0, 10.0]]])
    state["spline_lambda.coefficients"] = ours["kappa"][None]
    state["spline_scaling.coefficients"] = ours["scaling"]
    return state


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled(name):
    model = td.load(name)
    assert model.channels == (3 if "color" in name else 1)
    assert model.features == {"gray-light": 48, "color-light": 64}.get(name, 128)
    assert model.boundary is Boundary.REFLECT
    assert not any(p.requires_grad for p in model.parameters())
    assert card(name)["parameters"] == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", BUNDLED)
def test_card_has_the_checksum_of_the_file(name):
    import hashlib

    assert hashlib.sha256(bundled_path(name).read_bytes()).hexdigest() == card(name)["sha256"]


def test_bundled_files_are_small():
    assert sum(bundled_path(name).stat().st_size for name in BUNDLED) < 8e6


@pytest.mark.parametrize("boundary", list(Boundary))
@pytest.mark.parametrize("channels", [1, 3])
def test_round_trip(tmp_path, boundary, channels):
    model = small_model(channels, boundary, features=5, dtype=torch.float32)
    td.save(model, tmp_path / "model.safetensors", {"origin": "a test"})
    loaded = td.load(tmp_path / "model.safetensors")
    assert (loaded.channels, loaded.boundary, loaded.features) == (channels, boundary, 5)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    assert os.listdir(tmp_path) == ["model.safetensors"]


@pytest.mark.skipif(not (DATA / "weights").is_dir(), reason="the prototype weights are not here")
@pytest.mark.parametrize(
    ("name", "channels", "boundary"),
    [("gray_zero", 1, "zero"), ("gray_reflect", 1, "reflect"), ("color_reflect", 3, "reflect")],
)
def test_prototypes(name, channels, boundary):
    model = td.load(DATA / "weights" / f"{name}.safetensors")
    assert (model.channels, model.boundary.value) == (channels, boundary)


@pytest.mark.parametrize("wrapped", [False, True])
def test_official_gray(tmp_path, wrapped):
    torch.manual_seed(0)
    original = td.DEAL(1, "zero")
    state = official_state(original)
    torch.save({"state_dict": state, "epoch": 3} if wrapped else state, tmp_path / "official.pth")
    model = td.load(tmp_path / "official.pth")
    assert (model.channels, model.boundary) == (1, Boundary.ZERO)
    for name, value in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_official_colour_keeps_the_effective_strength(tmp_path):
    """The public code divides W by the root of a number of its own; `lam W^T M^2 W` must come out the same."""
    torch.manual_seed(0)
    original = td.DEAL(3, "zero")
    torch.save(official_state(original), tmp_path / "official.pth")
    model = td.load(tmp_path / "official.pth")

    # the number, as described: response of W^T W to an impulse in green, maximum of each channel's spectrum, summed
    bank = [k.detach().double() for k in zero_mean(tuple(original.filters))]
    impulse = torch.zeros(1, 3, 49, 49, dtype=torch.float64)
    impulse[0, 1, 24, 24] = 1
    z = impulse
    for kernel in bank:
        z = torch.nn.functional.conv2d(z, kernel, padding=4)
    for kernel in reversed(bank):
        z = torch.nn.functional.conv_transpose2d(z, kernel, padding=4)
    theirs = torch.fft.fft2(z, (279, 279)).abs().amax((-2, -1)).sum()
    ours = squared_norm(bank)

    sigma = torch.tensor([25.0])
    with torch.no_grad():
        expected = original.weights().lam(sigma) * float(ours / theirs)
        torch.testing.assert_close(model.weights().lam(sigma), expected, rtol=1e-3, atol=0)
    assert float(theirs) > float(ours)


def test_official_spline_that_is_not_monotone_is_reported(tmp_path):
    state = official_state(td.DEAL(1, "zero"))
    state["spline3.coefficients"] = state["spline3.coefficients"].flip(1)
    torch.save(state, tmp_path / "official.pth")
    with pytest.warns(UserWarning, match="not monotone"):
        td.load(tmp_path / "official.pth")


class Bomb:
    def __reduce__(self):
        return os.system, ("echo executed > /tmp/torchdeal_bomb",)


def test_hostile_pickle_is_refused(tmp_path):
    marker = "/tmp/torchdeal_bomb"
    if os.path.exists(marker):
        os.remove(marker)
    torch.save({"W1.conv_layers.1.weight": Bomb()}, tmp_path / "hostile.pth")
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Bomb()))
    for name in ("hostile.pth", "bare.pth"):
        with pytest.raises(ValueError, match=r"not loaded|not a readable"):
            td.load(tmp_path / name)
    assert not os.path.exists(marker)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "text"])
def test_damaged_files(tmp_path, suffix, damage):
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(official_state(td.DEAL(1, "zero")), path)
    else:
        td.save(td.DEAL(1), path)
    content = {"empty": b"", "truncated": path.read_bytes()[:100_000], "text": b"hello" * 99}
    path.write_bytes(content[damage])
    with pytest.raises(ValueError, match=r"not a readable|not loaded"):
        td.load(path)


def test_files_of_something_else(tmp_path):
    save_file({"a": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="metadata"):
        td.load(tmp_path / "other.safetensors")
    save_file({"a": torch.zeros(3)}, tmp_path / "other.safetensors", {"channels": "1", "boundary": "reflect"})
    with pytest.raises(ValueError, match="a is not part of the model"):
        td.load(tmp_path / "other.safetensors")
    save_file({}, tmp_path / "huge.safetensors", {"channels": "99999999", "boundary": "reflect"})
    with pytest.raises(ValueError, match="metadata"):
        td.load(tmp_path / "huge.safetensors")
    torch.save({"a": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="not weights of DEAL"):
        td.load(tmp_path / "other.pth")
    torch.save({"W1.conv_layers.1.weight": torch.tensor(1.0)}, tmp_path / "scalar.pth")
    with pytest.raises(ValueError, match="not weights of DEAL"):
        td.load(tmp_path / "scalar.pth")


def test_wrong_shapes_and_nan(tmp_path):
    path = tmp_path / "model.safetensors"
    metadata = {"channels": "1", "boundary": "reflect"}
    state = load_file(bundled_path("gray"))
    save_file({**state, "kappa": torch.zeros(52)}, path, metadata)
    with pytest.raises(ValueError, match=r"kappa is \(52,\), should be \(53,\)"):
        td.load(path)
    save_file({**state, "kappa": torch.full((53,), torch.nan)}, path, metadata)
    with pytest.raises(ValueError, match="kappa holds NaN"):
        td.load(path)


def test_missing_file():
    with pytest.raises(FileNotFoundError, match=r"grey.*gray, color"):
        td.load("grey")


@pytest.mark.parametrize("name", ["x.pt", "x.pth", "x", "x.bin", "x.safetensors.bak"])
def test_what_could_not_be_loaded_is_not_saved(tmp_path, name):
    with pytest.raises(ValueError, match=rf"{name}: weights are saved as .safetensors; name the file x\.safetensors$"):
        td.save(td.DEAL(features=4), tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_the_suffix_may_be_in_capitals(tmp_path):
    td.save(td.DEAL(features=4), tmp_path / "X.SafeTensors")
    assert td.load(tmp_path / "X.SafeTensors").features == 4


def test_a_file_is_known_by_its_content(tmp_path):
    td.save(td.DEAL(features=4), tmp_path / "x.safetensors")
    (tmp_path / "x.safetensors").rename(tmp_path / "weights.bin")
    assert td.load(tmp_path / "weights.bin").features == 4


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    model = td.DEAL(features=4)
    with torch.no_grad():
        model.kappa[3] = torch.inf
    with pytest.raises(ValueError, match="not saved, since kappa holds NaN or infinite"):
        td.save(model, tmp_path / "x.safetensors")
    assert os.listdir(tmp_path) == []


def test_the_same_weights_are_the_same_bytes(tmp_path):
    model, metadata = small_model(features=4, dtype=torch.float32), {f"key {n}": '"text"\x1bä' for n in range(9)}
    for name in "ab":
        td.save(model, tmp_path / f"{name}.safetensors", metadata)
    written = (tmp_path / "a.safetensors").read_bytes()
    assert (tmp_path / "b.safetensors").read_bytes() == written
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:  # and safetensors itself reads them
        assert metadata.items() <= file.metadata().items()
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {
            name: value.tolist() for name, value in model.state_dict().items()
        }
    assert int.from_bytes(written[:8], "little") % 8 == 0  # tensors are aligned


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_of_other_precision_load_in_float32(tmp_path, dtype):
    model = td.DEAL(features=4).to(dtype)
    td.save(model, tmp_path / "x.safetensors")
    for name, value in td.load(tmp_path / "x.safetensors").state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, model.state_dict()[name].float())


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused(tmp_path, dtype):
    state = load_file(bundled_path("gray"))
    state["kappa"] = state["kappa"].to(dtype)
    save_file(state, tmp_path / "x.safetensors", {"channels": "1", "boundary": "reflect"})
    with pytest.raises(ValueError, match=f"floating-point numbers, but kappa is {dtype}"):
        td.load(tmp_path / "x.safetensors")


def test_what_is_no_weights_file_is_told_with_what_would_do(tmp_path):
    Image.new("L", (20, 20)).save(tmp_path / "picture.png")
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "run").mkdir()
    write_tensors(tmp_path / "checkpoint.safetensors", {}, {"format": "torchdeal-training-1"})
    known = "gray, color, gray-light, color-light"
    for name, words in {
        "picture.png": ("not a readable weights file; give", known),
        "empty.pt": ("it is empty", known),
        "nosuch": ("no weights at", known),
        "run": ("is a folder", "best.safetensors"),
        "checkpoint.safetensors": ("a checkpoint of training", "last.safetensors"),
    }.items():
        with pytest.raises((ValueError, OSError)) as error:
            td.load(tmp_path / name)
        for word in (name, *words):
            assert word in str(error.value)
        assert "\n" not in str(error.value)


def test_what_is_no_path_or_no_model_is_told(tmp_path):
    with pytest.raises(TypeError, match=r"weights are .*color-light; got DEAL"):
        td.load(td.DEAL(features=4))
    with pytest.raises(TypeError, match=r"only a model of torchdeal can be saved.* got OrderedDict"):
        td.save(td.DEAL(features=4).state_dict(), tmp_path / "x.safetensors")
    with pytest.raises(TypeError, match="metadata are texts with names, but 'epoch' is 3"):
        td.save(td.DEAL(features=4), tmp_path / "x.safetensors", {"epoch": 3})
    with pytest.raises(TypeError, match="a dict of texts, got list"):
        td.save(td.DEAL(features=4), tmp_path / "x.safetensors", ["a"])
    with pytest.raises(FileNotFoundError, match=r"the folder .*no does not exist; create it first"):
        td.save(td.DEAL(features=4), tmp_path / "no" / "x.safetensors")
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder; choose"):
        td.save(td.DEAL(features=4), tmp_path / "x.safetensors")
    assert os.listdir(tmp_path) == ["x.safetensors"]


@pytest.mark.parametrize("device", ["gpu", "cuda:99", 3.5])
def test_a_device_that_is_not_there_is_told(device):
    with pytest.raises(ValueError, match=rf"device {device!r} cannot be used here \(.*\); use 'cpu'"):
        td.load("gray-light", device=device)


def test_a_bare_state_dict_of_ours_is_told_apart(tmp_path):
    torch.save(td.DEAL(features=4).state_dict(), tmp_path / "own.pt")
    with pytest.raises(ValueError, match=r"own\.pt is the state dict of .* save the model with td\.save"):
        td.load(tmp_path / "own.pt")
