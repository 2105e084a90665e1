from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dtsweep.analysis import canaries
from tests.frames import trials


def canary(session: str, minute: int, step_mean_s: float | None, **fields: Any) -> dict[str, Any]:
    at = pd.Timestamp("2026-01-01T00:00Z") + pd.Timedelta(minutes=minute)
    return {
        "role": "canary",
        "point_id": "watch",
        "session": session,
        "started_at": at,
        "step_mean_s": step_mean_s,
        **fields,
    }


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


def test_a_drift_inside_a_session_is_flagged_though_both_ends_are_near_the_median() -> None:
    assert canaries(trials(canary("s", 0, 0.100), canary("s", 1, 0.103)))["flagged"].tolist() == [True]
    assert canaries(trials(canary("s", 0, 0.100), canary("s", 1, 0.101)))["flagged"].tolist() == [False]


@pytest.mark.parametrize(
    "field", ["point_id", "workers", "placement", "environment", "env_id", "cpus_per_worker", "gpus_per_worker"]
)
def test_worlds_are_never_compared(field: str) -> None:
    values = [1, 2] if field in ("workers", "cpus_per_worker", "gpus_per_worker") else ["a", "b"]
    rows = [
        canary(session, 0, step, **{field: value}) for session, step, value in zip("st", (1, 2), values, strict=True)
    ]
    assert canaries(trials(*rows))["first_ratio"].tolist() == [1, 1]


def test_one_canary_says_nothing_about_drift() -> None:
    found = canaries(trials(canary("s", 0, 0.1))).iloc[0]
    assert found[["last_s", "last_ratio", "drift", "flagged"]].isna().all()
    assert found["first_ratio"] == 1


def test_the_trials_of_a_session_are_counted_without_its_canaries() -> None:
    rows = [canary("s", 0, 0.1), {"session": "s"}, {"session": "s", "status": "hang"}, {"session": "t"}, {}]
    assert canaries(trials(*rows))["trials"].tolist() == [1]


def test_a_canary_that_failed_is_none() -> None:
    assert canaries(trials(canary("s", 0, None, status="hang"), canary("s", 1, None))).empty


def test_results_without_canaries_have_none() -> None:
    assert canaries(trials({}, {})).empty
    assert canaries(trials()).empty
