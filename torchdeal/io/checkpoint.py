"""Weights: loading and saving, without ever executing what is in a file."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import warnings
from importlib import resources
from pathlib import Path
from types import NoneType

import torch
from torch import Tensor

from torchdeal.io.atomic import replacing
from torchdeal.model import DEAL, Boundary
from torchdeal.model.filters import impulse_responses, squared_norm, zero_mean
from torchdeal.model.spline import non_increasing

BUNDLED = ("gray", "color", "gray-light", "color-light")  # light: half the filters or fewer, and faster
OFFICIAL_MARK = "W1.conv_layers.1.weight"  # in every state dict of the paper's public code
SUFFIX = ".safetensors"
CHOICES = f"a {SUFFIX} file of torchdeal, a .pth state dict of DEAL's public code, or one of {', '.join(BUNDLED)}"


def load(source: str | os.PathLike[str] = "gray", *, device: torch.device | str | None = None) -> DEAL:
    """A model with trained weights, in float32 whatever the file holds.

    Args:
        source: `"gray"`, `"color"`, `"gray-light"` or `"color-light"` (bundled), a `.safetensors` file of ours, or a
            `.pth` state dict of the paper's public code.
        device: where to put it, the CPU if None.
    """
    path = weights_path(source)
    model = _load_safetensors(path) if _is_safetensors(path) else _load_official(path)
    _check_finite(model, f"{path}: the file is damaged")
    model = model.eval().requires_grad_(False)
    try:
        return model if device is None else model.to(torch.device(device))
    except (RuntimeError, AssertionError, TypeError) as error:  # torch has all of these for a device that is not there
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here ({reason}); use 'cpu'") from None


def on_device(model: DEAL, device: torch.device | str | None) -> DEAL:
    """Itself, if it is there already, or None says that it does not matter; else a copy: a caller's must not move."""
    if device is None or model.kappa.device == torch.empty(0, device=device).device:
        return model
    return copy.deepcopy(model).to(device)


