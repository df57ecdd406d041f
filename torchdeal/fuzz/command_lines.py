"""Random command lines, with the files that they name."""

from __future__ import annotations

from pathlib import Path
from random import Random

from torchdeal.fuzz.commands import Command
from torchdeal.fuzz.inputs import BAD_CONTENTS, CONTENTS, File, array, picture, side

NAMES = ("a", "b c", "-x", "ü", "x\x1b[31m", "new\nline", "a.b", "[bold]", "\u202ex")
NUMBERS = ("0", "1", "25", "0.5", "-1", "nan", "inf", "1e30", "1e-30", "x", "")
ODD_OPTIONS = {
    "--sigma": NUMBERS,
    "--lam": NUMBERS,
    "--model-sigma": NUMBERS,
    "--model": ("gray", "color", "gray-light", "color-light", "none", "in.npy", "folder", "\x1b[2J"),
    "--data-range": NUMBERS,
    "--tolerance": ("1e-3", "0.1", "0", "nan", "-1"),
    "--quality": ("1", "95", "0", "x"),
    "--seed": ("0", "1", "-1"),
    "--unknown": ("1",),
}
FLAGS = ("--simulate", "--channelwise", "--recursive", "--skip-existing")
SUFFIXES = (".png", ".jpg", ".webp", ".bmp", ".tif", ".npy", ".nii", ".ome.tif", ".xyz", "")
KERNELS = (*("k.npy", "gaussian:1", "disk:2", "motion:5,30") * 3, "gaussian:-1", "disk:x", "none")
MASKS = (*("mask.npy",) * 6, "alpha", "random:0.5", "random:x")
MEASURED = (*("noise", "smooth") * 6, *CONTENTS, *BAD_CONTENTS)
ROTATIONS = ((), (), (), ("--size", "4"), ("--center", "1.5"), ("--fan", "100,50"), ("--layout", "angles-bins"))
SCANS = ((), (), (), ("--maps", "maps.npy"), ("--slice", "all"), ("--slice", "9"), ("--crop", "4x8"), ("--corner",))

Place = tuple[str, tuple[tuple[str, str, str], ...], tuple[str, ...]]  # an output; links and old files to make


def any_command(random: Random) -> Command:
    """Of every kind."""
    return random.choice([_of_pictures, _of_pictures, _of_pictures, _ct, _mri, _other])(random)


def _options(random: Random) -> list[str]:
    """Few iterations, and sometimes something odd."""
    chosen = ["--max-iterations", random.choice(["1", "2", "2", "3", "30"])]
    if random.random() < 0.2:
        option = random.choice(sorted(ODD_OPTIONS))
        chosen += [option, random.choice(ODD_OPTIONS[option])]
    if random.random() < 0.2:
        chosen.append(random.choice(FLAGS))
    return chosen + ["--json"] * (random.random() < 0.5)


def _place(random: Random, source: str, others: tuple[str, ...] = ()) -> Place:
    """Mostly a new file or an old one, in the format of the input."""
    own = Path(source).suffix
    suffix = own if random.random() < 0.6 else random.choice(SUFFIXES)
    if random.random() < 0.7:
        name = random.choice(["out", "old", "folder/new"]) + suffix
        return name, (), (name,) if name.startswith("old") else ()
    kind = random.choice(["folder", "missing", "hard", "symbolic", "input"])
    if kind in ("hard", "symbolic"):
        return kind + own, ((kind, kind + own, random.choice((source, *others))),), ()
    return {"folder": "folder", "missing": "missing/x" + suffix}.get(kind) or random.choice((source, *others)), (), ()


def _of_pictures(random: Random) -> Command:
    kind, file = random.choice(["denoise", "denoise", "deblur", "upscale", "inpaint"]), picture(random)
    source = (random.choice(NAMES) if random.random() < 0.3 else "in") + file.suffix
    files, own = [(source, file)], []
    if kind == "inpaint":
        mask = array(random, ("bool", "uint8", "float32"), [file.array.shape[:2] or (4, 4)])
        files, own = [*files, ("mask.npy", File(mask, ".npy"))], ["--mask", random.choice(MASKS)]
    elif kind != "denoise":
        kernel = array(random, ("float32", "uint8"), [(3, 3), (3, 5), (1, 1)] * 4 + [(4,), (40, 40)])
        files, own = [*files, ("k.npy", File(kernel, ".npy"))], ["--kernel", random.choice(KERNELS)]
    if kind == "upscale":
        own += ["--scale", random.choice(["2", "2", "2", "3", "17", "x"])]
    others = tuple(name for name, _ in files[1:])
    target, links, old = _place(random, source, others)
    if random.random() < 0.2:
        own += ["--simulate", "--save-degraded", random.choice(["d.png", "d.npy", source, target, *others])]
    return Command((kind, *_options(random), *own, "--", source, target), tuple(files), links, old)


def _ct(random: Random) -> Command:
    """Sinograms of a few angles."""
    angles, bins = random.randint(1, 8), side(random)
    shapes = [(angles, bins)] * 8 + [(2, angles, bins), (bins, angles), (bins,)]
    sinogram = array(random, ("float32", "float64", "uint16") * 4 + ("complex64",), shapes, MEASURED)
    listed = array(random, ("float32", "float32", "str"), [(angles,)], MEASURED)
    target, links, old = _place(random, "in.npy", ("a.npy",))
    given = random.choice([str(angles)] * 9 + ["a.npy", "0,45", "x", "-3"])
    arguments = ("ct", *_options(random), "--angles", given, *random.choice(ROTATIONS), "--", "in.npy", target)
    return Command(arguments, (("in.npy", File(sinogram, ".npy")), ("a.npy", File(listed, ".npy"))), links, old)


def _mri(random: Random) -> Command:
    """k-space of one slice or several, of one coil or several."""
    size = side(random), side(random)
    shape = random.choice([size, (1, *size), (2, *size), (2, 2, *size)] * 3 + [size[:1]])
    kspace = array(random, ("complex64",) * 8 + ("float32", "struct"), [shape], MEASURED)
    maps = array(random, ("complex64", "complex64", "float32"), [shape], MEASURED)
    target, links, old = _place(random, "in.npy", ("maps.npy",))
    sigma = ("--sigma", "0.05") if random.random() < 0.7 else ()  # that of numbers without an image is hard to estimate
    arguments = ("mri", *sigma, *_options(random), *random.choice(SCANS), "--", "in.npy", target)
    return Command(arguments, (("in.npy", File(kspace, ".npy")), ("maps.npy", File(maps, ".npy"))), links, old)


def _other(random: Random) -> Command:
    """What does not begin with a picture, or does not end with one."""
    file = picture(random)
    source, quick = "in" + file.suffix, ("--max-iterations", "1")
    lines = [
        ("denoise",),
        ("denoise", source),
        ("denoise", source, source, "out.png"),
        ("denoise", "folder", "folder"),
        ("denoise", ".", "folder", *quick),
        ("denoise", ".", "out", "--recursive", "--json", *quick),
        ("denoise", "", ""),
        ("info", source),
        ("info", "--json"),
        ("train", source, "--output", "folder"),
        ("benchmark", "denoising", "folder"),
        (random.choice(NAMES),),
        ("--version",),
        ("--help",),
        ("denoise", "--help"),
    ]
    return Command(random.choice(lines), ((source, file),))
