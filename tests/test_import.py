import json
import subprocess
import sys

import torchdeal as td

TIMER = "import time, sys; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    out = subprocess.run([sys.executable, "-c", TIMER.format(module)], capture_output=True, text=True, check=True)
    return float(out.stdout)


def test_import_is_light():
    """Less than 1.3 times the import of torch alone: the best of several, measured in turn."""
    seconds("torchdeal")  # compile and cache
    pairs = [(seconds("torchdeal"), seconds("torch")) for _ in range(6)]
    ours, torchs = (min(times) for times in zip(*pairs, strict=True))
    assert ours < 1.3 * torchs, pairs


def test_optional_and_heavy_modules_are_imported_where_used():
    heavy = ["PIL", "tifffile", "typer", "rich", "skimage", "scipy", "safetensors", "matplotlib"]
    heavy += ["finufft", "h5py", "nibabel", "sigpy", "deepinv", "torchdeal.mri"]
    script = f"import json, sys, torchdeal; print(json.dumps([m for m in {heavy!r} if m in sys.modules]))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []


def test_an_absent_deepinverse_is_named_with_its_extra():
    script = "import sys; sys.modules['deepinv'] = None; import torchdeal.deepinv"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (
        out.stderr.splitlines()[-1]
        == "ImportError: torchdeal.deepinv needs DeepInverse: pip install torchdeal[deepinv]"
    )


def test_public_names_exist():
    for name in td.__all__:
        assert getattr(td, name) is not None