def save(model: DEAL, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write the weights, with the configuration, to a `.safetensors` file: all of it or nothing."""
    if not isinstance(model, DEAL):
        raise TypeError(f"only a model of torchdeal can be saved, such as td.load gives; got {type(model).__name__}")
    if not isinstance(metadata, (dict, NoneType)):
        raise TypeError(f"metadata are a dict of texts, got {type(metadata).__name__}")
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        name = path.stem.removesuffix(SUFFIX) or "weights"
        raise ValueError(f"{path}: weights are saved as {SUFFIX}; name the file {name}{SUFFIX}")
    _check_finite(model, f"{path}: the weights are not saved")
    configuration = {
        "format": "torchdeal",
        "channels": str(model.channels),
        "boundary": model.boundary.value,
        "features": str(model.features),
    }
    write_tensors(path, model.state_dict(), {**(metadata or {}), **configuration})


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """A `.safetensors` file, all of it or nothing; the same content gives the same bytes."""
    from safetensors.torch import save as serialised

    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; choose the name of a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; create it first")
    for key, value in metadata.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"metadata are texts with names, but {key!r} is {value!r}; use json.dumps")
    content = serialised({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata)
    # safetensors has the metadata in another order each time: sort its header, which its length comes before.
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at multiples of 8
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.write(memoryview(content)[8 + length :])


def bundled_path(name: str) -> Path:
    """The file of bundled weights."""
    return Path(str(resources.files("torchdeal") / "weights" / f"{name}.safetensors"))


def weights_path(source: str | os.PathLike[str]) -> Path:
    """The file that `load` would read."""
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"weights are {CHOICES}; got {type(source).__name__}")
    path = bundled_path(str(source)) if str(source) in BUNDLED else Path(source)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a file in it, such as {path / 'best.safetensors'}")
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}: give {CHOICES}")
    return path


def default_weights(channels: int, channelwise: bool) -> str:
    """The name of the bundled weights for images of so many channels."""
    return "color" if channels == 3 and not channelwise else "gray"


def checksum(source: str | os.PathLike[str]) -> str:
    """The SHA-256 of the file that `load` reads for this source."""
    return hashlib.sha256(weights_path(source).read_bytes()).hexdigest()


def last_run(source: str | os.PathLike[str]) -> dict:
    """How `deal train` made a file: steps, minutes, start, config. Empty where the file does not say."""
    from safetensors import SafetensorError, safe_open

    path = weights_path(source)
    if not _is_safetensors(path):
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {}).get("training", "{}"))
    except (SafetensorError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def card(name: str) -> dict:
    """What is known about bundled weights: data, training, results, checksum, licence."""
    return json.loads(bundled_path(name).with_suffix(".json").read_text())


def _is_safetensors(path: Path) -> bool:
    """By its name or its beginning; False for what `torch.save` writes, and ValueError for anything else."""
    if path.suffix.lower() == SUFFIX:
        return True
    with path.open("rb") as file:
        start = file.read(9)
    if start[4:] == b"\0\0\0\0{":  # the length of a header of less than 4 GB, and the header
        return True
    if start.startswith((b"PK", b"\x80")):  # a zip archive, or a pickle
        return False
    raise ValueError(f"{path} is not a readable weights file{'' if start else ': it is empty'}; give {CHOICES}")


def _check_finite(model: DEAL, what: str) -> None:
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ValueError(f"{what}, since {name} holds NaN or infinite values")


def _load_safetensors(path: Path) -> DEAL:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is not a readable {SUFFIX} file ({error}); it may be truncated: make or get it again"
        ) from None
    if metadata.get("format", "").startswith("torchdeal-training"):
        raise ValueError(f"{path} is a checkpoint of training; the weights are in last.safetensors beside it")
    try:
        channels, boundary = int(metadata["channels"]), Boundary(metadata["boundary"])
        features = int(metadata.get("features", 128))
        if not (1 <= channels <= 16 and 1 <= features <= 4096):  # before anything is allocated for them
            raise ValueError
    except (KeyError, ValueError):
        raise ValueError(
            f"{path}: its metadata does not give sensible channels and boundary, so it holds another model; "
            f"give {CHOICES}"
        ) from None
    return _filled(DEAL(channels, boundary, features), state, path)


def _load_official(path: Path) -> DEAL:
    """A state dict of the paper's public code; its boundary is zero padding in every layer."""
    state = _read_state_dict(path)
    colour = state[OFFICIAL_MARK].shape[1] == 12
    model = DEAL(3 if colour else 1, Boundary.ZERO)
    renamed = {ours: state[theirs] for ours, theirs in _official_names().items() if theirs in state}
    flat = {name: renamed[name].flatten() for name in ("phi1", "phi2", "phi3", "kappa") if name in renamed}
    _filled(model, renamed | flat, path)
    with torch.no_grad():
        change = float((non_increasing(model.phi3) - model.phi3).abs().max())
        if change > 1e-3:
            warnings.warn(
                f"{path}: its third spline is not monotone as the paper asks; made so (change up to {change:.2g})",
                stacklevel=3,
            )
        if colour:
            # The public code divides W by a bound that is larger than its norm; kappa absorbs the difference.
            bank = zero_mean(tuple(model.filters))
            model.kappa.mul_(squared_norm(bank) / _official_squared_norm(impulse_responses(bank)))
    return model


def _official_squared_norm(filters: Tensor) -> Tensor:
    """What the public code takes for `||W||^2` in colour: the sum over channels c of `max_w |G(w)[c, green]|`."""
    transfer = torch.fft.fft2(filters, (279, 279))  # the grid of the public code
    gram_green = (transfer.conj() * transfer[:, 1:2]).sum(0)
    return gram_green.abs().amax((-2, -1)).sum()


def _official_names() -> dict[str, str]:
    """Our name -> name in the public code."""
    names = {}
    for ours, theirs in (("filters", "W1"), ("mask_filters", "M1")):
        names[f"{ours}.0"] = f"{theirs}.conv_layers.0.parametrizations.weight.original"
        names[f"{ours}.1"] = f"{theirs}.conv_layers.1.weight"
        names[f"{ours}.2"] = f"{theirs}.conv_layers.2.weight"
    names |= {"mix.0": "M2.weight", "mix.1": "M3.weight"}
    names |= {f"phi{i}": f"spline{i}.coefficients" for i in (1, 2, 3)}
    return names | {"kappa": "spline_lambda.coefficients", "scaling": "spline_scaling.coefficients"}


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about details of pickling
            # weights_only: tensors and plain containers, nothing that runs.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path} holds more than plain tensors and was not loaded, since unpickling it could run code. "
            "Save the bare state dict, or convert it to .safetensors where you trust it."
        ) from None
    except Exception as error:
        # torch.load raises RuntimeError, EOFError, KeyError, ... for damaged files, none of them documented.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{path} is not a readable weights file ({reason}); give {CHOICES}") from None
    for key in ("state_dict", "model_state_dict", "model", "params"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise ValueError(f"{path} is not a state dict; give {CHOICES}")
    state = {str(key).removeprefix("module."): value for key, value in content.items()}
    if {"filters.0", "kappa"} <= state.keys():
        raise ValueError(f"{path} is the state dict of a model of torchdeal; save the model with td.save instead")
    if OFFICIAL_MARK not in state or state[OFFICIAL_MARK].ndim != 4:
        raise ValueError(
            f"{path}: no tensor named {OFFICIAL_MARK}, so these are not weights of DEAL's public code; give {CHOICES}"
        )
    return state


def _filled(model: DEAL, state: dict[str, Tensor], path: Path) -> DEAL:
    """The model with exactly these tensors."""
    expected = {name: value.shape for name, value in model.state_dict().items()}
    got = {name: value.shape for name, value in state.items()}
    wrong = [
        f"{name} is {'missing' if name not in got else tuple(got[name])}, should be {tuple(expected[name])}"
        if name in expected
        else f"{name} is not part of the model"
        for name in sorted(expected.keys() | got.keys())
        if expected.get(name) != got.get(name)
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ValueError(f"{path} does not fit {model.extra_repr()}: {'; '.join(wrong[:3])}{more}")
    odd = [f"{name} is {value.dtype}" for name, value in state.items() if not value.is_floating_point()]
    if odd:
        raise ValueError(f"{path}: weights are floating-point numbers, but {odd[0]}")
    model.load_state_dict({name: value.to(torch.float32) for name, value in state.items()})
    return model
