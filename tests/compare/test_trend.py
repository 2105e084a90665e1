"""The runs of some results over time: where they changed, as a page and in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtsweep.compare.markdown import markdown_of
from dtsweep.compare.trend import trend_of
from dtsweep.compare.trend_plot import trend_plot
from dtsweep.errors import SweepError
from tests.cli.called import as_json, called
from tests.compare.stored_runs import runs_in, store_run


@pytest.fixture(scope="module")
def ten_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One launch of each point on ten days; micro_batch=4 is a fifth slower from the seventh on."""
    place = tmp_path_factory.mktemp("trend") / "results"
    noise = np.random.default_rng(2).normal(1, 0.01, (10, 2))
    for day, (a, b) in enumerate(noise, 1):
        source = str(day >= 7)
        columns: dict[str, Any] = {"sources": f'{{"net.py": "{source}"}}'}
        columns |= {"workload_digest": source, "latency_s_low": 0.001, "latency_s_high": 1.0}
        rates = {4: [(80 if day >= 7 else 100) * a], 16: [200 * b]}
        store_run(place, rates, day=day, has_record=True, git_commit=f"{day:012x}", **columns)
    return place


def test_a_change_is_named_with_its_point_its_runs_and_what_changed_there(ten_runs: Path) -> None:
    (sentence,) = as_json("compare", ten_runs)["changes"]
    assert sentence.startswith(
        "Since the run of 2026-01-07 00:01 000000000007, 1 point changed, ddp micro_batch=4 most: "
        "samples_per_s is 0.798 times what it was. "
    )
    before = "Changed since the run of 2026-01-06 00:01 000000000006: net.py changed."
    assert sentence.endswith(before)
    assert sentence.split()[0] in called("compare", ten_runs).stdout


def test_lines_are_over_their_median_and_the_slowest_stands_first(ten_runs: Path) -> None:
    trend = trend_of(runs_in(ten_runs), of="latency_s")
    assert trend.changes["ddp micro_batch=4"] == (6, pytest.approx(1.25, rel=0.03))
    plot = trend_plot(trend)
    assert [line["name"] for line in plot.traces] == ["ddp micro_batch=4", "ddp micro_batch=16"]
    for line in plot.traces:
        assert line["y"][:6] == pytest.approx([1.0] * 6, abs=0.05)
        median = trend.points[line["name"]]["latency_s"].median()
        assert line["error_y"]["array"][0] == pytest.approx(1 / median - line["y"][0])
    assert plot.traces[0]["y"][6:] == pytest.approx([1.25] * 4, rel=0.05)
    (border,) = plot.layout["shapes"]
    assert border["x0"] == 5.5
    assert [run[:3] for run in plot.table["run"]][5:8] == ["6 ·", "7* ", "8 ·"]


def test_a_page_has_the_verdict_and_is_of_one_folder(ten_runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "speed.html"
    done = called("compare", ten_runs, "--html", page, "--markdown")
    text = page.read_text()
    for word in (*done.stdout.split("**")[1].split()[:6], "000000000007", "net.py changed"):
        assert word in text
    with pytest.raises(SweepError, match="--html shows the runs of one results folder"):
        called("compare", ten_runs, ten_runs, "--html", page)
    with pytest.raises(SweepError, match="--markdown and --json are two forms of the output"):
        called("compare", ten_runs, "--markdown", "--json")


def test_markdown_has_the_verdict_a_table_and_no_host_or_user(tmp_path: Path) -> None:
    base = store_run(tmp_path / "base", {4: [100.0, 101, 99], 16: [200.0, 202, 198]})
    new = store_run(tmp_path / "new", {4: [80.0, 81, 79], 16: [None]}, day=2)
    done = called("compare", base, new, "--markdown")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[:1] + lines[2].split(":")[:1] == ["### Speed, by dtsweep", "**Regression"]
    assert r"- No longer runs: ddp micro\_batch=16: nan" in lines
    (row,) = (line for line in lines if line.startswith(r"| ddp micro\_batch=4 | samples\_per\_s"))
    assert row.endswith("| regression |")
    assert row.count("|") == lines[lines.index(row) - 1].count("---") + 1
    assert str(tmp_path) not in done.stdout


def test_markdown_is_at_most_60_lines_and_mentions_nobody() -> None:
    row = dict.fromkeys(("ratio", "ratio_low", "ratio_high", "launches_base", "launches_new"), 1)
    row |= {"verdict": "slower", "is_regression": True, "of": "latency_s", "caution": ""}
    text = "@ada #12 /home/ada/net.py | <b>\n"
    compared: dict[str, Any] = {"words": text, "unit": "run", "threshold": 0.02}
    compared |= dict.fromkeys(("grew", "changes", "notes"), [text] * 50)
    compared |= {"rows": [row | {"label": text}] * 50}
    compared |= {"broken": [{"label": text, "status": "nan"}] * 50}
    written = markdown_of(compared)
    assert len(written.splitlines()) <= 60
    assert not any(word in written for word in ("@ada", "#12", "/home/ada", " | <b>"))
