"""Follow steps in Chromium and take pictures. Runs in the environment that has playwright, with the
steps on standard input.

A step is a list: `["open", url]`, `["click", selector]`, `["hover", selector]`, `["type", text]`,
`["press", key]`, `["scroll", selector]`, `["wait", selector]`, `["gone", selector]`, `["shot",
file]`. A selector is one of playwright.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

COLOURS = 128  # in a picture; with them one of 1,400 × 900 points takes 40 to 140 kB
WIDTH = 1200
# charts move into place after their data came; no element shows that they are done
DRAWING_MS = 3000
TIMEOUT_MS = 60_000  # for an element; the first page of a product takes long on a busy machine


def main(chromium: str, width: str, height: str) -> None:
    """Follow the steps; an element that does not come ends the program with what the page shows."""
    from playwright.sync_api import Error, sync_playwright

    options = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--proxy-server=direct://"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        page = browser.new_page(
            viewport={"width": int(width), "height": int(height)}, timezone_id="UTC", locale="en-GB"
        )
        page.set_default_timeout(TIMEOUT_MS)
        for step in json.load(sys.stdin):
            try:
                _follow(page, *step)
            except Error as error:
                page.screenshot(path=str(Path(tempfile.gettempdir(), "failed.png")))
                sys.exit(f"{step}: {error}\n{page.inner_text('body')[:3000]}")
        browser.close()


def _follow(page: Any, action: str, *words: str) -> None:
    match action:
        case "open":
            page.goto(words[0], wait_until="load")
        case "wait":
            page.locator(words[0]).first.wait_for()
        case "gone":
            page.locator(words[0]).first.wait_for(state="detached")
        case "click":
            page.locator(words[0]).first.click()
        case "hover":
            page.locator(words[0]).first.hover()
        case "scroll":
            page.locator(words[0]).first.scroll_into_view_if_needed()
        case "type":
            # at once: an editor that completes names loses keys on a busy machine
            page.keyboard.insert_text(words[0])
        case "press":
            page.keyboard.press(words[0])
        case "shot":
            page.wait_for_timeout(DRAWING_MS)
            page.screenshot(path=words[0])
            _reduce(Path(words[0]))


def _reduce(path: Path) -> None:
    from PIL import Image

    with Image.open(path) as picture:
        height = round(picture.height * WIDTH / picture.width)
        small = picture.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        # MAXCOVERAGE keeps the colours of thin lines, which the default gives up for shades of
        # large areas.
        small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
