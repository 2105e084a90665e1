"""Shares of a variance by axes of a grid, and axes that measurements can't tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtsweep.model.setups import Numbers

LEAST_OWN_SHARE = 0.05
"""Share of an axis that no other axes explain, below which axes can't be distinguished."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Functional analysis of variance of d axes; all shares add up to 1."""

    main: Numbers
    """(d,) of each axis alone."""

    pairs: Numbers
    """(d, d) of each pair of axes in addition; above the diagonal."""

    rest: float
    """Of three and more axes together."""


def shares_of(values: Numbers) -> Shares:
    """Divide the variance of a function between its axes, each level as probable as the others.

    Args:
        values: of the function on a grid, an axis of the array for each axis of the grid.

    >>> shares_of(np.array([[0.0, 1.0], [2.0, 3.0]])).main
    array([0.8, 0.2])
    """
    axes = values.ndim
    total = float(values.var())
    main, pairs = np.zeros(axes), np.zeros((axes, axes))
    if total == 0:
        return Shares(main=main, pairs=pairs, rest=0.0)
    for first in range(axes):
        main[first] = _explained(values, (first,)) / total
    for first in range(axes):
        for second in range(first + 1, axes):
            both = _explained(values, (first, second)) / total
            # Rounding must not make a share negative.
            pairs[first, second] = max(0.0, both - main[first] - main[second])
    rest = max(0.0, 1 - float(main.sum() + pairs.sum()))
    return Shares(main=main, pairs=pairs, rest=rest)


def _explained(values: Numbers, kept: tuple[int, ...]) -> float:
    """Variance of the means over all other axes."""
    others = tuple(axis for axis in range(values.ndim) if axis not in kept)
    return float(values.mean(axis=others).var())


def together(columns: Sequence[Numbers]) -> list[tuple[int, ...]]:
    """Group the axes that were varied together, so that their effects can't be distinguished.

    Args:
        columns: for each axis (n, k): its values at n measured points, in k columns.

    Returns:
        All axes by number, each in one group; an axis that can be identified is alone.
    """
    groups = [{axis} for axis in range(len(columns))]
    for axis in range(len(columns)):
        others = [number for number in range(len(columns)) if number != axis]
        if _own_share(columns, axis, others) >= LEAST_OWN_SHARE:
            continue
        partners = _partners(columns, axis, others)
        joined = set().union(*(group for group in groups if group & {axis, *partners}))
        groups = [group for group in groups if not group & joined] + [joined]
    return sorted(tuple(sorted(group)) for group in groups)


def _partners(columns: Sequence[Numbers], axis: int, others: Sequence[int]) -> list[int]:
    """Fewest other axes that an axis can't be distinguished from."""
    needed = list(others)
    for other in others:
        fewer = [number for number in needed if number != other]
        if _own_share(columns, axis, fewer) < LEAST_OWN_SHARE:
            needed = fewer
    return needed


def _own_share(columns: Sequence[Numbers], axis: int, others: Sequence[int]) -> float:
    """Smallest share of the variance of an axis' columns that other axes don't explain."""
    own = _orthonormal(columns[axis])
    if not others:
        return 1.0
    explained = _orthonormal(np.hstack([columns[number] for number in others]))
    left = own - explained @ (explained.T @ own)
    smallest = np.linalg.svd(left, compute_uv=False).min(initial=1.0)
    return float(smallest) ** 2


def _orthonormal(columns: Numbers) -> Numbers:
    """Orthonormal columns that span the deviations of these from their means."""
    centred = columns - columns.mean(axis=0)
    vectors, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    is_kept: NDArray[np.bool_] = sizes > 1e-9 * max(1e-300, float(sizes.max(initial=0.0)))
    spanned: Numbers = vectors[:, is_kept]
    return spanned
