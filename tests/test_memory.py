"""Errors of NumPy and torch, as they word them."""

import pytest
import torch

from torchdeal.memory import ASKED, is_out_of_memory


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (MemoryError(), None),
        (MemoryError("Unable to allocate 745. GiB for an array"), ("745.", "GiB")),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), ("8", "bytes")),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), ("2.00", "GiB")),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), None),
        (RuntimeError("GET was unable to find an engine to execute this computation"), None),
    ],
)
def test_memory_that_ran_out(error, asked):
    found = ASKED.search(str(error))
    assert is_out_of_memory(error)
    assert (found.groups() if found else None) == asked


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("unsupported memory format option"),
        ValueError("out of memory"),
    ],
)
def test_other_errors_that_speak_of_memory(error):
    assert not is_out_of_memory(error)
