"""Results of a workload that was changed since: what is compared with what."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from dtsweep.analysis import canaries, difference, frontier, over_launches, scaling
from dtsweep.analysis.generations import older_source
from dtsweep.report.content import content_of
from tests.frames import trials

NET, OTHER = {"class Net": "1"}, {"class Net": "2"}


def made_of(entries: dict[str, str], **row: Any) -> dict[str, Any]:
    """A row of a workload of these sources."""
    sources = json.dumps(entries, sort_keys=True)
    numbers = {"step_p50_s": 0.1, "samples_per_s": 10.0}
    return {**numbers, "sources": sources, "workload_digest": f"digest of {sources}", **row}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([NET, NET], [None, None]),
        ([NET, OTHER], ["another class Net", None]),
        # An edit that was taken back.
        ([NET, OTHER, NET], [None, "another class Net", None]),
        # A file or package that only one of the machines could see is no change.
        ([NET, NET | {"package timm": "1.0"}], [None, None]),
        ([NET | {"package timm": "0.9"}, NET | {"package timm": "1.0"}], ["timm 0.9 (1.0 now)", None]),
        # Each of two earlier ones is one of its own.
        ([NET, OTHER, {"class Net": "3"}], ["another class Net (2)", "another class Net", None]),
    ],
)
def test_a_row_says_what_the_newest_row_of_its_workload_has_otherwise(
    rows: list[dict[str, str]], expected: list[str | None]
) -> None:
    frame = trials(*(made_of(entries) for entries in rows))
    assert older_source(frame).tolist() == expected


def test_an_unknown_source_is_not_called_older_and_another_digest_is() -> None:
    known = made_of(NET)
    frame = trials({"workload_digest": None}, {"workload_digest": "before sources were stored"}, known)
    assert older_source(frame).tolist() == [None, "another source", None]


def test_other_data_are_no_other_source_and_data_that_changed_are() -> None:
    a, b = ({"workload_data": f"/data/{name}", "entries": {"field data": name}} for name in "ab")
    changed = {"workload_data": "/data/a", "entries": {"field data": "changed"}}
    for rows, expected in (
        ([a, b], [None, None]),
        ([a, changed, b], ["other contents of the field data /data/a", None, None]),
        ([a, b, changed], ["other contents of the field data /data/a", None, None]),
    ):
        frame = trials(*(made_of(NET | row["entries"], workload_data=row["workload_data"]) for row in rows))
        assert older_source(frame).tolist() == expected


def test_other_paths_in_a_list_are_no_other_source() -> None:
    rows = [made_of(NET | {"field data[0]": name}, workload_data=f'["/data/{name}"]') for name in "ab"]
    assert older_source(trials(*rows)).tolist() == [None, None]


def test_workloads_of_two_names_are_no_generations_and_on_no_frontier_together() -> None:
    """No sweep has both: they are of `--rerun all` after a change of name."""
    frame = trials(made_of(NET, workload="Net"), made_of({"class Flash": "1"}, workload="Flash"))
    assert older_source(frame).tolist() == [None, None]
    assert [found.title for found in content_of(frame).frontiers] == [
        "Frontier · exact updates · Flash · ddp",
        "Frontier · exact updates · Net · ddp",
    ]
    assert len(content_of(frame, one_product=True).frontiers) == 1


def test_the_newest_is_by_time_whatever_the_frame_s_order_and_labels() -> None:
    """As where two `load`s are joined."""
    old, new = (
        [made_of(NET | {"class Net": name}, point_id=point, started_at=pd.Timestamp(day, tz="UTC")) for point in points]
        for name, points, day in (("1", "ab", "2026-01-01"), ("2", "ac", "2026-01-02"))
    )
    for frames in ([trials(*old), trials(*new)], [trials(*new), trials(*old)]):
        frame = pd.concat(frames)
        points = frontier(frame).set_index("point_id")["older_source"]
        assert points.notna().to_dict() == {"a": False, "b": True, "c": False}


def test_each_of_a_hundred_generations_has_a_name_of_its_own() -> None:
    rows = [{"class Net": str(number % 100)} for number in range(10_000)]
    found = older_source(trials(*(made_of(entries) for entries in rows)))
    assert found.nunique() == 99
    assert found.isna().sum() == 100


def test_what_watches_the_machine_makes_no_trial_an_older_one() -> None:
    canary = made_of(OTHER, role="canary", step_mean_s=0.1, session="s")
    assert older_source(trials(made_of(NET), canary)).tolist() == [None, "another class Net"]


def test_launches_whose_source_is_not_known_are_left_beside_any() -> None:
    unknown = made_of(NET, point_id="a") | {"workload_digest": None, "sources": None}
    for rows in ([unknown, made_of(NET, point_id="a"), made_of(OTHER)], [made_of(NET, point_id="a"), unknown]):
        assert over_launches(trials(*rows)).set_index("point_id")["launches"]["a"] == 2


def test_launches_in_another_environment_of_the_resources_are_left_out() -> None:
    """It is no part of a point's name, and stands beside `env_id`."""
    before, after = (made_of(NET, point_id="a", environment=text) for text in ('{"ALGO": "ring"}', '{"ALGO": "tree"}'))
    assert over_launches(trials(before, after))[["launches", "environment"]].to_numpy().tolist() == [
        [1, '{"ALGO": "tree"}']
    ]


