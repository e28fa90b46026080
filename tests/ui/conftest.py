"""A real browser in front of pages; `make ui` installs what it needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.flow.ui.conftest import ServedWithPage

AXE = Path(os.environ.get("AXE", ".venv-ui/axe/package/axe.min.js"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "Chromium is not installed; `make ui` says how to install it"
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--proxy-server=direct://"]
        launched = playwright.chromium.launch(executable_path=chromium, args=options)
        yield launched
        launched.close()


OpenPage = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[OpenPage]:
    """Opens addresses in pages; no page may ask another host, raise or break its policy."""
    wrong: list[str] = []
    contexts: list[Any] = []

    def open_page(address: str, **options: Any) -> Page:
        options = {"viewport": {"width": 1280, "height": 860}} | options
        contexts.append(context := browser.new_context(**options))
        page = context.new_page()
        page.set_default_timeout(120_000)
        origin = address.split("#")[0].rstrip("/")
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((origin, "data:")) else wrong.append(request.url)
            ),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        page.on(
            "console",
            lambda line: wrong.append(line.text) if "Content Security" in line.text else None,
        )
        page.add_init_script(path=AXE)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., ServedWithPage]]:
    """Makes receivers, and ends what is left of them."""
    made: list[ServedWithPage] = []

    def make(**config: Any) -> ServedWithPage:
        made.append(ServedWithPage(tmp_path, **config))
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            each.end()
