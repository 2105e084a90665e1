"""The page in a browser: search, sort, filters, linked selection, keyboard, accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from dtsweep.page import page_of, write_page
from tests.hostile import write_rows
from tests.page.browser import LAPTOP, PHONE, chromium, draw_all, opened
from tests.page.stored import store_study

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
    write_page(page_of(str(store_study(folder / "results"))), folder / "page.html")
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
    expect(drawn.locator("#shown")).to_have_text("48 of 48 points shown")
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
    expect(page.locator("#shown")).to_have_text("48 of 48 points shown")
    page.get_by_label("Search").fill("local_sgd")
    expect(page.locator("#shown")).to_have_text("12 of 48 points shown")
    page.get_by_label("workers", exact=True).select_option("2")
    assert rows(page).count() == 6
    page.get_by_label("step ms, at most").fill("60")
    assert 0 < rows(page).count() < 6
    page.get_by_role("button", name="Reset filters").click()
    expect(page.locator("#shown")).to_have_text("48 of 48 points shown")


def test_a_header_sorts_by_its_numbers_and_says_so(page: Page) -> None:
    header = page.get_by_role("columnheader", name="samples/s")
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
    rows(page).first.get_by_role("checkbox").check()
    expect(page.locator("#selected")).to_have_text("1 of 48 points selected")
    (frontier,) = set(page.evaluate(MARKS, "frontier"))
    assert set(page.evaluate(MARKS, "scaling")) <= {frontier}
    assert set(page.evaluate(MARKS, "memory")) <= {frontier}


def test_bars_and_lines_of_points_that_are_not_selected_are_faint(page: Page) -> None:
    bars = """() => document.getElementById('frontier-plot').data
      .flatMap(trace => trace.error_y?.array ?? []).filter(length => length !== null).length"""
    before = page.evaluate(bars)
    rows(page).first.get_by_role("checkbox").check()
    expect(page.locator("#selected")).to_have_text("1 of 48 points selected")
    assert page.evaluate(bars) <= 1 < before
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#selected")).to_have_text("")
    assert page.evaluate(bars) == before


def test_the_recommended_point_is_the_first_row_and_its_trial_is_open(
    browser: Browser, file: Path
) -> None:
    # The shared page may be sorted by now.
    with opened(browser, file) as (page, _):
        first = rows(page).first
        expect(first).to_contain_text("recommended")
        cells = page.locator("#table tbody tr > :nth-child(5)").all_inner_texts()
        rates = [float(cell.split(" ")[0].replace(",", "")) for cell in cells]
        assert rates[1:] == sorted(rates[1:], reverse=True)
        trial = page.locator("#trial option:checked").inner_text()
        assert trial == f"{first.get_by_role('checkbox').get_attribute('aria-label')} · repeat 2"


def test_a_name_stays_in_sight_when_the_table_is_scrolled_sideways(
    browser: Browser, file: Path
) -> None:
    with opened(browser, file, size=PHONE) as (page, _):
        expect(page.locator("#more-columns")).to_be_visible()
        page.locator("#table").evaluate("table => table.parentElement.scrollLeft = 400")
        box = rows(page).first.get_by_role("rowheader").bounding_box()
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
    assert 0 < count < 48
    assert len(set(page.evaluate(MARKS, "frontier"))) == count
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#selected")).to_have_text("")
    assert chosen(page) == []
    assert page.evaluate(MARKS, "frontier") == []


def test_a_filter_makes_other_points_faint_in_plots(page: Page) -> None:
    page.get_by_label("workers", exact=True).select_option("2")
    assert 0 < len(set(page.evaluate(MARKS, "frontier"))) <= 24


def test_the_steps_of_the_chosen_trial_are_drawn(page: Page) -> None:
    select = page.get_by_label("Trial", exact=True)
    select.select_option(index=7)
    trace = "document.getElementById('steps-plot').data"
    names = page.evaluate(f"{trace}.map(trace => trace.name)")
    assert names == ["warm-up", "measured", "median"]
    assert page.evaluate(f"{trace}[0].x.length + {trace}[1].x.length") <= 200
    expect(page.locator("#steps-words")).to_contain_text("Times of 240 steps")


def test_the_table_behind_a_plot_has_a_row_per_mark(page: Page) -> None:
    page.locator("details.numbers[data-plot=memory] summary").click()
    table = page.locator("details.numbers[data-plot=memory] tbody tr")
    expect(table).to_have_count(48)


def test_nothing_is_loaded_and_nothing_is_complained_of(browser: Browser, file: Path) -> None:
    with opened(browser, file) as (page, seen):
        draw_all(page)
        page.get_by_role("button", name="Dark theme").click()
        page.get_by_label("Search").fill("ddp")
        page.emulate_media(media="print")
        assert seen.requests == []
        assert seen.complaints == []


@pytest.mark.parametrize("size", [PHONE, LAPTOP], ids=["phone", "laptop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(
    browser: Browser, file: Path, size: tuple[int, int], scheme: str
) -> None:
    # The policy of the page would refuse the script of axe.
    with opened(browser, file, size=size, color_scheme=scheme, bypass_csp=True) as (page, _):
        draw_all(page)
        for details in page.locator("details").all():
            details.evaluate("details => { details.open = true }")
        rows(page).first.get_by_role("checkbox").check()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("size", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_nothing_is_wider_than_the_window(
    browser: Browser, file: Path, size: tuple[int, int]
) -> None:
    with opened(browser, file, size=size) as (page, _):
        draw_all(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


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
    assert {"theme", "search", "reset", "trial", "Skip to the answer"} <= reached
    assert {"samples/s", "Table of points"} <= reached
    assert any(label.startswith("min-") for label in reached)
    assert any(label.startswith("Table behind the plot") for label in reached)
    assert any(label.startswith("ddp workers=1") for label in reached)


def test_space_on_a_row_selects_its_point(page: Page) -> None:
    box = rows(page).nth(2).get_by_role("checkbox")
    box.focus()
    page.keyboard.press("Space")
    assert chosen(page) == [box.get_attribute("aria-label")]


def test_a_toggle_changes_the_theme_of_text_and_plots(page: Page) -> None:
    light = page.evaluate("document.getElementById('frontier-plot').layout.font.color")
    page.get_by_role("button", name="Dark theme").click()
    page.wait_for_function(
        "light => document.getElementById('frontier-plot').layout.font.color !== light", arg=light
    )
    assert page.get_by_role("button", name="Light theme").is_visible()


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


def test_headings_stand_in_order(page: Page) -> None:
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert all(later - level <= 1 for level, later in pairwise(levels))


def test_a_reload_keeps_search_selection_theme_and_place(browser: Browser, file: Path) -> None:
    with opened(browser, file) as (page, _):
        page.get_by_label("Search").fill("ddp")
        rows(page).first.get_by_role("checkbox").check()
        label = chosen(page)
        page.get_by_role("button", name="Dark theme").click()
        page.evaluate("scrollTo({top: 900, behavior: 'instant'})")
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.get_by_label("Search").input_value() == "ddp"
        assert chosen(page) == label
        assert page.get_by_role("button", name="Light theme").is_visible()
        page.wait_for_function("() => Math.abs(scrollY - 900) < 60")


def test_a_page_without_trials_says_so(tmp_path: Path) -> None:
    failed = {"status": "oom_device", "reason": "no memory", "attempt_id": "a", "trial_id": "t"}
    write_rows(tmp_path, "trials", [failed | {"role": "trial", "point_id": "p", "repeat": 1}])
    assert "No trial ended ok" in page_of(str(tmp_path))
