"""Pages of foreign results: nothing of them runs, and nothing private is in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from dtsweep.page import page_of, write_page
from tests.hostile import GIVEN_AWAY, NODE, PAYLOADS, PRIVATE, store_hostile
from tests.page.browser import chromium, draw_all, opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.filterwarnings("ignore")
def test_no_text_of_hostile_results_runs(browser: Browser, tmp_path: Path) -> None:
    write_page(page_of(str(store_hostile(tmp_path / "results"))), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as (page, seen):
        draw_all(page)
        for details in page.locator("details").all():
            details.evaluate("details => { details.open = true }")
        page.locator("#trial").select_option(index=3)
        for mark in page.locator("#frontier-plot .point").all()[:8]:
            mark.hover(force=True)
        assert page.evaluate("window.owned") is None
        assert seen.requests == []
        assert seen.complaints == []
        assert page.locator("img, a[href^='javascript:'], main svg[onload]").count() == 0
        # Shown as they are written, in the table of failures.
        text = page.locator("#failures").inner_text()
        assert PAYLOADS["attribute"] in text
        assert PAYLOADS["address"] in text
        assert "\\x1b]0;owned" in text


@pytest.mark.filterwarnings("ignore")
def test_a_page_holds_nothing_private(tmp_path: Path) -> None:
    folder = store_hostile(tmp_path / "results", {"private": PRIVATE})
    made = page_of(str(folder))
    # Plotly has words of its own.
    own = made.partition("<script>")[0]
    assert [part for part in GIVEN_AWAY if part in own] == []
    assert NODE not in own
