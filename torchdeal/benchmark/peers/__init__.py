"""Competitors: real denoisers and solvers of others, each optional, behind two small interfaces (see `base.py`).

    denoiser = find_denoiser("wcrr").make(Path("peers"), channels=1, device="cpu")
    clean = denoiser(noisy, 25.0)

A competitor that cannot run raises `Unavailable`, when it is made or when it is called, with the reason.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from torchdeal.benchmark.peers import classical, epll, mmr, networks, plain, ridge
from torchdeal.benchmark.peers.base import Peer, PeerDenoiser, PeerSolver, Unavailable, grid, need_channels, parameters
from torchdeal.benchmark.peers.deepinverse import PREFIX, deepinverse_denoiser, deepinverse_solver
from torchdeal.benchmark.peers.plug_and_play import PlugAndPlay

__all__ = [
    "DENOISERS",
    "SOLVERS",
    "Peer",
    "PeerDenoiser",
    "PeerSolver",
    "Unavailable",
    "find_denoiser",
    "find_solver",
    "grid",
    "parameters",
]

DENOISING, INVERSE = ("denoising",), ("deblur", "superres", "mri", "ct")
GRAY = (1,)

BM3D_PAPER = "Dabov, Foi, Katkovnik, Egiazarian, Image denoising by sparse 3-D transform-domain filtering, TIP 2007"
TV_PAPER = "Rudin, Osher, Fatemi, Nonlinear total variation based noise removal algorithms, Physica D 1992"
NLM_PAPER = "Buades, Coll, Morel, A non-local algorithm for image denoising, CVPR 2005"
WAVELETS_PAPER = "Chang, Yu, Vetterli, Adaptive wavelet thresholding for image denoising and compression, TIP 2000"
DNCNN_PAPER = "Zhang, Zuo, Chen, Meng, Zhang, Beyond a Gaussian denoiser, TIP 2017"
FFDNET_PAPER = "Zhang, Zuo, Zhang, FFDNet, TIP 2018; weights of Tassano, Delon, Veit, IPOL 2019"
CRR_PAPER = "Goujon et al., A neural-network-based convex regularizer for inverse problems, TCI 2023"
WCRR_PAPER = "Goujon, Neumayer, Unser, Learning weakly convex regularizers, SIAM J. Imaging Sci. 2024"
MMR_PAPER = "Pourya, Neumayer, Unser, Iteratively refined image reconstruction, Numer. Funct. Anal. Optim. 2024"
EPLL_PAPER = "Zoran, Weiss, From learning models of natural image patches to whole image restoration, ICCV 2011"
PNP_PAPER = "Ryu et al., Plug-and-play methods provably converge with properly trained denoisers, ICML 2019"
WIENER_PAPER = "Hunt, The application of constrained least squares estimation to image restoration, 1973"
LUCY_PAPER = "Richardson, JOSA 1972; Lucy, Astron. J. 1974"


def _ridge_denoiser(folder: Path | None, channels: int, device: str, *, name: str) -> PeerDenoiser:
    return ridge.RidgeDenoiser(ridge.make_ridge(folder, channels, device, name=name))


def _ridge_solver(folder: Path | None, channels: int, device: str, *, name: str) -> PeerSolver:
    return ridge.RidgeSolver(ridge.make_ridge(folder, channels, device, name=name))


def _epll_denoiser(folder: Path | None, channels: int, device: str) -> PeerDenoiser:
    return epll.EPLLDenoiser(epll.make_epll(folder, channels, device))


def _epll_solver(folder: Path | None, channels: int, device: str) -> PeerSolver:
    return epll.EPLLSolver(epll.make_epll(folder, channels, device))


def _plug_and_play(folder: Path | None, channels: int, device: str) -> PeerSolver:
    return PlugAndPlay(networks.make_dncnn(folder, channels, device, plug_and_play=True))


def _pnp_denoiser(folder: Path | None, channels: int, device: str) -> PeerDenoiser:
    need_channels(channels, GRAY, "this DnCNN")  # in colour it would be the one of `dncnn`
    return networks.make_dncnn(folder, channels, device, plug_and_play=True)


CRR, WCRR = "crr_nn_gray", "wcrr_nn_gray"

DENOISERS: dict[str, Peer[PeerDenoiser]] = {
    "bm3d": Peer(classical.make_bm3d, BM3D_PAPER, DENOISING),
    "tv": Peer(lambda folder, channels, device: classical.TVDenoiser(), TV_PAPER, DENOISING),
    "nlm": Peer(classical.make_non_local_means, NLM_PAPER, DENOISING),
    "wavelets": Peer(classical.make_wavelets, WAVELETS_PAPER, DENOISING),
    "dncnn": Peer(networks.make_dncnn, DNCNN_PAPER, DENOISING),
    "fdncnn": Peer(networks.make_fdncnn, DNCNN_PAPER, DENOISING),
    "ffdnet": Peer(networks.make_ffdnet, FFDNET_PAPER, DENOISING),
    "pnp-dncnn": Peer(_pnp_denoiser, PNP_PAPER, DENOISING, GRAY),
    "crr": Peer(partial(_ridge_denoiser, name=CRR), CRR_PAPER, DENOISING, GRAY),
    "wcrr": Peer(partial(_ridge_denoiser, name=WCRR), WCRR_PAPER, DENOISING, GRAY),
    "mmr": Peer(mmr.make_mmr, MMR_PAPER, DENOISING, GRAY),
    "epll": Peer(_epll_denoiser, EPLL_PAPER, DENOISING, GRAY),
}

SOLVERS: dict[str, Peer[PeerSolver]] = {
    "tv": Peer(lambda folder, channels, device: plain.TVSolver(), TV_PAPER, INVERSE),
    "crr": Peer(partial(_ridge_solver, name=CRR), CRR_PAPER, INVERSE, GRAY),
    "wcrr": Peer(partial(_ridge_solver, name=WCRR), WCRR_PAPER, INVERSE, GRAY),
    "epll": Peer(_epll_solver, EPLL_PAPER, INVERSE, GRAY),
    "pnp-dncnn": Peer(_plug_and_play, PNP_PAPER, INVERSE),
    "wiener": Peer(lambda folder, channels, device: plain.Wiener(), WIENER_PAPER, ("deblur",)),
    "richardson-lucy": Peer(lambda folder, channels, device: plain.RichardsonLucy(), LUCY_PAPER, ("deblur",)),
    "zero-filling": Peer(
        lambda folder, channels, device: plain.ZeroFilling(), "the adjoint of the measurement", ("mri",)
    ),
    "fbp": Peer(lambda folder, channels, device: plain.FilteredBackProjection(), "by scikit-image", ("ct",)),
}


def find_denoiser(name: str) -> Peer[PeerDenoiser]:
    """The denoiser of that name, or `deepinv:CLASS`."""
    return deepinverse_denoiser(name) if name.startswith(PREFIX) else _found(name, DENOISERS, "denoiser")


def find_solver(name: str) -> Peer[PeerSolver]:
    """The solver of that name, or `deepinv:CLASS`."""
    return deepinverse_solver(name) if name.startswith(PREFIX) else _found(name, SOLVERS, "solver")


def _found(name: str, registry: dict, kind: str) -> Peer:
    if name not in registry:
        raise ValueError(f"there is no {kind} {name}; choose from {', '.join(registry)}, {PREFIX}CLASS")
    return registry[name]
