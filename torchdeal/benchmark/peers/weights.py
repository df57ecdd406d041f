"""Weights of competitors: plain tensors in a folder outside the package, `--peers-dir`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from torch import Tensor

from torchdeal.benchmark.peers.base import Unavailable

SUFFIX = ".safetensors"


def weights_file(peers_dir: Path | None, name: str) -> Path:
    """The file of weights with this name; `Unavailable` where it is missing."""
    if peers_dir is None:
        raise Unavailable(f"needs the weights {name}{SUFFIX}: give the folder that holds them by --peers-dir")
    path = Path(peers_dir) / f"{name}{SUFFIX}"
    if not path.is_file():
        raise Unavailable(f"the weights {name}{SUFFIX} are not in the folder of --peers-dir")
    return path


@lru_cache(maxsize=16)
def read_weights(peers_dir: Path | None, name: str, device: str) -> dict[str, Tensor]:
    """The tensors of a file of weights, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = weights_file(peers_dir, name)
    try:
        return load_file(path, device=device)
    except SafetensorError as error:
        raise Unavailable(f"{path.name} is damaged ({error}): get it again") from None
