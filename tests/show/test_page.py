"""The page in a browser: search, sort, filters, linked selection, keyboard, accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from dtsweep.report.content import content_of
from dtsweep.results.store import Results
from dtsweep.show.page import page_of_plots, write_page
from dtsweep.show.scaling_plot import scaling_plot
from tests.frames import trials
from tests.show.browser import LAPTOP, PHONE, chromium, draw_all, opened
from tests.show.stored import page_of, store_study

pytestmark = pytest.mark.slow

MARKS = """name => {
  const element = document.getElementById(`${name}-plot`);
  return element.data.flatMap(trace => {
    const ids = trace.ids ?? [];
    return (trace.selectedpoints ?? []).map(place => ids[place]);
  });
}"""
"""Ids of the points that a plot highlights."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_page(page_of(Results(store_study(folder / "results"))), folder / "page.html")
    return folder / "page.html"


@pytest.fixture(scope="module")
def drawn(browser: Browser, file: Path) -> Iterator[Page]:
    with opened(browser, file) as (shown, _):
        draw_all(shown)
        yield shown


@pytest.fixture
def page(drawn: Page) -> Page:
    """The page with all plots drawn, nothing filtered and nothing selected."""
    drawn.evaluate("document.getElementById('reset').click()")
    drawn.evaluate("document.getElementById('clear').click()")
    expect(drawn.locator("#shown")).to_have_text("32 of 32 points shown")
    drawn.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    return drawn


def rows(page: Page) -> Any:
    return page.locator("#table tbody tr:visible")


def chosen(page: Page) -> list[str]:
    labels: list[str] = page.locator("#table tr.chosen input").evaluate_all(
        "inputs => inputs.map(input => input.getAttribute('aria-label'))"
    )
    return labels


def test_search_filters_and_limits_leave_the_rows_that_meet_all_of_them(page: Page) -> None:
    page.get_by_label("Search").fill("local_sgd")
    expect(page.locator("#shown")).to_have_text("8 of 32 points shown")
    page.get_by_label("workers", exact=True).select_option("2")
    assert rows(page).count() == 4
    # The others are faint in plots.
    assert 0 < len(set(page.evaluate(MARKS, "frontier"))) <= 4
    page.get_by_label("step ms, at most").fill("60")
    assert 0 < rows(page).count() < 4
    page.get_by_role("button", name="Reset filters").click()
    expect(page.locator("#shown")).to_have_text("32 of 32 points shown")


def test_a_header_sorts_by_its_numbers_and_says_so(page: Page) -> None:
    table = page.get_by_role("region", name="Table of points")
    header = table.get_by_role("columnheader", name="samples/s")
    place = header.evaluate("head => head.cellIndex")
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    cells = page.locator(f"#table tbody tr > :nth-child({place + 1})").all_inner_texts()
    rates = [float(cell.split(" ")[0].replace(",", "")) for cell in cells]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "ascending"


def test_a_row_of_the_table_is_highlighted_in_every_plot(page: Page) -> None:
    bars = """() => document.getElementById('frontier-plot').data
      .flatMap(trace => trace.error_y?.array ?? []).filter(length => length !== null).length"""
    before = page.evaluate(bars)
    box = rows(page).first.get_by_role("checkbox")
    box.focus()
    page.keyboard.press("Space")
    expect(page.locator("#selected")).to_have_text("1 of 32 points selected")
    assert chosen(page) == [box.get_attribute("aria-label")]
    (frontier,) = set(page.evaluate(MARKS, "frontier"))
    assert set(page.evaluate(MARKS, "shares")) <= {frontier}
    assert page.evaluate(bars) <= 1 < before, "bars of points that are not selected are faint"


def test_the_recommended_point_is_the_first_row(browser: Browser, file: Path) -> None:
    # The shared page may be sorted by now.
    with opened(browser, file, size=PHONE) as (page, _):
        first = rows(page).first
        expect(first).to_contain_text("recommended")
        cells = page.locator("#table tbody tr > :nth-child(5)").all_inner_texts()
        rates = [float(cell.split(" ")[0].replace(",", "")) for cell in cells]
        assert rates[1:] == sorted(rates[1:], reverse=True)
        # A name stays in sight when the table is scrolled sideways.
        expect(page.locator("#more-columns")).to_be_visible()
        page.locator("#table").evaluate("table => table.parentElement.scrollLeft = 400")
        box = first.get_by_role("rowheader").bounding_box()
        assert box
        assert box["x"] >= 0


def test_a_box_in_the_frontier_selects_rows_and_lines_until_it_is_cleared(page: Page) -> None:
    area = page.locator("#frontier-plot .nsewdrag").bounding_box()
    assert area
    page.mouse.move(area["x"] + 5, area["y"] + 5)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] - 5, steps=5)
    page.mouse.up()
    expect(page.locator("#selected")).to_contain_text("points selected")
    count = len(chosen(page))
    assert 0 < count < 32
    assert len(set(page.evaluate(MARKS, "frontier"))) == count
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#selected")).to_have_text("")
    assert chosen(page) == []
    assert page.evaluate(MARKS, "frontier") == []


