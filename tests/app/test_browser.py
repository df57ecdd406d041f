"""The page in a browser: what a person does, from the picture to the download."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from app.visitors import as_file, noisy_pixels
from PIL import Image

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need pip install playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="tests in a browser need chromium: apt-get install chromium")

QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SECONDS = 60_000  # milliseconds that a page may take on a busy machine


@pytest.fixture(scope="module")
def address():
    """Of `deal app`, in a process of its own. It ends when it is told to."""
    command = [sys.executable, "-m", "torchdeal", "app", "--no-browser", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line
        yield line.split()[4]
        process.terminate()
        assert process.wait(20) in (0, 143)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as starting:
        browser = starting.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


@pytest.fixture
def enter(browser, address):
    """A new person at the page; an error in a script fails the test."""
    contexts, errors = [], []

    def entering(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        page.locator("#samples button").first.wait_for()
        return page

    yield entering
    for context in contexts:
        context.close()
    assert errors == []


def bring(page, content, name="photo.png"):
    page.set_input_files("#file", {"name": name, "mimeType": "application/octet-stream", "buffer": content})


def done(page):
    page.locator("#status", has_text="Done").wait_for()


def choose(page, goal):
    page.check(f"[name=goal][value={goal}]", force=True)


def test_upload_to_download(enter, tmp_path):
    page = enter()
    noisy = noisy_pixels(size=48)
    bring(page, as_file(noisy))
    page.locator("#status", has_text="Press Reconstruct").wait_for()
    assert page.inner_text("#picture-about") == "photo.png: 48 x 48, gray, uint8"
    page.click("#go")
    done(page)
    with page.expect_download() as downloading:
        page.click("#download")
    assert downloading.value.suggested_filename == "photo-denoised.png"
    downloading.value.save_as(tmp_path / "denoised.png")
    denoised = np.asarray(Image.open(tmp_path / "denoised.png"))
    assert (denoised.shape, denoised.dtype) == (noisy.shape, noisy.dtype)
    assert page.inner_text("#command").startswith("deal denoise photo.png denoised.png")
    assert "td.reconstruct(" in page.inner_text("#python")
    assert page.locator("#curves polyline.residual").get_attribute("points")
    assert float(page.input_value("[data-knob=sigma] input[type=number]")) > 5  # found, and shown


BAD = {
    "no picture": ("letter.txt", b"Dear", "Files of type .txt are not taken"),
    "text": ("photo.png", b"Dear", "not a readable image"),
    "empty": ("photo.png", b"", "The file is empty"),
    "tiny": ("photo.png", as_file(np.zeros((3, 3), np.uint8)), "too small"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused_in_words(kind, enter):
    (name, content, words), page = BAD[kind], enter()
    bring(page, content, name)
    page.locator("#error", has_text=words).wait_for()
    assert page.is_disabled("#go")
    bring(page, as_file(noisy_pixels(size=16)))  # and one can go on
    page.locator("#status", has_text="Press Reconstruct").wait_for()
    assert page.is_hidden("#error")


def run_for_long(page):
    bring(page, as_file(noisy_pixels(size=300)))
    page.locator("#status", has_text="Press Reconstruct").wait_for()
    page.locator("summary").click()
    page.select_option("#weights", "full")
    page.select_option("#tolerance", "0.0001")
    page.click("#go")


def test_two_people_at_once_and_a_cancelled_run(enter):
    first, second = enter(), enter()
    run_for_long(first)
    first.locator("#status", has_text="Running").wait_for()
    second.click("#samples button >> nth=0")
    second.locator("#status", has_text="1 before you").wait_for()
    first.click("#cancel")
    first.locator("#status", has_text="Cancelled").wait_for(timeout=3000)
    assert first.is_hidden("#cancel")
    done(second)
    first.click("#samples button >> nth=0")  # and one can go on
    done(first)


def test_the_clicked_pixel_the_mask_and_the_error_bars(enter):
    page = enter()
    bring(page, as_file(noisy_pixels("astronaut", size=32)))
    page.locator("#status", has_text="Press Reconstruct").wait_for()
    page.click("#go")
    done(page)
    box = page.locator("#stage").bounding_box()
    page.locator("#stage").click(position={"x": 0.25 * box["width"] + 2, "y": 0.75 * box["height"] + 2})
    page.locator("#view-about", has_text="Row 24, column 8. Its value is").wait_for()
    assert page.is_visible("#marker")
    assert "pictures/weights" in page.get_attribute("#layer", "src")
    page.click("[data-view=mask]")
    page.locator("#legend-low", has_text="protected").wait_for()
    page.click("[data-view=error_bars]")
    page.locator("#view-about", has_text="How far off").wait_for()
    page.fill("#pixel-row", "40")
    page.click("#pixel-go")
    page.locator("#error", has_text="outside of the picture").wait_for()


def test_the_certificate(enter):
    page = enter()
    bring(page, as_file(noisy_pixels(size=16)))
    page.locator("#status", has_text="Press Reconstruct").wait_for()
    page.click("#go")
    done(page)
    page.click("#certificate-go")
    page.locator("#certificate li").first.wait_for()
    assert "fixed point" in page.inner_text("#certificate")


def test_missing_parts_are_painted(enter):
    page = enter()
    bring(page, as_file(noisy_pixels(size=32, sigma=3)))
    page.locator("#status", has_text="Press Reconstruct").wait_for()
    choose(page, "inpaint")
    page.locator("#status", has_text="Paint over").wait_for()
    page.click("#go")
    page.locator("#error", has_text="Paint over what is missing first").wait_for()
    box = page.locator("#mask-board").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"], steps=5)
    page.mouse.up()
    page.click("#go")
    done(page)
    assert "deal inpaint photo.png mask.png whole.png" in page.inner_text("#command")


def test_another_choice_takes_the_old_result_away(enter):
    page = enter()
    choose(page, "inpaint")
    page.locator("#samples button").first.click()
    done(page)
    page.select_option("#mask-kind", "brush")
    page.locator("#status", has_text="Paint over").wait_for()
    page.wait_for_timeout(600)  # an answer to an older question could still arrive
    assert page.is_hidden("#facts")
    assert page.is_visible("#mask-board")


def test_a_kernel_is_drawn_by_the_keyboard(enter):
    page = enter()
    bring(page, as_file(noisy_pixels(size=32, sigma=3)))
    page.locator("#status", has_text="Press Reconstruct").wait_for()
    choose(page, "deblur")
    page.select_option("#kernel-kind", "draw")
    page.select_option("#boundary", "circular")
    page.focus("#kernel-board")
    for key in ("Space", "ArrowRight", "Space", "ArrowRight", "Space"):
        page.keyboard.press(key)
    page.click("#go")
    done(page)
    assert "--kernel kernel.png" in page.inner_text("#command")


def test_the_keyboard_alone_on_a_phone(enter):
    page = enter(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page.focus("#samples button >> nth=0")
    page.keyboard.press("Enter")
    done(page)
    page.focus("#slider")
    before = page.input_value("#slider")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#slider") != before
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_control_has_a_name_for_a_screen_reader(enter):
    page = enter()
    nameless = page.evaluate(
        """[...document.querySelectorAll("input, select, button, canvas, a[href]")].filter((control) =>
            !control.textContent.trim() && !control.labels?.length && !control.getAttribute("aria-label")
            && !control.getAttribute("aria-labelledby")).map((control) => control.id)"""
    )
    assert nameless == []
    assert page.evaluate("document.documentElement.lang") == "en"
