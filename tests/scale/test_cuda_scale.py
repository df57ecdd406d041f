"""Tiles, batches and threads on a GPU. Each test also runs on the CPU, at a tiny size, so that it is seen to be right.

Needs torch, numpy and pytest alone, but for commands, servers and Dask:
`python -m pytest --noconftest tests/scale/test_cuda_scale.py`.
"""

import gc
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from scale.helpers import LIGHT, differences, noisy

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Mask
from torchdeal.scale import large, stacks, tiles
from torchdeal.scale.grid import grid
from torchdeal.scale.local import local
from torchdeal.scale.remote import SentModel, solve_there, without_model

CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
DEVICES = ["cpu", pytest.param("cuda", marks=CUDA)]
pytestmark = pytest.mark.parametrize("device", DEVICES)

BOUND = 3e-3  # two runs within 1e-3 of their fixed points, and what halos let through
SIDE = {"cpu": 48, "cuda": 384}  # of a picture
TILE = {"cpu": 24, "cuda": 96}
KNOWN = {"model": LIGHT, "sigma": 15, "data_range": 255}


def picture(device, seed=0, side=None):
    """In floating point, so that differences are not those of rounding."""
    side = side or SIDE[device]
    return noisy(side, side, seed=seed).astype(np.float32)


def relative(found, expected):
    return differences(found, expected)[0]


@pytest.fixture
def together(monkeypatch):
    """How many were solved together, each time; on the CPU too, tiles come four at a time."""
    sizes, real = [], tiles.reconstruct

    def spy(y, *given, **options):
        sizes.append(len(y))
        return real(y, *given, **options)

    monkeypatch.setattr(tiles, "reconstruct", spy)
    monkeypatch.setattr(stacks, "reconstruct", spy)
    monkeypatch.setattr(large, "batch_size", lambda *_: 4)
    return sizes


def test_tiles_equal_the_whole(device, together):
    image = picture(device)
    found = td.reconstruct_tiled(image, tile=TILE[device], device=device, **KNOWN)
    whole = td.denoise(image, 15, model=LIGHT, data_range=255, device=device)
    assert found.converged
    assert set(together) == {4}
    assert relative(found.x, whole) < BOUND


def test_without_a_halo_they_do_not(device):
    """The test above can fail."""
    image = picture(device)
    found = td.reconstruct_tiled(image, tile=TILE["cpu"], overlap=0, device=device, **KNOWN)
    assert relative(found.x, td.denoise(image, 15, model=LIGHT, data_range=255, device=device)) > 2 * BOUND


def operators(device):
    """Their tensors are on the device, as those of a user may be."""
    known = torch.rand(SIDE[device], SIDE[device], generator=torch.Generator().manual_seed(0)) < 0.7
    kernel = torch.ones(3, 3, device=device) / 9
    return {"blur": Blur(kernel, "reflect"), "mask": Mask(known.to(device)), "downsampling": Downsample(2)}