def test_plots_have_their_table(page: Page) -> None:
    page.locator("details.numbers[data-plot=shares] summary").click()
    table = page.locator("details.numbers[data-plot=shares] tbody tr")
    expect(table).to_have_count(24)


@pytest.mark.parametrize("size", [(390, 844), LAPTOP])
def test_the_first_screen_has_the_answer_and_one_whole_plot(
    browser: Browser, file: Path, size: tuple[int, int]
) -> None:
    with opened(browser, file, size=size) as (page, _):
        page.wait_for_selector("#frontier-plot.drawn")
        shown = [page.locator(".answer p").last, page.locator("#frontier-plot")]
        shown += [page.locator(f"#frontier-plot .{axis}title") for axis in "xy"]
        for element in shown:
            box = element.bounding_box()
            assert box
            assert min(box["x"], box["y"]) >= 0
            assert box["x"] + box["width"] <= size[0]
            assert box["y"] + box["height"] <= size[1]
        assert "is the fastest" in page.locator(".first .figure h2").inner_text()


def test_a_page_of_plots_has_further_lines_when_somebody_asks(
    browser: Browser, tmp_path: Path
) -> None:
    rows = [
        {"workers": workers, "micro_batch": micro, "samples_per_s": 10.0 * micro * workers}
        for micro in range(1, 11)
        for workers in (1, 2, 4)
    ]
    made = page_of_plots("Trend", ["As `abc`.", "<b>"], [scaling_plot(content_of(trials(*rows)))])
    write_page(made, tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as (page, seen):
        page.wait_for_selector("#scaling-plot.drawn")
        assert page.locator(".words p").all_inner_texts() == ["As abc.", "<b>"]
        count = "document.getElementById('scaling-plot').data.length"
        assert page.evaluate(count) == 8
        page.get_by_role("button", name="Show all 10 groups").click()
        page.wait_for_function(f"{count} === 11")
        page.locator("details.numbers summary").click()
        expect(page.locator("details.numbers tbody tr")).to_have_count(20)
        assert seen.requests == []
        assert seen.complaints == []


@pytest.mark.parametrize(
    ("size", "scheme"),
    [(PHONE, "dark"), (PHONE, "light"), (LAPTOP, "dark"), (LAPTOP, "light")],
)
def test_axe_finds_no_violation_and_nothing_is_wider_than_the_window(
    browser: Browser, file: Path, size: tuple[int, int], scheme: str
) -> None:
    # The policy of the page would refuse the script of axe.
    with opened(browser, file, size=size, color_scheme=scheme, bypass_csp=True) as (page, _):
        draw_all(page)
        for details in page.locator("details").all():
            details.evaluate("details => { details.open = true }")
        rows(page).first.get_by_role("checkbox").check()
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_the_keyboard_alone_reaches_every_control(page: Page) -> None:
    reached = set()
    for _ in range(150):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("""() => {
          const focus = document.activeElement;
          return focus.id || focus.getAttribute('aria-label') || focus.textContent.trim();
        }""")
        )
    assert {"theme", "search", "reset", "Skip to the answer"} <= reached
    assert {"samples/s", "Table of points"} <= reached
    assert any(label.startswith("min-") for label in reached)
    assert any(label.startswith("Table behind the plot") for label in reached)
    assert any(label.startswith("ddp workers=1") for label in reached)


def test_paper_is_white_and_has_all_plots_as_wide_as_it_is(browser: Browser, file: Path) -> None:
    with opened(browser, file, color_scheme="dark") as (page, _):
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        widths = page.locator(".plot .main-svg:first-child").evaluate_all(
            "plots => plots.map(plot => plot.clientWidth)"
        )
        assert len(widths) == page.locator(".plot").count()
        assert max(widths) <= 680
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )


def test_flags_are_listed_once_and_skipped_trials_have_their_reason_at_once(page: Page) -> None:
    assert "Flags:" not in page.locator("#how").inner_text()
    summary = page.locator("#failures summary").first
    expect(summary).to_have_text("skipped: 1 trial: over 512 samples a step")
    assert "`" not in page.locator("main").inner_text()


def test_a_reload_keeps_search_selection_theme_and_place_and_loads_nothing(
    browser: Browser, file: Path
) -> None:
    with opened(browser, file) as (page, seen):
        draw_all(page)
        page.get_by_label("Search").fill("ddp")
        rows(page).first.get_by_role("checkbox").check()
        label = chosen(page)
        ink = "document.getElementById('frontier-plot').layout.font.color"
        light = page.evaluate(ink)
        page.get_by_role("button", name="Dark theme").click()
        page.wait_for_function(f"light => {ink} !== light", arg=light)
        page.evaluate("scrollTo({top: 900, behavior: 'instant'})")
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.get_by_label("Search").input_value() == "ddp"
        assert chosen(page) == label
        assert page.get_by_role("button", name="Light theme").is_visible()
        page.wait_for_function("() => Math.abs(scrollY - 900) < 60")
        page.emulate_media(media="print")
        assert seen.requests == []
        assert seen.complaints == []
