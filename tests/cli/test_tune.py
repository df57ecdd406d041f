"""Sigma and lam on clean pictures, and the file that the other commands take."""

import json
from pathlib import Path

import pytest
from cli.helpers import only_result, pixels, save
from PIL import Image

from torchdeal.cli import tune
from torchdeal.cli.parameters import read_parameters
from torchdeal.tuning import ScoredPair, TunedPair

QUICK = ("--model", "gray-light", "--max-iterations", 2)


@pytest.fixture
def clean():
    Path("clean").mkdir()
    save("clean/a.png", pixels(size=32))
    save("clean/b.png", pixels("coins", size=32, row=100, column=100))


@pytest.fixture
def few_steps(monkeypatch):
    """One step of the search: the first pair and its neighbours."""

    def search(score, sigma, lam):
        trials = tuple(ScoredPair(s, k, score(s, k)) for s, k in ((sigma, lam), (2 * sigma, lam), (sigma, 2 * lam)))
        return TunedPair(max(trials, key=lambda trial: trial.psnr), trials)

    monkeypatch.setattr(tune, "search_pair", search)


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("deblur", ("--kernel", "gaussian:1", "--boundary", "circular")),
        ("upscale", ("--scale", 2)),
        ("inpaint", ("--missing", 0.3)),
        ("mri", ("--acceleration", 2)),
        ("ct", ("--angles", 12)),
    ],
)
def test_every_problem_can_be_tuned(deal, clean, few_steps, problem, options):
    code, out, err = deal("tune", problem, "clean", "found.json", *options, *QUICK, "--json")
    assert code == 0, err
    held, told = json.loads(Path("found.json").read_text()), json.loads(out)
    assert held["problem"] == problem
    assert held["images"] == 2
    assert held["psnr"] == max(psnr for *_, psnr in held["surface"]) >= held["automatic_psnr"] - 0.5
    assert {name: told[name] for name in held} == held


def test_the_commands_take_what_was_found(deal, clean, few_steps):
    assert deal("tune", "deblur", "clean", "found.json", "--kernel", "gaussian:1", "--sigma", 5, *QUICK)[0] == 0
    sigma, lam = read_parameters(Path("found.json"))
    blur = ("deblur", "clean/a.png", "out.png", "--kernel", "gaussian:1", "--sigma", 5, "--simulate", "--json", *QUICK)
    with_file = only_result(deal(*blur, "--parameters", "found.json")[1])
    by_hand = only_result(deal(*blur, "--model-sigma", sigma, "--lam", lam)[1])
    assert with_file["simulation"]["psnr"] == pytest.approx(by_hand["simulation"]["psnr"], abs=1e-6)


def test_the_score_is_that_of_the_command(deal, clean, few_steps):
    blur = ("--kernel", "gaussian:1", "--sigma", 5, "--boundary", "circular", *QUICK)
    assert deal("tune", "deblur", "clean/a.png", "found.json", *blur)[0] == 0
    run = deal("deblur", "clean/a.png", "o.tif", *blur, "--simulate", "--json", "--parameters", "found.json")
    held = json.loads(Path("found.json").read_text())
    assert held["psnr"] == pytest.approx(only_result(run[1])["simulation"]["psnr"], abs=0.02)


def test_a_plot_is_drawn(deal, clean, few_steps):
    arguments = ("tune", "inpaint", "clean", "found.json", "--plot", "surface.png", *QUICK)
    code, _, err = deal(*arguments)
    assert code == 0, err
    assert Image.open("surface.png").size == (500, 400)
    assert "Use it with --parameters found.json" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("deblur", "clean", "found.json"), "deblur needs --kernel"),
        (("mri", "clean", "found.json", "--kernel", "gaussian:1"), "--kernel is for deblur and upscale"),
        (("inpaint", "clean", "found.json", "--missing", 1.5), "--missing must be between 0 and 1"),
        (("inpaint", "clean"), "give clean pictures and then the file to write"),
        (("inpaint", "nowhere.png", "found.json"), "no such file"),
        (("inpaint", "clean", "clean"), "name the file to write at the end, such as inpaint.json"),
        (("inpaint", "clean/b.png", "clean/a.png"), "name the file to write at the end"),
        (("inpaint", "clean", "no/found.json"), "no"),
        (("inpaint", "clean", "found.json", "--plot", "x.foo"), "a plot is one of .png"),
        (("inpaint", "clean/a.png", "clean/a.png"), "clean/a.png"),
    ],
)
def test_what_cannot_be_tuned(deal, clean, arguments, message):
    before = Path("clean/a.png").read_bytes()
    code, _, err = deal("tune", *arguments)
    assert code != 0
    assert message in err
    assert Path("clean/a.png").read_bytes() == before
    assert not Path("found.json").exists()


