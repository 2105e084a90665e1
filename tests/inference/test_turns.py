"""Points measured in turn: ratios under equal conditions, whatever the machine does meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import difference, recommend
from dtsweep.inference.turns import effects_of
from tests.frames import trials

CYCLES = 16


def rows_in_turn(
    logs: dict[str, float],
    *,
    session: str,
    noise: float = 0.01,
    drift: float = 0.3,
    fields: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Trials of points that took turns in a session; the machine drifts from cycle to cycle."""
    rng = np.random.default_rng(sum(map(ord, session)))
    cycles = rng.normal(0, drift, CYCLES)
    rows = []
    for name, log in logs.items():
        rates = np.exp(np.log(100.0) + log + cycles + rng.normal(0, noise, CYCLES))
        rows.append(
            {"point_id": name, "session": session, "turn_group": session}
            | {"turn_samples_per_s": rates.tolist(), "turn_latency_s": (10 / rates).tolist()}
            | whole(name, float(rates.mean()), session=session)
            | (fields or {})
        )
    return rows


def whole(name: str, rate: float, *, session: str) -> dict[str, Any]:
    """A trial of a whole window, whose own error is 10 %."""
    return {
        **{"point_id": name, "session": session, "samples_per_s": rate, "step_p50_s": 10 / rate},
        **{"samples_per_s_error": 0.1 * rate, "latency_s_error": 0.1 * 10 / rate},
    }


def test_a_late_turn_moves_nothing_and_the_error_is_that_of_the_cycles() -> None:
    rng = np.random.default_rng(0)
    logs = rng.normal(0, 0.01, (2, 40)) + rng.normal(0, 0.5, 40) + [[0.05], [0.0]]
    late = logs.copy()
    late[0, 7] -= 2.0
    for seen in (logs, late):
        levels, errors = effects_of(seen)
        assert levels[0] - levels[1] == pytest.approx(0.05, abs=0.006)
        # 1 % · √(2 / 40) is 0.22 %.
        assert np.hypot(*errors) == pytest.approx(0.0022, rel=0.5)


@pytest.mark.parametrize("points", [2, 3, 6])
def test_differences_scatter_as_their_errors_say(points: int) -> None:
    rng = np.random.default_rng(points)
    found = [effects_of(rng.normal(0, 0.02, (points, 20))) for _ in range(300)]
    differences = np.array([levels[0] - levels[1] for levels, _ in found])
    errors = np.array([np.hypot(*errors[:2]) for _, errors in found])
    assert (np.abs(differences) > 2.1 * errors).mean() < 0.08
    assert differences.std() > 0.75 * np.median(errors)


def test_two_sessions_in_turn_show_what_the_windows_hide() -> None:
    both = [
        row
        for session in ("p", "q")
        for row in rows_in_turn({"a": 0.05, "b": 0.0}, session=session)
    ]
    # The first round saw the two at different times.
    first = [whole("a", 60.0, session="o"), whole("b", 110.0, session="o")]
    frame = trials(*first, *both)
    found = difference(frame, "a", "b").set_index("of")
    assert found["method"].tolist() == ["in_turn"] * 2
    assert found["verdict"].tolist() == ["faster"] * 2
    assert found.loc["samples_per_s", "ratio"] == pytest.approx(np.exp(0.05), abs=0.01)
    assert found.loc["latency_s", "ratio"] == pytest.approx(np.exp(-0.05), abs=0.01)
    assert found["launches_a"].tolist() == [3, 3]
    windows = frame.assign(turn_group=None)
    assert difference(windows, "a", "b")["verdict"].tolist() == ["undecided"] * 2
    (chosen,) = recommend(frame)
    assert (chosen.point["point_id"], chosen.answer) == ("a", "best")


def test_the_rates_themselves_keep_the_interval_of_their_windows() -> None:
    frame = trials(
        *(row for name in "pq" for row in rows_in_turn({"a": 0.0, "b": 0.1}, session=name))
    )
    windows = trials(
        *(
            row
            for name in "pq"
            for row in rows_in_turn({"a": 0.0, "b": 0.1}, session=name, fields={"turn_group": None})
        )
    )
    (found,), (plain,) = recommend(frame), recommend(windows)
    names = ["samples_per_s", "samples_per_s_low", "samples_per_s_high"]
    assert found.point["point_id"] == "b"
    by_point = windows.groupby("point_id")["samples_per_s"].mean()
    assert found.point["samples_per_s"] == pytest.approx(by_point["b"])
    rows = pd.concat([plain.point.to_frame().T, plain.others]).set_index("point_id")
    assert found.point[names].tolist() == pytest.approx(rows.loc["b", names].tolist())


def test_a_cost_is_compared_as_the_rate_that_it_follows_from() -> None:
    rows = [
        row for session in ("p", "q") for row in rows_in_turn({"a": 0.0, "b": 0.2}, session=session)
    ]
    prices = {"a": 10.0, "b": 11.0}
    frame = trials(*(row | {"usd_per_hour": prices[row["point_id"]]} for row in rows))
    (found,) = recommend(frame, "cost")
    assert (found.point["point_id"], found.answer) == ("b", "best")
    # 11 / 10 of the price for e^0.2 of the rate.
    assert found.others["ratio"].tolist() == pytest.approx([1.1 / np.exp(0.2)], abs=0.01)


@pytest.mark.parametrize("lists", [[None], [[1.0, 2.0]], [[100.0, np.nan, 0.0, 100.0]]])
def test_too_few_cycles_leave_the_windows(lists: list[Any]) -> None:
    rows = [
        whole(name, 100.0, session=session) | {"turn_group": session, "turn_samples_per_s": turns}
        for name in "ab"
        for session in "pq"
        for turns in lists
    ]
    assert difference(trials(*rows), "a", "b", of="samples_per_s")["method"].item() != "in_turn"
