"""Results of a workload that was changed since: what is compared with what."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtsweep.analysis.load import load, older_source, superseded
from dtsweep.report.content import content_of
from tests.compare.stored_runs import store_run
from tests.frames import trials

NET, OTHER = {"class Net": "1"}, {"class Net": "2"}


def made_of(entries: dict[str, str], **row: Any) -> dict[str, Any]:
    """A row of a workload of these sources."""
    sources = json.dumps(entries, sort_keys=True)
    return {"sources": sources, "workload_digest": f"digest of {sources}", **row}


CHANGED = "the class Net changed"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([NET, NET], [None, None]),
        ([NET, OTHER], [CHANGED, None]),
        # An edit that was taken back.
        ([NET, OTHER, NET], [None, CHANGED, None]),
        # A file or package that only one of the machines could see is no change.
        ([NET, NET | {"package timm": "1.0"}], [None, None]),
        ([NET | {"package timm": f"{n}"} for n in (0.9, 1.0)], ["timm 0.9 became 1.0", None]),
        ([NET, OTHER, {"class Net": "3"}], [CHANGED, CHANGED, None]),
    ],
)
def test_a_row_says_what_the_newest_row_of_its_workload_has_otherwise(
    rows: list[dict[str, str]], expected: list[str | None]
) -> None:
    frame = trials(*(made_of(entries) for entries in rows))
    assert older_source(frame).tolist() == expected


def test_other_data_are_no_other_source_and_data_that_changed_are() -> None:
    a, b, changed = (
        made_of(NET | {"field data": contents}, workload_data=f"/data/{name}")
        for name, contents in (("a", "a"), ("b", "b"), ("a", "changed"))
    )
    what = "the contents of the field data /data/a changed"
    for rows, expected in (
        ([a, b], [None, None]),
        ([a, changed, b], [what, None, None]),
        ([a, b, changed], [what, None, None]),
    ):
        assert older_source(trials(*rows)).tolist() == expected
    lists = [
        made_of(NET | {"field data[0]": name}, workload_data=f'["/data/{name}"]') for name in "ab"
    ]
    assert older_source(trials(*lists)).tolist() == [None, None]


@pytest.mark.slow
def test_workloads_of_two_names_are_not_compared_and_on_no_frontier_together() -> None:
    """No sweep has both: they are of `--rerun all` after a change of name."""
    frame = trials(made_of(NET, workload="Net"), made_of({"class Flash": "1"}, workload="Flash"))
    assert older_source(frame).tolist() == [None, None]
    assert [found.title for found in content_of(frame).frontiers] == [
        "Frontier · exact updates · Flash · ddp",
        "Frontier · exact updates · Net · ddp",
    ]


def test_the_newest_is_by_time_whatever_the_frame_s_order_and_labels() -> None:
    """As where two `load`s are joined."""

    def loaded(version: str, points: str, day: int) -> pd.DataFrame:
        at = pd.Timestamp(f"2026-01-0{day}", tz="UTC")
        rows = [made_of({"class Net": version}, point_id=p, started_at=at) for p in points]
        return trials(*rows)

    old, new = loaded("1", "ab", 1), loaded("2", "ac", 2)
    for frames in ([old, new], [new, old]):
        frame = pd.concat(frames)
        left_out = frame[older_source(frame).notna().to_numpy()]
        assert left_out["point_id"].tolist() == ["a", "b"]
        assert left_out["started_at"].equals(old["started_at"])


def test_an_unknown_source_canaries_and_failures_make_no_trial_an_older_one() -> None:
    unknown = trials({"workload_digest": None}, made_of(OTHER), made_of(NET))
    assert older_source(unknown).tolist() == [None, CHANGED, None]
    canary = made_of(OTHER, role="canary", step_mean_s=0.1, session="s")
    assert older_source(trials(made_of(NET), canary)).tolist() == [None, CHANGED]
    failed = made_of(OTHER, status="user_error", samples_per_s=None, step_p50_s=None)
    assert superseded(trials(made_of(NET), failed)).tolist() == [None, None]


def test_launches_of_a_point_in_an_older_environment_of_the_resources_are_superseded() -> None:
    """It is no part of a point's name, and stands beside `env_id`."""
    ring, tree = {"environment": '{"ALGO": "ring"}'}, {"environment": '{"ALGO": "tree"}'}
    points = (("a", ring), ("b", ring), ("a", tree))
    rows = [made_of(NET, point_id=name, **environment) for name, environment in points]
    assert superseded(trials(*rows)).tolist() == ["with another environment", None, None]


def test_load_keeps_the_newest_source_and_says_how_many_older_trials_it_left_out(
    tmp_path: Path,
) -> None:
    """As an interrupted `--rerun all` leaves them."""
    store_run(tmp_path, {4: [100], 16: [200]}, **made_of(NET))
    store_run(tmp_path, {4: [150]}, day=2, **made_of(OTHER))
    with pytest.warns(
        UserWarning, match=r"^1 older trial of .* left out, measured before the class Net changed;"
    ):
        frame = load(tmp_path)
    assert frame["samples_per_s"].tolist() == [150]


def test_load_says_nothing_where_all_trials_are_of_one_source(tmp_path: Path) -> None:
    store_run(tmp_path, {4: [100], 16: [200]}, **made_of(NET))
    store_run(tmp_path, {8: [50]}, role="canary", **made_of(OTHER))
    store_run(tmp_path, {4: [150]}, day=2, **made_of(NET | {"package timm": "1.0"}))
    store_run(tmp_path, {8: [50]}, day=2, role="canary", **made_of(NET))
    assert sorted(load(tmp_path)["samples_per_s"]) == [150, 200]
    # As a `--rerun all` leaves them that came to its end: canaries of an older source are no loss.
    assert sorted(load(tmp_path, canaries=True)["role"]) == ["canary", "trial", "trial"]


@pytest.mark.parametrize(
    ("status", "source", "kept"),
    [
        ("hang", OTHER, {4: "ok", 16: "hang"}),
        ("nan", OTHER, {4: "ok", 16: "nan"}),
        # One of the older source does not stand for a trial that is left out.
        ("hang", NET, {4: "ok"}),
    ],
)
def test_a_failure_of_the_newest_source_stands_where_an_older_one_was_ok(
    tmp_path: Path, status: str, source: dict[str, str], kept: dict[int, str]
) -> None:
    store_run(tmp_path, {4: [100], 16: [200]}, **made_of(NET))
    store_run(tmp_path, {16: [None]}, day=2, status=status, **made_of(source))
    store_run(tmp_path, {4: [150]}, day=3, **made_of(OTHER))
    warns = pytest.warns(UserWarning, match="^1 older trial of")
    with warns if status == "hang" else nullcontext():
        frame = load(tmp_path)
    assert frame.set_index("micro_batch")["status"].to_dict() == kept