@pytest.mark.parametrize("name", ["blur", "mask", "downsampling"])
def test_other_operators_in_batches_of_tiles(device, name, together, tmp_path):
    H, clean = operators(device)[name], torch.from_numpy(picture(device))[None, None]
    y = H.to("cpu").forward(clean)[0, 0].numpy()
    np.save(tmp_path / "y.npy", y)
    knobs = {**KNOWN, "lam": 1.0, "tolerance": 3e-3, "device": device}
    cut = {"tile": TILE[device] * len(y) // SIDE[device], "overlap": 16}
    run = td.reconstruct_tiled(tmp_path / "y.npy", tmp_path / "x.npy", H, **cut, **knobs)
    whole = td.reconstruct(torch.from_numpy(y)[None, None], H, **knobs).x
    assert set(together) - {1} == {4}
    assert run.tiles == (SIDE[device] // TILE[device]) ** 2
    assert relative(np.load(tmp_path / "x.npy"), whole[0, 0]) < 3 * BOUND


def test_many_equal_one_by_one(device):
    some = [picture(device, seed, side) for seed, side in enumerate(2 * (SIDE[device], SIDE[device] // 2, 32))]
    batch = 2 if device == "cpu" else None
    found = list(td.reconstruct_many(some, batch=batch, device=device, **KNOWN))
    for image, rec in zip(some, found, strict=True):
        alone = td.reconstruct(image, device=device, **KNOWN)
        assert rec.converged
        assert relative(rec.x, alone.x) < BOUND
        assert float(rec.distance) <= 1e-3


@contextmanager
def little_memory(device, monkeypatch, side):
    """Within, four pictures of this size fit, and not many more."""
    if device == "cpu":
        real = stacks.reconstruct

        def limited(y, *given, **options):
            if len(y) > 4:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return real(y, *given, **options)

        monkeypatch.setattr(stacks, "reconstruct", limited)
        monkeypatch.setattr(tiles, "reconstruct", limited)
        yield
        return
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved()  # by the graphs of other tests
    torch.cuda.reset_peak_memory_stats()
    list(td.reconstruct_many([picture(device, side=side)] * 4, batch=4, device=device, **KNOWN))
    needed = torch.cuda.max_memory_reserved() - held
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((held + 1.2 * needed) / torch.cuda.mem_get_info()[1])
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def test_a_batch_that_does_not_fit_is_halved(device, monkeypatch, together):
    side = SIDE[device] // 2
    some = [picture(device, seed, side) for seed in range(32 if device == "cuda" else 8)]
    expected = [td.denoise(image, 15, model=LIGHT, data_range=255, device=device) for image in some]
    with little_memory(device, monkeypatch, side):
        together.clear()
        found = list(td.reconstruct_many(some, batch=len(some), device=device, **KNOWN))
    assert len(together) > 1
    assert min(together) < len(some)
    assert all(relative(rec.x, image) < BOUND for rec, image in zip(found, expected, strict=True))


def test_tiles_that_do_not_fit_together_are_solved_in_halves(device, monkeypatch, together):
    image, count = picture(device), 32 if device == "cuda" else 8
    model, side = td.load(LIGHT, device=device), SIDE[device] // 2
    shared = tiles.Shared(model, local(td.operators.Identity()), 255.0, sigma=15)
    some = (grid(image.shape, 12, (side - 12) // 2) * 2)[:count]
    pixels = [image[tile.read.slices] for tile in some]
    expected = [tiles.solve_tile(part, tile, shared)[0] for part, tile in zip(pixels, some, strict=True)]
    with little_memory(device, monkeypatch, side):
        together.clear()
        found = tiles.solve_tiles(pixels, some, shared)
    assert len(together) > 1
    assert min(together) < count
    assert all(relative(core, known) < BOUND for (core, _), known in zip(found, expected, strict=True))


def living_tensors():
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def test_memory_does_not_grow_with_the_number_of_tiles(device, together):
    model, tile = td.load(LIGHT, device=device), TILE[device]
    knobs = {**KNOWN, "model": model, "tile": tile, "overlap": tile // 4, "max_iterations": 4}
    peaks, living = [], []
    for rows in (2, 2, 8):  # the first run of a process makes what stays
        image = noisy(rows * tile, 4 * tile).astype(np.float32)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        run = td.reconstruct_tiled(image, **knobs)
        assert run.tiles == 4 * rows
        peaks.append(torch.cuda.max_memory_allocated() if device == "cuda" else 0)
        living.append(living_tensors())
    assert peaks[2] <= 1.02 * peaks[1]
    assert living[2] <= living[1]


def test_threads_do_not_disturb_each_other(device):
    """Each thread solves pictures of its own, many times: the bits are those of a thread that is alone."""
    times = {"cpu": 2, "cuda": 12}[device]  # two graphs each: more than the 32 streams that torch has
    model, side = td.load(LIGHT, device=device), SIDE[device] // 2
    some = [picture(device, seed, side + 8 * seed) for seed in range(4)]
    settings = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic

    def solve(image):
        return [td.denoise(image, 15, model=model, data_range=255) for _ in range(times)]

    expected = [td.denoise(image, 15, model=model, data_range=255) for image in some]
    with ThreadPoolExecutor(len(some)) as people:
        found = list(people.map(solve, some))
    for image, answers in zip(expected, found, strict=True):
        assert [relative(answer, image) for answer in answers] == times * [0.0]
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == settings


def test_a_model_of_the_caller_does_not_move(device):
    model = td.load(LIGHT)
    image = picture(device, side=32)
    given = {"sigma": 15, "data_range": 255, "max_iterations": 2, "device": device}
    tiled = td.reconstruct_tiled(image, model=model, tile=32, overlap=0, **given)
    (one,) = td.reconstruct_many([image], model=model, **given)
    assert one.posed()[1].device.type == device
    assert model.kappa.device.type == "cpu"
    assert relative(tiled.x, one.x) < BOUND


def test_what_is_sent_to_a_worker_needs_no_gpu_there(device):
    """Nor one to be unpickled; and its answer is that of here."""
    model, H = td.load(LIGHT, device=device), operators(device)["blur"]
    image = picture(device, side=32)
    (tile,) = grid((32, 32), 32, 0)
    shared = tiles.Shared(model, local(H), 255.0, sigma=15, lam=1.0, max_iterations=3)
    parcel = SentModel.of(model, device), without_model(shared, [tile])
    assert parcel[1].operator.operator.kernel.device.type == "cpu"
    sent, knobs = pickle.loads(pickle.dumps(parcel))
    ((there, _),) = solve_there(sent, knobs, [image], [tile])
    here, _ = tiles.solve_tile(image, tile, replace(shared, max_iterations=3))
    assert relative(there, here) < 1e-6


def test_a_run_that_was_stopped_goes_on(device, together, tmp_path):
    np.save(tmp_path / "in.npy", picture(device))
    knobs = {**KNOWN, "tile": TILE[device] // 2, "overlap": 8, "max_iterations": 3, "device": device}

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        td.reconstruct_tiled(tmp_path / "in.npy", tmp_path / "out.npy", progress=stop, **knobs)
    run = td.reconstruct_tiled(tmp_path / "in.npy", tmp_path / "out.npy", resume=True, **knobs)
    whole = td.reconstruct_tiled(tmp_path / "in.npy", **knobs)
    assert run.resumed == 4 < run.tiles
    assert relative(np.load(tmp_path / "out.npy"), whole.x) == 0


def test_another_gpu_than_the_present_one(device):
    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    where = "cpu" if device == "cpu" else "cuda:1"
    image = picture(device)
    found = td.reconstruct_tiled(image, tile=TILE[device], device=where, **KNOWN)
    assert relative(found.x, td.denoise(image, 15, model=LIGHT, data_range=255, device=device)) < BOUND


def test_the_command(device, tmp_path, monkeypatch):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from torchdeal.cli import app

    monkeypatch.chdir(tmp_path)
    np.save("in.npy", noisy(SIDE[device], SIDE[device]))
    np.save("stack.npy", np.stack([noisy(48, 48, seed=seed) for seed in range(4)]))
    words = ["--sigma", "15", "--model", LIGHT, "--device", device]
    for given in (["in.npy", "tiles.npy", "--tile", str(TILE[device])], ["stack.npy", "many.npy", "--batch", "2"]):
        ended = CliRunner().invoke(app, ["denoise", *given, *words])
        assert ended.exit_code == 0, ended.output
    whole = td.denoise(np.load("in.npy"), 15, model=LIGHT, device=device)
    assert relative(np.load("tiles.npy"), whole) < BOUND + 2e-3  # pixels are rounded
    for frame, found in zip(np.load("stack.npy"), np.load("many.npy"), strict=True):
        assert relative(found, td.denoise(frame, 15, model=LIGHT, device=device)) < BOUND + 2e-3


def test_blocks_of_dask(device):
    dask_array = pytest.importorskip("dask.array")
    from torchdeal.scale.dask_arrays import reconstruct_blocks

    image = picture(device)
    blocks = dask_array.from_array(image, chunks=TILE[device])
    found = reconstruct_blocks(blocks, device=device, **KNOWN).compute(scheduler="threads")
    assert relative(found, td.denoise(image, 15, model=LIGHT, data_range=255, device=device)) < BOUND


def test_a_server_answers_pictures_that_wait_together(device):
    for library in ("fastapi", "prometheus_client", "httpx"):
        pytest.importorskip(library)
    from scale.servers import ask, npy, serving

    some = [noisy(32, 32, seed=seed) for seed in range(8)]
    with serving(device=device, batch=4) as client, ThreadPoolExecutor(8) as people:
        answers = list(people.map(lambda image: ask(client, "denoise", npy(image), "in.npy", sigma=15), some))
    assert [answer.status_code for answer in answers] == 8 * [200]
    for image, answer in zip(some, answers, strict=True):
        whole = td.denoise(image, 15, model=LIGHT, tolerance=0.05, device=device)
        assert relative(np.load(io.BytesIO(answer.content)), whole) < 0.1
