"""Dominance without all pairs: as if each point were compared with each, with less work."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from dtsweep.analysis import dominance, frontier, objectives
from dtsweep.analysis.dominance import PointCosts, compare_all, compare_near
from dtsweep.analysis.objectives import Cost
from tests.analysis.noise import frame_of, launches_in

RNG = np.random.default_rng(3)


def rivals_of(
    points: int, launches: int, *, noise: float, missing: float = 0.0, single: float = 0.0
) -> PointCosts:
    """Draw points whose two costs are independent, so that few are near the frontier."""

    def quantity() -> Any:
        logs = RNG.normal(0, 0.5, (points, 1)) + RNG.normal(0, noise, (points, launches))
        return np.where(there, logs, np.nan)

    there = RNG.random((points, launches)) >= missing
    there[RNG.random(points) < single, 1:] = False
    there[:, 0] |= ~there.any(axis=1)
    within = np.full(points, noise**2)
    return PointCosts(tuple(Cost(launches_in(quantity(), within)) for _ in range(2)))


@pytest.mark.parametrize(
    ("launches", "missing", "single", "noise"),
    [
        (3, 0.0, 0.0, 0.1),
        (1, 0.0, 0.0, 0.4),
        (4, 0.4, 0.0, 0.01),
        (3, 0.0, 0.5, 0.1),
        (2, 0.0, 0.97, 0.4),
    ],
)
def test_points_stand_as_if_each_were_compared_with_each(
    launches: int, missing: float, single: float, noise: float
) -> None:
    for _ in range(5):
        rivals = rivals_of(80, launches, noise=noise, missing=missing, single=single)
        numbers = RNG.permutation(80)[:70]
        few, many = compare_all(rivals, numbers)[0], compare_near(rivals, numbers)[0]
        assert few.tolist() == many.tolist()


@pytest.mark.slow
def test_points_that_beat_each_other_in_a_circle_are_none_of_them_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Points that share some launches; what is told at all is told by far.
    monkeypatch.setattr(dominance, "_FAR", 1.0)
    numbers = np.arange(40)
    for _ in range(12):
        rivals = rivals_of(40, 4, noise=0.3, missing=0.6)
        assert compare_all(rivals, numbers)[0].tolist() == compare_near(rivals, numbers)[0].tolist()


@pytest.mark.parametrize("launches", [1, 3])
def test_the_work_of_a_frontier_grows_with_its_points_alone(
    monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    pairs, compared = [], objectives.contrasts

    def counting(found: Any, first: Any, second: Any) -> Any:
        pairs.append(len(first) * len(second))
        return compared(found, first, second)

    monkeypatch.setattr(objectives, "contrasts", counting)
    rivals = rivals_of(3000, launches, noise=0.01)
    compare_near(rivals, np.arange(3000))
    assert sum(pairs) < 0.2 * 3000**2
    # Blocks: none takes gigabytes.
    assert max(pairs) <= 1 << 21


@pytest.mark.slow
def test_the_frontier_of_many_points_is_drawn_as_that_of_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whatever tests ran before.
    monkeypatch.setattr(import_module(__name__), "RNG", np.random.default_rng(0))
    rivals = rivals_of(150, 3, noise=0.03)
    frame = frame_of(-rivals.costs[1].launches.means, np.full(150, 0.03))
    latency = np.exp(rivals.costs[0].launches.means).ravel()
    frame = frame.assign(latency_s=latency, latency_s_error=0.03 * latency)
    few = frontier(frame).set_index("point_id")
    monkeypatch.setattr(import_module("dtsweep.analysis.dominance"), "MANY", 10)
    many = frontier(frame).set_index("point_id").loc[few.index]
    assert (few["standing"] == many["standing"]).all()
    # 2,000 draws of each.
    assert (few["frontier_probability"] - many["frontier_probability"]).abs().max() < 0.06
    assert abs(few["frontier_probability"].sum() - many["frontier_probability"].sum()) < 0.3