@pytest.mark.parametrize("held", ["", "[1, 2]", '{"sigma": 10}', '{"sigma": -1, "lam": 1}', '{"sigma": 1, "lam": "x"}'])
def test_other_files_are_no_parameters(deal, clean, held):
    Path("bad.json").write_text(held)
    code, _, err = deal("deblur", "clean/a.png", "out.png", "--kernel", "gaussian:1", "--parameters", "bad.json")
    assert code == 1
    assert "no parameters: deal tune writes files with sigma and lam" in err
    assert not Path("out.png").exists()


def test_nothing_but_parameters_is_replaced(deal, clean):
    Path("notes.json").write_text("[]")
    assert "no parameters" in deal("tune", "inpaint", "clean", "notes.json")[2]
    assert Path("notes.json").read_text() == "[]"


def test_parameters_stand_alone(deal, clean):
    Path("found.json").write_text('{"sigma": 10, "lam": 1}')
    arguments = ("deblur", "clean/a.png", "o.png", "--kernel", "gaussian:1", "--parameters", "found.json", "--lam", 2)
    assert "leave out --lam and --model-sigma" in deal(*arguments)[2]
    missing = (*arguments[:-3], "gone.json")
    assert "gone.json: no such file" in deal(*missing)[2]


def test_parameters_are_for_one_command(deal, clean):
    Path("found.json").write_text(json.dumps({"problem": "mri", "sigma": 10, "lam": 1.0}))
    code, _, err = deal("deblur", "clean/a.png", "o.png", "--kernel", "gaussian:1", "--parameters", "found.json")
    assert code == 1
    assert "found.json: these parameters were found for deal mri, not for deal deblur" in err
    assert not Path("o.png").exists()


def test_pairs_of_measured_and_clean_pictures(deal, clean):
    """What was measured elsewhere is as good as the simulation that it came from."""
    blur = ("--kernel", "gaussian:1", "--boundary", "reflect", "--sigma", 5, *QUICK)
    run = deal("deblur", "clean/a.png", "o.png", *blur, "--simulate", "--save-degraded", "measured.png")
    assert run[0] == 0, run[2]
    Path("measured").mkdir()
    Path("measured.png").rename("measured/a.png")
    assert deal("tune", "deblur", "clean/a.png", "simulated.json", *blur)[0] == 0
    assert deal("tune", "deblur", "clean/a.png", "pairs.json", *blur, "--measured", "measured")[0] == 0
    one, other = (json.loads(Path(name).read_text()) for name in ("simulated.json", "pairs.json"))
    assert other["automatic_psnr"] == pytest.approx(one["automatic_psnr"], abs=0.1)  # it was rounded to 8 bits
    assert other["psnr"] >= other["automatic_psnr"]


def test_pairs_must_fit(deal, clean):
    Path("measured").mkdir()
    arguments = ("tune", "deblur", "clean/a.png", "o.json", "--kernel", "gaussian:1", "--measured", "measured")
    assert "a.png: no such file; --measured has a file for each clean picture" in deal(*arguments)[2]
    save("measured/a.png", pixels(size=24))
    assert "does not have the size" in deal(*arguments)[2]
    assert "--measured is for deblur and upscale" in deal("tune", "inpaint", "clean", "o.json", *arguments[-2:])[2]
    assert not Path("o.json").exists()
