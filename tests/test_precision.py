"""The settings are torch's globals, so this needs no GPU: they change inside the block and come back after it."""

import pytest
import torch

from torchdeal.precision import full_precision

CUDA = torch.device("cuda")


def settings():
    convolution = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolution, "fp32_precision"):
        tf32 = convolution.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    else:
        tf32 = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    return torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, *tf32


def test_tf32_is_off_inside_and_everything_restored():
    before = settings()
    with full_precision(CUDA):
        benchmark, deterministic, convolution, matmul = settings()
        assert (benchmark, deterministic) == (False, True)
        assert convolution in ("ieee", False)
        assert matmul in ("ieee", False)
        with full_precision(CUDA):
            pass
        assert settings() == (benchmark, deterministic, convolution, matmul)
    assert settings() == before


def test_restored_after_an_error():
    before = settings()
    with pytest.raises(RuntimeError, match="inside"), full_precision(CUDA):
        raise RuntimeError("inside")
    assert settings() == before


def test_threads_that_overlap_do_not_end_it_for_each_other():
    """The first to begin is the first to end: the other still needs it, and nothing of it stays."""
    before, first, second = settings(), full_precision(CUDA), full_precision(CUDA)
    first.__enter__()
    precise = settings()
    assert precise != before
    second.__enter__()
    first.__exit__(None, None, None)
    assert settings() == precise
    second.__exit__(None, None, None)
    assert settings() == before


def test_nothing_is_touched_on_the_cpu():
    before = settings()
    with full_precision(torch.device("cpu")):
        assert settings() == before
