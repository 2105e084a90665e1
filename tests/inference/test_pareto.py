"""Frontiers of numbers against their definitions, by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtsweep.inference.pareto import hypervolume_of, knee_of, on_frontier

VALUES = st.one_of(st.integers(0, 4).map(float), st.just(float("nan")), st.just(float("inf")))
COSTS = st.integers(1, 4).flatmap(
    lambda objectives: st.lists(st.tuples(*[VALUES] * objectives), min_size=1, max_size=14)
)
FINITE = st.integers(1, 4).flatmap(
    lambda objectives: st.lists(
        st.tuples(*[st.integers(0, 4)] * objectives), min_size=1, max_size=10
    )
)


def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


@given(COSTS)
@settings(max_examples=100, deadline=None)
def test_the_frontier_is_what_its_definition_says(rows: list[tuple[float, ...]]) -> None:
    known = [row for row in rows if not any(map(np.isnan, row))]
    expected = [row in known and not any(dominates(other, row) for other in known) for row in rows]
    assert on_frontier(np.array(rows)).tolist() == expected


@given(FINITE)
def test_the_hypervolume_is_the_cells_that_some_row_dominates(rows: list[tuple[int, ...]]) -> None:
    objectives = len(rows[0])
    # Whole numbers: each unit cell of the box from 0 to 3 is dominated whole, or not at all.
    cells = np.indices((3,) * objectives).reshape(objectives, -1).T
    dominated = sum(
        any(all(x <= y for x, y in zip(row, cell, strict=True)) for row in rows)
        for cell in cells.tolist()
    )
    found = hypervolume_of(np.array(rows, dtype=np.float64), np.full(objectives, 3.0))
    assert found == pytest.approx(dominated)


def test_a_hypervolume_that_is_known() -> None:
    # Two boxes of 2 x 1 with a common cell.
    assert hypervolume_of(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([3.0, 3.0])) == 3.0
    assert hypervolume_of(np.array([[4.0, 4.0], [np.nan, 0.0]]), np.array([3.0, 3.0])) == 0.0


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=3, max_size=8))
def test_the_knee_of_two_objectives_is_farthest_from_the_line_between_the_ends(
    rows: list[tuple[float, float]],
) -> None:
    costs = np.array(rows)
    costs = costs[on_frontier(costs)]
    row = knee_of(costs)
    low, high = costs[costs[:, 0].argmin()], costs[costs[:, 1].argmin()]
    size = np.abs(high - low)
    if row is None:
        return
    scaled = (costs - costs.min(axis=0)) / size
    # Distance below the line x + y = 1, but for its factor.
    below = 1 - scaled.sum(axis=1)
    assert below[row] == pytest.approx(below.max(), abs=1e-9)
    assert below[row] > 0


def test_a_straight_frontier_and_one_of_two_points_have_no_knee() -> None:
    assert knee_of(np.array([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]])) is None
    assert knee_of(np.array([[0.0, 2.0], [2.0, 0.0], [0.0, 2.0]])) is None
    assert on_frontier(np.empty((0, 2))).tolist() == []


def test_the_knee_does_not_depend_on_units() -> None:
    costs = np.array([[0.0, 5.0, 1.0], [1.0, 1.0, 1.0], [4.0, 0.0, 1.0], [3.0, 0.9, 1.0]])
    assert knee_of(costs) == knee_of(costs * [1e-3, 1e6, 1.0]) == 1
