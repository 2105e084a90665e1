"""Pages of foreign results: nothing of them runs, and nothing private is in them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from dtsweep.results.store import Results
from dtsweep.show import points_table
from dtsweep.show.page import write_page
from tests.frames import trials
from tests.hostile import PAYLOADS, store_hostile, write_rows
from tests.report.study import measured
from tests.show.browser import chromium, draw_all, opened
from tests.show.stored import page_of, plain, store_campaign


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_text_of_hostile_results_runs(browser: Browser, tmp_path: Path) -> None:
    # The payloads are names of hosts, too; without them, a page would have no payload left.
    payloads = PAYLOADS | {"link": '<a href="javascript:window.owned=1">$x$ &lt; %{x}</a>'}
    results = str(store_hostile(tmp_path / "results", payloads))
    write_page(page_of(Results(results), with_hosts=True), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as (page, seen):
        draw_all(page)
        for details in page.locator("details").all():
            details.evaluate("details => { details.open = true }")
        for mark in page.locator("#frontier-plot .point").all()[:8]:
            mark.hover(force=True)
        assert page.evaluate("window.owned") is None
        assert seen.requests == []
        assert seen.complaints == []
        assert page.locator("svg a, .hoverlayer a").count() == 0
        assert page.locator("img, a[href^='javascript:'], main svg[onload]").count() == 0
        # Shown as they are written, in the table of failures.
        text = page.locator("#failures").inner_text()
        assert PAYLOADS["attribute"] in text
        assert PAYLOADS["address"] in text
        assert "\\x1b]0;owned" in text


@pytest.mark.filterwarnings("ignore")
def test_a_page_names_no_host_no_user_and_no_home_folder(tmp_path: Path) -> None:
    where = "rank 0 on node-7.corp.example: no /home/annlee/data of annlee"
    folder = store_hostile(tmp_path / "results", {"private": "/home/annlee/data"})
    rows = [
        measured({"sync": "ddp"}, micro_batch=2, accumulation=1, workers=1)
        | dict.fromkeys(("attempt_id", "trial_id", "point_id"), f"failed{number}")
        | {"status": "rank_died", "reason": where, "log": f"/tmp/node-7/{number}", "row_number": 90}
        for number in range(2)
    ]
    rows += [
        measured({"sync": "ddp"}, micro_batch=2, accumulation=1, workers=2)
        | dict.fromkeys(("attempt_id", "trial_id", "point_id"), "slow")
        | {"straggler": "rank 1 on node-7", "gradients_reason": where, "row_number": 91}
    ]
    write_rows(folder, "trials", plain(trials(*rows)), workload_types={"layers": int})
    own = texts_of(page_of(Results(folder)))
    assert [part for part in ("node-7", "annlee", "/home/") if part in own] == []
    assert "left out (--with-hosts keeps it)" in own
    own = texts_of(page_of(Results(folder), with_hosts=True))
    assert "node-7.corp.example" in own
    assert "/home/" not in own


def packed(page: str) -> str:
    """The plots of a page, as JSON text."""
    text = page.partition('id="packed">')[2].partition("</script>")[0]
    return zlib.decompress(base64.b64decode(text)).decode()


def texts_of(page: str) -> str:
    """A page without its scripts, and its plots."""
    return page.partition('id="data">')[0] + packed(page)


def stored(folder: Path, *datas: str, node: str = "node-7") -> str:
    """Write a point for each text of `workload.data`."""
    rows, ranks = [], []
    for number, data in enumerate(datas):
        name = f"trial{number}"
        names = {"attempt_id": name, "trial_id": name}
        row = measured({"sync": "ddp"}, micro_batch=4, accumulation=1, workers=1)
        rows.append(row | names | {"point_id": name, "workload_data": data, "row_number": number})
        ranks.append(names | {"rank": 0, "node": node, "machine": "{}"})
    types = {"layers": int, "data": str}
    write_rows(folder, "trials", plain(trials(*rows)), workload_types=types)
    write_rows(folder, "ranks", ranks)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frontier", "mode"])
def test_a_page_keeps_its_own_names_whatever_users_and_hosts_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    results = stored(tmp_path / "r", "a", "b", node=name)
    monkeypatch.setenv("LOGNAME", name)
    page = page_of(Results(results))
    assert 'id="frontier-plot"' in page
    frontier = json.loads(packed(page))[0]
    assert frontier["name"] == "frontier"
    assert {"x", "y", "mode"} <= set(frontier["traces"][0])


def test_marks_of_direction_are_shown_as_they_are_written(tmp_path: Path) -> None:
    page = page_of(Results(stored(tmp_path / "r", "abc\u202egpj", "b")))
    assert "\\u202e" not in packed(page).replace("\\\\u202e", "")
    assert "\u202e" not in page


@pytest.mark.slow
def test_a_filter_tells_apart_what_differs(browser: Browser, tmp_path: Path) -> None:
    page = page_of(Results(stored(tmp_path / "r", "", "x", "y")))
    write_page(page, tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as (page, _):
        choice = page.locator("[data-choice]").last
        assert choice.locator("option").all_inner_texts() == ["any", "(empty)", "x", "y"]
        choice.select_option(index=1)
        assert page.locator("#shown").inner_text() == "1 of 3 points shown"


def test_numbers_that_differ_are_choices_of_their_own() -> None:
    numbers = (0.12345678, 0.12345679, 5.0, 1048577.0, 0.1)
    shown = ["0.12345678", "0.12345679", "5", "1048577", "0.1"]
    assert [points_table._value(number) for number in numbers] == shown


@pytest.mark.slow
def test_a_page_of_a_thousand_trials_has_at_most_three_mebibytes(tmp_path: Path) -> None:
    made = page_of(Results(store_campaign(tmp_path)))
    assert made.count('<tr><td class="on-screen check">') == 500
    assert len(made.encode()) <= 3 * 2**20


def test_a_page_without_trials_says_so(tmp_path: Path) -> None:
    failed = {"status": "oom_device", "reason": "no memory", "attempt_id": "a", "trial_id": "t"}
    write_rows(tmp_path, "trials", [failed | {"role": "trial", "point_id": "p", "repeat": 1}])
    assert "No trial ended ok" in page_of(Results(tmp_path))
