"""Pictures of the page of `deal app`, step by step, as a person sees it who comes for the first time.

    python tools/page_pictures.py docs/images            # light, 1400 pixels wide
    python tools/page_pictures.py FOLDER --width 390 --dark

It starts `deal app`, takes a sample, waits for the result, clicks on a pixel, and says after how many seconds each step
was there. It needs playwright and chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torchdeal.extras import optional

QUIET = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"
HEIGHT = 900
PATIENCE = 120_000  # milliseconds


@contextmanager
def page_address() -> Iterator[str]:
    """Of `deal app`, which ends with the block."""
    command = [sys.executable, "-m", "torchdeal", "app", "--no-browser", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(word for word in process.stdout.readline().split() if word.startswith("http"))
        finally:
            process.terminate()


def record(folder: Path, width: int, dark: bool) -> None:
    """Write `app-1.png` and so on."""
    playwright = optional("playwright.sync_api", "tools/page_pictures.py", "dev")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("Error: there is no chromium: apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with page_address() as address, playwright.sync_playwright() as starting:
        browser = starting.chromium.launch(executable_path=chromium, args=QUIET.split())
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
        page.set_default_timeout(PATIENCE)

        def keep(step: int, what: str) -> None:
            page.screenshot(path=folder / f"app-{step}.png", full_page=width < HEIGHT)
            print(f"app-{step}.png  {what}, after {time.monotonic() - started:.1f} s")

        page.goto(address)
        page.locator("#samples button").first.wait_for()
        keep(1, "the page is open")
        page.click("#samples button >> nth=0")
        page.locator("#status", has_text="Done").wait_for()
        page.wait_for_timeout(500)  # the last pictures appear
        keep(2, "a sample is denoised")
        box = page.locator("#stage").bounding_box()
        assert box is not None
        page.locator("#stage").click(position={"x": 0.42 * box["width"], "y": 0.38 * box["height"]})
        page.locator("#view-about", has_text="Its value is").wait_for()
        page.wait_for_timeout(500)
        keep(3, "what a pixel was averaged from")
        browser.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the steps."""
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python tools/page_pictures.py", description=__doc__, formatter_class=about)
    parser.add_argument("folder", type=Path, help="where the pictures go; those of the same names are replaced")
    parser.add_argument("--width", type=int, default=1400, help="of the window, in pixels (default: 1400)")
    parser.add_argument("--dark", action="store_true", help="as a person with dark windows sees it")
    given = parser.parse_args(arguments)
    record(given.folder, given.width, given.dark)


if __name__ == "__main__":
    main()
