from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from dtsweep.analysis import canaries
from dtsweep.analysis.canaries import drift_of
from tests.frames import trials
from tests.report import study


def canary(session: str, minute: int, step_mean_s: float | None, **fields: Any) -> dict[str, Any]:
    """A canary that is known to 1 %, where nothing else is said."""
    at = pd.Timestamp("2026-01-01T00:00Z") + pd.Timedelta(minutes=minute)
    return study.canary(session, step_mean_s, started_at=at, **fields)


def ends(first_s: float, last_s: float, **fields: Any) -> pd.Series[Any]:
    """What is found where these two are the only canaries."""
    rows = canary("s", 0, first_s, **fields), canary("s", 1, last_s, **fields)
    return canaries(trials(*rows)).iloc[0]


def test_drift_is_that_of_the_last_canary_against_the_first() -> None:
    late = canary("s", 20, 0.101)
    found = canaries(trials(late, canary("s", 10, 0.3), canary("s", 0, 0.1))).iloc[0]
    assert found["canaries"] == 3
    assert [found["first_s"], found["last_s"]] == [0.1, 0.101]
    assert found["drift"] == pytest.approx(0.01)


def test_a_session_is_compared_with_its_world() -> None:
    same = [canary(session, minute, 0.1) for minute, session in enumerate("aabb")]
    slow = [canary("c", 4, 0.103), canary("c", 5, 0.103)]
    found = canaries(trials(*same, *slow))
    assert found["session"].tolist() == ["a", "b", "c"]
    assert found["last_ratio"].tolist() == pytest.approx([1, 1, 1.03])
    assert found["drift"].tolist() == [0, 0, 0]
    assert found["flagged"].tolist() == [False, False, True]


def test_canaries_next_to_other_trials_are_compared_with_each_other() -> None:
    alone = [canary("a", minute, 0.1, concurrent_trials=0) for minute in (0, 5)]
    together = [canary("a", minute, 0.13, concurrent_trials=7) for minute in (1, 4)]
    slower = [canary("b", 2, 0.13, concurrent_trials=6), canary("b", 3, 0.15, concurrent_trials=7)]
    found = canaries(trials(*alone, *together, *slower)).set_index(["session", "alone"])
    keys = [("a", True), ("a", False), ("b", False)]
    assert found["flagged"].to_dict() == dict(zip(keys, (False, False, True), strict=True))
    assert found["drift"].round(3).to_dict() == dict(zip(keys, (0, 0, 0.154), strict=True))


def test_drift_is_what_one_point_took_longer_at_one_time_than_at_another() -> None:
    level = [canary(session, minute, 0.1) for minute, session in enumerate("aabb")]
    for other in ([canary("c", 4, 0.103), canary("c", 5, 0.103)], [canary("c", 4, 0.103)]):
        assert drift_of(canaries(trials(*level, *other))) == pytest.approx(0.03)
    for ends_s in ((0.1, 0.15), (0.15, 0.1)):
        assert drift_of(ends(*ends_s).to_frame().T) == pytest.approx(0.5)


def test_drift_is_unknown_up_to_what_canaries_tell_and_where_there_are_none() -> None:
    assert drift_of(
        canaries(trials(*(canary("s", minute, 0.1) for minute in (0, 1))))
    ) == pytest.approx(0.01 * 2**0.5)
    assert drift_of(canaries(trials(canary("s", 0, 0.1)))) is None
    assert drift_of(canaries(trials({}))) is None


# How well canaries are known


def test_the_interval_of_a_drift_is_made_of_those_of_its_canaries() -> None:
    found = ends(0.100, 0.103)
    assert [found["drift"], found["drift_low"], found["drift_high"]] == pytest.approx(
        [0.03, 0.03 - 1.03 * 0.01 * math.sqrt(2), 0.03 + 1.03 * 0.01 * math.sqrt(2)]
    )
    # What a session could tell at all.
    assert ends(1.0, 1.0, half_width=0.05)["known_to"] == pytest.approx(0.05 * math.sqrt(2))


@pytest.mark.parametrize(
    ("last_s", "half_width", "flagged"),
    [
        # Known to 1 %, two canaries tell 1.4 %: what counts is the limit of 2 %.
        (1.019, 0.01, False),
        (1.021, 0.01, True),
        # Known to 3 %, they tell 4.2 %: less may be chance, and may be a drift.
        (1.000, 0.03, None),
        (1.040, 0.03, None),
        (1.050, 0.03, True),
        (0.950, 0.03, True),
        (1.500, 0.50, None),
        (1.500, None, None),
    ],
)
def test_a_drift_is_beyond_2_percent_and_beyond_its_own_interval_or_it_can_not_be_told(
    last_s: float, half_width: float | None, flagged: bool | None
) -> None:
    found = ends(1.0, last_s, half_width=half_width)["flagged"]
    assert (None if pd.isna(found) else bool(found)) == flagged


def test_a_canary_that_is_hardly_known_is_no_measure_for_the_others() -> None:
    sound = [canary(session, minute, 1.0) for minute, session in enumerate("aabb")]
    found = canaries(trials(*sound, canary("c", 9, 3.0, half_width=0.5)))
    assert found["last_ratio"].tolist()[:2] == found["first_ratio"].tolist()[:2] == [1, 1]
    assert found["flagged"].tolist() == [False, False, True]
    vague = canaries(trials(*sound, canary("c", 9, 1.4, half_width=0.5)))
    assert vague["flagged"].tolist()[:2] == [False, False]
    assert vague["flagged"].isna().tolist() == [False, False, True]


def test_worlds_are_never_compared() -> None:
    words = dict.fromkeys(("point_id", "placement", "environment", "env_id"), "another")
    numbers = dict.fromkeys(("workers", "cpus_per_worker", "gpus_per_worker"), 9)
    worlds: list[dict[str, Any]] = [{name: value} for name, value in (words | numbers).items()]
    rows = [
        canary(f"session {number}", 0, 1 + number, **world)
        for number, world in enumerate([{}, *worlds])
    ]
    assert canaries(trials(*rows))["first_ratio"].tolist() == [1] * 8


def test_one_canary_says_nothing_about_drift() -> None:
    found = canaries(trials(canary("s", 0, 0.1))).iloc[0]
    alone = ["last_s", "last_ratio", "drift", "drift_low", "drift_high", "known_to", "flagged"]
    assert found[alone].isna().all()
    assert found["first_ratio"] == 1


def test_the_trials_of_a_session_are_counted_without_its_canaries() -> None:
    rows = [
        canary("s", 0, 0.1),
        {"session": "s"},
        {"session": "s", "status": "hang"},
        {"session": "t"},
        {},
    ]
    assert canaries(trials(*rows))["trials"].tolist() == [1]


def test_a_canary_that_failed_is_none_and_results_without_canaries_have_none() -> None:
    assert canaries(trials(canary("s", 0, None, status="hang"), canary("s", 1, None))).empty
    assert canaries(trials({}, {})).empty
    assert canaries(trials()).empty
