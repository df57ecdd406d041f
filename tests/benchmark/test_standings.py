"""The tables of a comparison, of results that can be worked out on paper."""

import pytest
from results_by_hand import COLOUR, GRAY, denoising, other, rows, run

from torchdeal.benchmark.paper import PAPER
from torchdeal.benchmark.reporting.known import TO_PUBLISHED_TITLE, TO_RECIPE_TITLE
from torchdeal.benchmark.reporting.labels import LABELS, label
from torchdeal.benchmark.reporting.standings import (
    PAPER_TITLE,
    PSNR_TITLE,
    PUBLIC_CODE_TITLE,
    TO_OTHERS_TITLE,
    TO_PAPER_TITLE,
    comparison_sections,
)
from torchdeal.benchmark.reporting.tables import Best, Table, signed
from torchdeal.benchmark.results import Results, Row


def section(results, title=GRAY):
    return next(section for section in comparison_sections(results) if section.title == title)


def table(results, title, part=GRAY):
    """A table as a dictionary of its rows."""
    found = section(results, part)
    chosen = next(t for t in [*found.tables, *found.further, *found.details] if t.title == title)
    return {row[0]: list(row[1:]) for row in chosen.rows}


def test_means_ours_first_then_by_mean():
    found = table(denoising(), PSNR_TITLE)
    assert found == {
        "DEAL": ["31.60", "29.20"],
        "DEAL, light weights": ["31.40", ""],
        "BM3D": ["31.00", "28.50"],
        "WCRR": ["30.75", "(1 of 2)"],
    }
    assert list(found) == ["DEAL", "DEAL, light weights", "BM3D", "WCRR"]


def test_others_are_in_the_order_of_their_means():
    results = denoising()
    results.rows += rows("BSD68, sigma 15", "tv", other(30.99), other(30.99))
    results.rows += rows("BSD68, sigma 15", "crr", other(40), other(40))
    results.rows += rows("BSD68, sigma 25", "tv", other(28.6), other(28.6))
    # TV 29.80, BM3D 29.75; the others have all images in one column only: CRR 40, WCRR 30.75
    assert list(table(results, PSNR_TITLE))[2:] == ["Total variation", "BM3D", "CRR", "WCRR"]


def test_the_best_are_bold_unless_images_are_missing():
    results = denoising()
    results.rows += rows("BSD68, sigma 15", "tv", other(31.604), other(31.604))
    (main,) = section(results).tables
    bold = {(row[0], index) for row in main.rows for index, entry in enumerate(row) if isinstance(entry, Best)}
    assert bold == {("DEAL", 1), ("Total variation", 1), ("DEAL", 2)}


def test_values_of_the_paper_have_a_table_of_their_own():
    found = section(denoising())
    (quoted,) = [t for t in [*found.tables, *found.further] if t.quoted]
    assert quoted.title == PAPER_TITLE
    assert {row[0]: row[1:] for row in quoted.rows} == {
        method: [
            f"{values[method]:.2f}" if method in values else ""
            for values in (PAPER["denoising"][f"BSD68, sigma {s}"] for s in (15, 25))
        ]
        for method in PAPER["denoising"]["BSD68, sigma 25"]
    }
    measured = {row[0] for row in found.tables[0].rows}
    assert measured.isdisjoint({"DRUNet", "Prox-DRUNet", "SARR"})


def test_values_of_the_public_code_are_told_as_such():
    assert table(denoising(), PUBLIC_CODE_TITLE, COLOUR) == {"DEAL": ["33.95", "31.31"]}


def test_differences_from_the_paper():
    """The means are 31.60 and 29.20, the paper has 31.61 and 29.16. Of two values the interval is the two."""
    found = table(denoising(), TO_PAPER_TITLE)
    assert found["DEAL"] == ["-0.01 (-0.11 to +0.09)", "+0.04 (-0.06 to +0.14)"]
    assert "DEAL has at least the value of the paper in 1 of 2 columns." in section(denoising()).notes


@pytest.mark.parametrize("settings", [{"quick": True}, {"limit": 2}])
def test_a_trial_is_not_compared_with_the_paper(settings):
    found = section(denoising(**settings))
    assert TO_PAPER_TITLE not in [t.title for t in found.further]
    assert not any("of the paper" in note for note in found.notes)


