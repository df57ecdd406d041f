"""What importing the package loads: torch and numpy, and nothing that is optional or heavy."""

import json
import subprocess
import sys

import torchdeal as td


def test_optional_and_heavy_modules_are_imported_where_used():
    heavy = ["PIL", "tifffile", "typer", "rich", "skimage", "scipy", "safetensors", "matplotlib"]
    heavy += ["IPython", "finufft", "h5py", "nibabel", "sigpy", "deepinv", "torchdeal.mri"]
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
