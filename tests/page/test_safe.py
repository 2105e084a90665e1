"""Pages of foreign results: nothing of them runs, and nothing private is in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from dtsweep.page import page_of, write_page
from dtsweep.privacy import redactor_for
from dtsweep.results.store import Results
from tests.hostile import GIVEN_AWAY, PAYLOADS, PRIVATE, store_hostile
from tests.page.browser import chromium, draw_all, opened
from tests.page.stored import store_campaign


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.filterwarnings("ignore")
def test_no_text_of_hostile_results_runs(browser: Browser, tmp_path: Path) -> None:
    # The payloads are names of hosts, too; without them, a page would have no payload left.
    results = str(store_hostile(tmp_path / "results"))
    write_page(page_of(results, with_hosts=True), tmp_path / "page.html")
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
    redacted = redactor_for(Results(folder)).text(PRIVATE)
    left_out = [part for part in GIVEN_AWAY if part not in redacted]
    assert {"hunter2", "t0ps3cret", "/home/"} <= set(left_out)
    assert [part for part in left_out if part in own] == []


def test_a_page_of_a_thousand_trials_has_at_most_seven_mebibytes(tmp_path: Path) -> None:
    made = page_of(str(store_campaign(tmp_path)))
    assert made.count('<tr><td class="on-screen">') == 500
    assert len(made.encode()) <= 7 * 2**20