def test_two_points_of_different_sources_are_compared_with_a_word_of_it() -> None:
    rows = [made_of(NET, point_id="a"), made_of(OTHER, point_id="b")]
    (found,) = difference(trials(*rows), "a", "b", of="samples_per_s").to_dict("records")
    assert (found["older_source_a"], found["older_source_b"]) == ("another class Net", None)


def test_rows_that_did_not_end_ok_make_no_newer_source() -> None:
    frame = trials(made_of(NET), made_of(OTHER, status="user_error", samples_per_s=None, step_p50_s=None))
    assert older_source(frame).tolist() == [None, None]


def test_points_of_another_source_are_on_no_frontier_with_the_newer_ones() -> None:
    """As an interrupted `--rerun all` leaves them."""
    slow = made_of(NET, point_id="a", micro_batch=8, step_p50_s=0.2, samples_per_s=5.0)
    fast = made_of(OTHER, point_id="b")
    points = frontier(trials(slow, fast))
    assert points["on_frontier"].tolist() == [True, True]
    assert points["point_id"].tolist() == ["b", "a"], "the newest first"
    titles = [found.title for found in content_of(trials(slow, fast)).frontiers]
    assert ["older" in title for title in titles] == [False, True]
    assert titles[1].endswith("older source: another class Net")


def test_launches_of_a_point_that_has_newer_ones_are_left_out() -> None:
    frame = trials(made_of(NET, point_id="a"), made_of(OTHER, point_id="a", repeat=2))
    assert over_launches(frame)["launches"].tolist() == [1]
    assert frontier(frame)["older_source"].isna().all()


def test_worlds_of_another_source_are_no_ladder() -> None:
    small, large = {"workers": 1}, {"workers": 2, "samples_per_s": 20.0}
    assert len(scaling(trials(made_of(NET, **small), made_of(NET, **large)))) == 2
    assert scaling(trials(made_of(NET, **small), made_of(OTHER, **large))).empty


def test_canaries_of_another_source_show_no_drift() -> None:
    canary = {"role": "canary", "step_mean_s_error": 1e-5, "point_id": "a"}
    before = made_of(NET, session="s1", step_mean_s=0.1, **canary)
    after = made_of(OTHER, session="s2", step_mean_s=0.2, **canary)
    assert canaries(trials(before, after))["flagged"].isna().all()
    same = made_of(NET, session="s2", step_mean_s=0.2, **canary)
    assert canaries(trials(before, same))["flagged"].all()