def test_others_are_compared_with_what_their_authors_publish():
    """The means are 31.00 and 28.50 for BM3D, 30.75 for WCRR."""
    found = table(denoising(), TO_PUBLISHED_TITLE)
    assert found == {
        "BM3D": ["-0.07 (31.07)", "-0.07 (28.57)"],
        "BM3D, in the paper of DEAL": ["-0.13 (31.13)", "-0.11 (28.61)"],
        "WCRR": ["-0.46 (31.21)", ""],  # of sigma 25 an image is missing
    }


@pytest.mark.parametrize("settings", [{"quick": True}, {"limit": 2}])
def test_others_are_not_compared_in_a_trial(settings):
    assert TO_PUBLISHED_TITLE not in [t.title for t in section(denoising(**settings)).further]


def test_differences_between_methods_are_paired():
    found = table(denoising(), TO_OTHERS_TITLE)
    assert found["BM3D"] == ["+0.60 (+0.60 to +0.60)", "+0.70 (+0.70 to +0.70)"]
    assert found["WCRR"] == ["+0.85 (+0.70 to +1.00)", "-0.60"]  # of the one image that both have
    assert "DEAL" not in found


def test_variants_count_once():
    """Three kernels of one image and one of another: the mean is that of the two images."""
    results = denoising()
    cell = "BSD68, sigma 15"
    results.rows = [row for kernel in "123" for row in rows(cell, "deal", run(30), variant=kernel)]
    results.rows += rows(cell, "deal", run(0), run(20), variant="4")[1:]
    assert table(results, PSNR_TITLE)["DEAL"] == ["25.00"]


def test_images_of_which_variants_are_missing_have_no_value_yet():
    results = denoising()
    cell = "BSD68, sigma 15"
    results.rows = [row for kernel in "12" for row in rows(cell, "deal", run(30), run(31), variant=kernel)]
    results.rows += rows(cell, "deal-rule", run(20), run(21), variant="1") + rows(
        cell, "deal-rule", run(22), variant="2"
    )
    results.cells[cell]["problems"] = 4
    assert table(results, PSNR_TITLE)["DEAL, sigma and lam from the noise"] == ["(3 of 4)"]
    assert table(results, f"PSNR of each image: {cell}") == {"a": ["30.00", "21.00"], "b": ["31.00", ""]}


def test_each_way_of_choosing_the_parameters_is_compared_with_the_paper():
    results = denoising()
    results.rows += rows("BSD68, sigma 15", "deal-rule", run(31.62), run(31.62))
    results.rows += rows("BSD68, sigma 25", "deal-rule", run(29.1), run(29.1))
    name = "DEAL with sigma and lam from the noise has at least the value of the paper"
    assert f"{name} in 1 of 2 columns." in section(results).notes


def test_how_it_ran():
    found = table(denoising(), "How it ran, over all columns")
    assert found["DEAL"] == ["4", "3 of 4", "17 (30)", "40 (40)", "0.5", "4", "H200"]
    assert found["BM3D"] == ["4", "", "", "", "2", "1", "CPU"]  # wherever the others run
    each = [row for row in section(denoising()).details[0].rows if row[0] == "DEAL"]
    expected = [["sigma 15", "2", "2 of 2", "12 (14)"], ["sigma 25", "2", "1 of 2", "25 (30)"]]
    assert [row[1:5] for row in each] == expected


def test_columns_in_which_nothing_stands_are_left_out():
    results = denoising()
    results.rows = rows("BSD68, sigma 15", "bm3d", {"psnr": 31.0}, {"psnr": 30.0})
    (found,) = [part for part in section(results).further if part.title == "How it ran, over all columns"]
    assert list(found.head[1:]) == ["problems", "device"]
    assert found.rows == [["BM3D", "2", "CPU"]]


def test_values_of_each_image():
    assert table(denoising(), "PSNR of each image: BSD68, sigma 25") == {
        "a": ["29.30", "28.60", "29.90"],
        "b": ["29.10", "28.40", ""],
    }


def test_a_value_that_is_no_number_is_missing(tmp_path):
    results = denoising()
    results.rows += rows("BSD68, sigma 25", "tv", other(float("nan")), other(28.0))
    results.save(tmp_path)
    assert table(Results.load(tmp_path / "denoising.json"), PSNR_TITLE)["Total variation"] == ["", "(1 of 2)"]


