"""Functional analysis of variance, and axes that were varied together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dtsweep.analysis.importance import shares_of, together


def test_shares_of_an_additive_function_are_the_variances_of_its_parts() -> None:
    parts = [np.array([0.0, 1, 2]), np.array([0.0, 5]), np.array([0.0, 1, 4, 9])]
    values = parts[0][:, None, None] + parts[1][:, None] + parts[2]
    variances = np.array([part.var() for part in parts])
    shares = shares_of(values)
    assert shares.main == pytest.approx(variances / variances.sum())
    assert shares.pairs.sum() == pytest.approx(0, abs=1e-12)
    assert shares.rest == pytest.approx(0, abs=1e-12)


def test_shares_equal_brute_force_and_add_up_to_one() -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4))
    shares = shares_of(values)
    means = [np.mean([values[i, j] for i in range(2)], axis=0) for j in range(3)]
    second = np.array([mean.mean() for mean in means])
    assert shares.main[1] == pytest.approx(second.var() / values.var())
    third = np.array([values[:, :, k].mean() for k in range(4)])
    pair = [
        values[:, j, k].mean() - second[j] - third[k] + values.mean()
        for j, k in itertools.product(range(3), range(4))
    ]
    assert shares.pairs[1, 2] == pytest.approx(np.var(pair) / values.var())
    assert shares.main.sum() + shares.pairs.sum() + shares.rest == pytest.approx(1)


def test_a_constant_has_no_shares() -> None:
    assert shares_of(np.ones((2, 2))).main.tolist() == [0, 0]


def test_axes_that_were_varied_together_are_one_group() -> None:
    grid = np.array([*itertools.product([0.0, 1], [0.0, 1, 2])])
    first, second = grid[:, :1], grid[:, 1:]
    assert together([first, second]) == [(0,), (1,)]
    assert together([first, second, 3 * second + 1]) == [(0,), (1, 2)]
    # A sum of two: none of the three can be told from the others.
    assert together([first, second, first + second]) == [(0, 1, 2)]
