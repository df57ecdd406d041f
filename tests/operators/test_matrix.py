"""Matrices as operators: the same numbers as numpy and SciPy, whatever they come in. `test_operators` has the rest."""

import numpy as np
import pytest
import scipy.sparse
import torch
from conftest import noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.operators import Blur, Matrix, adjoint_gap

SHAPE = (2, 5, 4)
DENSE = np.random.default_rng(0).normal(size=(7, 40)) * (np.random.default_rng(1).random((7, 40)) < 0.3)
KINDS = {
    "numpy": lambda matrix: matrix,
    "big endian": lambda matrix: matrix.astype(matrix.dtype.newbyteorder(">")),
    "fortran order": np.asfortranarray,
    "torch": torch.from_numpy,
    "torch coo": lambda matrix: torch.from_numpy(matrix).to_sparse_coo(),
    "torch csr": lambda matrix: torch.from_numpy(matrix).to_sparse_csr(),
    **{kind: getattr(scipy.sparse, kind) for kind in ("csr_matrix", "csc_array", "coo_array", "lil_matrix")},
}


@pytest.mark.parametrize("complex_numbers", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")  # of the test's own
def test_the_same_numbers_as_numpy(kind, complex_numbers):
    matrix = DENSE + 1j * DENSE[::-1] if complex_numbers else DENSE
    operator = Matrix(KINDS[kind](matrix), SHAPE)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, *SHAPE, dtype=torch.complex128, generator=generator)
    y = torch.randn(3, 7, dtype=torch.complex128, generator=generator)
    np.testing.assert_allclose(operator.forward(x), x.flatten(1).numpy() @ matrix.T, atol=1e-12)
    np.testing.assert_allclose(operator.adjoint(y).flatten(1), y.numpy() @ matrix.conj(), atol=1e-12)
    assert operator.forward(x.real).is_complex() == complex_numbers
    assert adjoint_gap(operator.to(dtype=torch.float32), x.to(torch.complex64)) < 1e-5


def test_a_real_image_of_a_complex_matrix():
    operator = Matrix(DENSE + 1j * DENSE[::-1], SHAPE, real=True)
    y = torch.randn(1, 7, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    assert not operator.adjoint(y).is_complex()
    assert adjoint_gap(operator, torch.zeros(1, *SHAPE, dtype=torch.float64)) < 1e-12


def test_as_operator_takes_a_matrix_with_a_shape():
    operator = td.as_operator(scipy.sparse.csr_array(DENSE), image_shape=(5, 8))
    assert (operator.image_shape, operator.measurement_shape) == ((1, 5, 8), (7,))


def test_it_owns_its_data():
    matrix = np.ones((2, 4))
    operator = Matrix(matrix, (2, 2))
    matrix[:] = 0
    assert operator.forward(torch.ones(1, 1, 2, 2, dtype=torch.float64)).tolist() == [[4.0, 4.0]]


@pytest.mark.parametrize("sparse", [False, True])
def test_reconstruction_equals_that_of_the_blur_it_is(sparse):
    blur = Blur(torch.outer(torch.tensor([0.25, 0.5, 0.25]), torch.tensor([0.2, 0.6, 0.2])), "reflect")
    units = torch.eye(256).view(256, 1, 16, 16)
    matrix = blur.forward(units).flatten(1).T.numpy()
    y = noisy(blur.forward(picture(size=16)), 5)
    options = {"model": small_model(features=4, dtype=torch.float32), "sigma": 5 / 255, "lam": 0.5}
    operator = Matrix(scipy.sparse.csc_array(matrix) if sparse else matrix, (1, 16, 16))
    found = td.reconstruct(y.flatten(1), operator, **options).x
    assert relative(found, td.reconstruct(y, blur, **options).x) < 1e-4


@pytest.mark.parametrize(
    ("matrix", "shape", "message"),
    [
        (np.ones((3, 4)), (5, 5), r"the matrix has 4 columns, but an image of shape \(5, 5\) has 25 numbers"),
        (np.ones((3, 4)), (4,), r"image_shape must be \(C, H, W\) or \(H, W\)"),
        (np.full((3, 4), np.nan), (2, 2), "the matrix holds NaN"),
        (scipy.sparse.csr_array(np.full((3, 4), np.inf)), (2, 2), "the matrix holds NaN or infinite"),
        (np.ones(4), (2, 2), r"an array of two dimensions, got ndarray of shape \(4,\)"),
        ([[1.0]], (1, 1), "an array of two dimensions, got list"),
        (np.array([["a"]]), (1, 1), "the matrix has dtype <U1: convert it"),
    ],
)
def test_what_is_no_such_matrix(matrix, shape, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Matrix(matrix, shape)