def test_where_published_values_are_from_and_which_methods_have_none():
    results = denoising()
    results.rows += rows("BSD68, sigma 25", "nlm", other(27.0), other(28.0))
    notes = section(results).notes
    assert "BM3D: as the authors of DnCNN report it. The package bm3d is newer." in notes
    assert not any(note.startswith("EPLL: as in") for note in notes)  # it was not measured
    assert "No published value for these images is known here: Non-local means." in notes


def test_the_value_of_a_recipe_is_for_the_first_images_where_nothing_is_published():
    """That of PnP-DnCNN is 31.648 for eight images, those of DnCNN are published, for all."""
    results = denoising()
    names = [f"{number:02d}" for number in (9, *range(1, 9))]  # the ninth of them stands first
    results.rows += [Row("BSD68, sigma 15", name, "pnp-dncnn", other(50.0 if name == "09" else 31.7)) for name in names]
    results.rows += rows("BSD68, sigma 25", "dncnn", other(29.0), other(29.4))
    assert table(results, TO_RECIPE_TITLE) == {"PnP-DnCNN": ["+0.05 (31.65)"]}
    published = table(results, TO_PUBLISHED_TITLE)
    assert published["DnCNN"] == ["", "-0.03 (29.23)"]
    assert "PnP-DnCNN" not in published


def test_too_few_images_for_a_recipe():
    results = denoising()
    results.rows += rows("BSD68, sigma 15", "pnp-dncnn", other(31.7), other(31.7))
    assert "No published value for these images is known here: PnP-DnCNN." in section(results).notes


def test_reasons_are_sentences():
    notes = section(denoising()).notes
    assert "DnCNN: not measured: there are no weights." in notes
    assert "DEAL, light weights, sigma 25: not measured: it is too late." in notes


def test_what_is_not_there_yet_and_what_is_only_quoted():
    *_, missing, quoted = section(denoising()).notes
    assert missing.startswith("Not measured yet: DEAL, mean over 8 symmetries; Total variation; ")
    assert "DnCNN" not in missing.replace("FDnCNN", "").replace("PnP-DnCNN", "")  # it has a reason
    assert "BM3D" not in missing
    assert quoted == "Quoted, not measured: SARR, SAFI, Prox-DRUNet, DRUNet. Their weights are not at hand."
    assert not any(note.startswith("Not measured yet") for note in section(denoising(limit=2)).notes)


def test_a_table_without_measurements_says_why():
    found = section(denoising(), COLOUR)
    assert found.tables == []
    assert found.notes == ["sigma 15; sigma 25: not measured: the images are licensed."]


def test_every_cell_of_the_paper_is_named():
    results = denoising()
    found = list(comparison_sections(results))
    words = "\n".join(note for part in found for note in part.notes)
    absent = [cell for cell in PAPER["denoising"] if cell not in results.cells]
    assert len(absent) == 5
    assert all(f"{cell}: not measured." in words for cell in absent)


def test_chosen_parameters_are_shown_with_their_table():
    results = denoising()
    results.parameters = {"BSD68, sigma 15": {"wcrr": {"lam": 0.25}}, "CBSD68, sigma 15": {"tv": {"lam": 1}}}
    found = table(results, "Parameters chosen on the tuning images")
    assert found == {"BSD68, sigma 15": ["WCRR", "lam 0.25"]}


def test_every_method_has_a_name_for_people():
    from torchdeal.benchmark.methods import OURS
    from torchdeal.benchmark.peers import DENOISERS, SOLVERS

    assert {*OURS, *DENOISERS, *SOLVERS} <= set(LABELS)
    assert (label("deepinv:DRUNet"), label("another")) == ("DRUNet (DeepInverse)", "another")


@pytest.mark.parametrize(("value", "text"), [(0.004, "+0.00"), (-0.004, "+0.00"), (-0.01, "-0.01"), (1.5, "+1.50")])
def test_signs(value, text):
    assert signed(value) == text


def test_a_table_shows_what_names_hold():
    text = str(Table(["a|b", "*x*"], [["<script>`[k](j)", Best("1 < 2")], ["line\nbreak", "\x1b[1m"]]))
    lines = text.splitlines()
    assert len(lines) == 4
    assert r"a\|b" in lines[0]
    assert r"\*x\*" in lines[0]
    assert r"\<script>\`\[k\](j)" in lines[2]
    assert "**1 < 2**" in lines[2]
    assert "line break" in lines[3]
    assert "\x1b" not in text
    assert len({len(line) for line in lines}) == 1
