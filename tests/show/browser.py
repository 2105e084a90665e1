"""A real browser for pages: Chromium without a network, and what it complains of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PHONE, LAPTOP = (360, 740), (1280, 800)


@dataclass
class Seen:
    """Everything that a page did besides being shown."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser of the distribution."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, file: Path, *, size: tuple[int, int] = LAPTOP, **context: Any
) -> Iterator[tuple[Page, Seen]]:
    """Open a page from its file; every request for anything else is recorded and refused."""
    width, height = size
    window = browser.new_context(viewport={"width": width, "height": height}, **context)
    seen = Seen()
    page = window.new_page()
    url = file.as_uri()

    def refuse(route: Any) -> None:
        if route.request.url.partition("#")[0] == url:
            route.continue_()
        else:
            seen.requests.append(route.request.url)
            route.abort()

    page.route("**/*", refuse)
    page.on("console", lambda message: _note(seen, message))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    yield page, seen
    window.close()


def _note(seen: Seen, message: Any) -> None:
    # The driver of the graphics card tells of its speed; nothing else may be said.
    if "GL Driver Message" not in message.text:
        seen.complaints.append(f"{message.type}: {message.text}")


def draw_all(page: Page) -> None:
    """Draw every plot, as scrolling through the page does."""
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for(state="attached")
    page.wait_for_function(
        "() => Array.from(document.querySelectorAll('.plot')).every("
        "plot => plot.classList.contains('drawn'))"
    )
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
