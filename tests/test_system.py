"""The equations as a system: what the solver is given."""

import torch
from conftest import dense, noisy, picture, relative

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Fourier, Mask, Operator, Radon

COLUMNS = (torch.arange(24) % 4 == 0).expand(24, 24)
OPERATORS: dict[str, Operator | None] = {
    "denoising": None,
    "blur": Blur(torch.ones(3, 3) / 9),
    "upscaling": Downsample(2, torch.ones(3, 3) / 9),
    "inpainting": Mask(torch.rand(24, 24, generator=torch.Generator().manual_seed(0)) < 0.3),
    "MRI": Fourier(COLUMNS),
    "complex MRI": Fourier(COLUMNS, real=False),
    "CT": Radon(torch.arange(0, 180, 20), 24),
}


def posed(gray_model, H, **options):
    clean = picture("camera", 24)
    y = noisy(clean, 10) if H is None else H.forward(clean)
    return td.reconstruct(y, H, model=gray_model, sigma=10 / 255, max_iterations=1, data_range=1.0, **options).posed()


def test_the_residual_is_that_of_the_equation(gray_double):
    for name, H in OPERATORS.items():
        equation, x = posed(gray_double, H, lam=0.5)
        system = equation.system().precise(x)
        assert relative(system.residual_of(equation.b, x), equation.b - system.apply(x)) < 1e-9, name


def test_a_noise_map_has_the_same_residual(gray_double):
    noise = torch.linspace(5, 20, 24).expand(24, 24) / 255
    equation, x = td.reconstruct(noisy(picture("camera", 24), 10), model=gray_double, sigma=noise).posed()
    system = equation.system().precise(x)
    assert float((system.residual_of(equation.b, x) - (equation.b - system.apply(x))).norm()) < 1e-9


def test_no_eigenvalue_is_below_the_smallest_that_the_system_states(gray_double):
    """Compared with all eigenvalues of the dense matrix. In denoising one is stated, since `A = I + lam W^T M^2 W`."""
    stated = {}
    for name in ("denoising", "blur", "inpainting"):
        equation, x = posed(gray_double, OPERATORS[name], lam=0.5)
        system = equation.system().precise(x)
        matrix = dense(lambda p, apply=system.apply: torch.cat([apply(column) for column in p.split(1)]), (1, 24, 24))
        assert float(torch.linalg.eigvalsh((matrix + matrix.T) / 2).min()) >= system.smallest - 1e-9, name
        stated[name] = system.smallest
    assert stated == {"denoising": 1.0, "blur": 0.0, "inpainting": 0.0}


def test_single_precision_says_what_happens_where_the_operator_sees_nothing(gray, gray_double):
    """There A is about 1e-5, so that a rounding error of b, 1e-7, would be a correction of a per cent."""
    H = OPERATORS["MRI"]
    (equation, x), (exact, _) = (posed(model, H, lam=0.1) for model in (gray, gray_double))
    found = equation.system().precise(x).residual_of(equation.b, x)
    plain = equation.b - equation.system().precise(x).apply(x)
    true = exact.system().precise(x.double()).residual_of(exact.b, x.double())

    def unseen(r):
        return torch.fft.fft2(r.double())[..., ~COLUMNS]

    assert relative(unseen(found), unseen(true)) < 0.2 * relative(unseen(plain), unseen(true))
