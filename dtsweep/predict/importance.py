"""Swept axes, and their importance for the step time by the performance model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.settings import (
    NODES,
    WITHOUT_EFFECT,
    Settings,
    axis_name,
    number_of,
    settings_of_rows,
    text_of,
)
from dtsweep.analysis.study import Frame
from dtsweep.predict.encoding import setups_of_settings, varies_nodes
from dtsweep.predict.model import PerformanceModel, performance_model
from dtsweep.predict.setups import Numbers
from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.modes import MODE_FIELDS

if TYPE_CHECKING:
    import pandas as pd


_FAMILIES = {"sync": MODE_FIELDS, "compression": COMPRESSION_FIELDS}
"""Axes that are one with the fields that some of their values read."""

_Level = dict[str, Any]
"""Settings of one value of an axis, by column."""


class _SweptAxis(NamedTuple):
    """An axis with its measured values; each point has one of them."""

    name: str
    levels: list[_Level]
    numbers: list[int]
    """Level of each measured point."""

    is_identifiable: bool = True


def _swept_axes(measured: Sequence[Settings]) -> list[_SweptAxis]:
    """List the axes that measured points differ in.

    The number of nodes is one of them if as many workers ran on different numbers.
    """
    of_family = {name for fields in _FAMILIES.values() for name in fields}
    axes = []
    for name in dict.fromkeys(name for one in measured for name in one):
        if name in of_family or name in WITHOUT_EFFECT:
            continue
        if name == NODES and not varies_nodes(measured):
            continue
        axis = _axis_with(axis_name(name), (name, *_FAMILIES.get(name, ())), measured)
        if len(axis.levels) > 1:
            axes.append(axis)
    return axes


def _axis_with(name: str, columns: Sequence[str], measured: Sequence[Settings]) -> _SweptAxis:
    """Axis of some columns, whose levels are the combinations that were measured."""
    levels: dict[tuple[str, ...], _Level] = {}
    for one in measured:
        key = tuple(text_of(one.get(column)) for column in columns)
        levels.setdefault(key, {column: one.get(column) for column in columns})
    places = {key: number for number, key in enumerate(levels)}
    numbers = [places[tuple(text_of(one.get(column)) for column in columns)] for one in measured]
    return _SweptAxis(name, list(levels.values()), numbers)


_FEWEST_POINTS = 8
"""Measured points of a model and environment, below which nothing is said."""

_MOST_TRIALS = 100
"""Trials that a model is fitted to: a report takes seconds."""

_MOST_CELLS = 4000
"""Cells of the grid on which step times are predicted."""

_LEAST_OWN_SHARE = 0.05
"""Share of an axis that no other axes explain, below which axes can't be distinguished."""


def importance(frame: Frame) -> pd.DataFrame:
    """Say how much of the variation of the step time each swept axis explains.

    A functional analysis of variance of the logarithm of the step time, which the performance
    model predicts for all combinations of the axes' measured values. The fields of a mode belong to
    `sync`, those of a compression to `compression`.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.

    Returns:
        One row per axis, pair of axes, and `rest`, the largest first, for each model and
        environment with at least `_FEWEST_POINTS` points and two axes: `model_digest`, `env_id`;
        `axes`, a name, `a × b` for a pair; `kind`: `axis`, `pair` or `rest`; `share` of the
        variance, all rows add up to 1; `is_identifiable`, false for `a and b`, axes that were
        varied together, so that they count as one.
    """
    import pandas as pd

    columns = ["model_digest", "env_id", "axes", "kind", "share", "is_identifiable"]
    rows: list[dict[str, Any]] = []
    for model in performance_model(frame, most_trials=_MOST_TRIALS):
        of_model = {"model_digest": model.model_digest, "env_id": model.env_id}
        rows += [of_model | row for row in _rows(model)]
    return pd.DataFrame(rows, columns=columns)


def _rows(model: PerformanceModel) -> list[dict[str, Any]]:
    """Rows of one model, without its names."""
    if len(model.points) < _FEWEST_POINTS:
        return []
    measured = settings_of_rows(model.points)
    axes = _swept_axes(measured)
    if len(axes) < 2:
        return []
    axes = _joined(axes, measured)
    shares = shares_of(_log_step_s(model, axes))
    names = [axis.name for axis in axes]
    rows = [
        _row(axis.name, "axis", share, is_identifiable=axis.is_identifiable)
        for axis, share in zip(axes, shares.main, strict=True)
    ]
    for first, second in itertools.combinations(range(len(axes)), 2):
        rows.append(_row(f"{names[first]} × {names[second]}", "pair", shares.pairs[first, second]))
    rows.append(_row("rest", "rest", shares.rest))
    return sorted(rows, key=lambda row: -row["share"])


def _row(axes: str, kind: str, share: float, *, is_identifiable: bool = True) -> dict[str, Any]:
    return {
        "axes": axes,
        "kind": kind,
        "share": float(share),
        "is_identifiable": is_identifiable,
    }


def _joined(axes: Sequence[_SweptAxis], measured: Sequence[Settings]) -> list[_SweptAxis]:
    """Make one axis of those that were varied together."""
    joined = []
    for group in varied_together([_columns(axis) for axis in axes]):
        members = [axes[number] for number in group]
        if len(members) == 1:
            joined.append(members[0])
            continue
        name = " and ".join(axis.name for axis in members)
        columns = [column for axis in members for column in axis.levels[0]]
        joined.append(_axis_with(name, columns, measured)._replace(is_identifiable=False))
    return joined


def _columns(axis: _SweptAxis) -> Numbers:
    """Values of an axis at the measured points: a logarithm, or a column for each level but one."""
    values = [number_of(next(iter(level.values()))) for level in axis.levels]
    if len(axis.levels[0]) == 1 and min(values) > 0:
        return np.log(values)[axis.numbers][:, None]
    return np.eye(len(axis.levels))[axis.numbers][:, 1:]


def _log_step_s(model: PerformanceModel, axes: Sequence[_SweptAxis]) -> Numbers:
    """Predict the logarithms of step times on the grid of the axes' levels."""
    levels = _thinned([axis.levels for axis in axes])
    cells = [
        {**model.fastest, **{name: value for level in chosen for name, value in level.items()}}
        for chosen in itertools.product(*levels)
    ]
    setups = setups_of_settings([_possible(cell) for cell in cells], model.encoding)
    return model.step_time.predict(setups).log_step_s.reshape([len(one) for one in levels])


def _possible(settings: Settings) -> Settings:
    """Settings with at most as many nodes as workers."""
    if not settings.get(NODES):
        return settings
    return {**settings, NODES: min(settings[NODES], settings["workers"])}


def _thinned(levels: Sequence[list[_Level]]) -> list[list[_Level]]:
    """Leave out levels of the longest axes until the grid is small enough: every other one."""
    thinned = list(levels)
    while np.prod([len(one) for one in thinned], dtype=float) > _MOST_CELLS:
        longest = max(range(len(thinned)), key=lambda number: len(thinned[number]))
        thinned[longest] = thinned[longest][::2]
    return thinned


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shares:
    """Functional analysis of variance of d axes; all shares add up to 1."""

    main: Numbers
    """(d,) of each axis alone."""

    pairs: Numbers
    """(d, d) of each pair of axes in addition; above the diagonal."""

    rest: float
    """Of three and more axes together."""


def shares_of(values: Numbers) -> _Shares:
    """Divide the variance of a function between its axes, each level as probable as the others.

    >>> shares_of(np.array([[0.0, 1.0], [2.0, 3.0]])).main
    array([0.8, 0.2])
    """
    axes = values.ndim
    total = float(values.var())
    main, pairs = np.zeros(axes), np.zeros((axes, axes))
    if total == 0:
        return _Shares(main=main, pairs=pairs, rest=0.0)
    for first in range(axes):
        main[first] = _explained(values, (first,)) / total
    for first in range(axes):
        for second in range(first + 1, axes):
            both = _explained(values, (first, second)) / total
            # Rounding must not make a share negative.
            pairs[first, second] = max(0.0, both - main[first] - main[second])
    rest = max(0.0, 1 - float(main.sum() + pairs.sum()))
    return _Shares(main=main, pairs=pairs, rest=rest)


def _explained(values: Numbers, kept: tuple[int, ...]) -> float:
    """Variance of the means over all other axes."""
    others = tuple(axis for axis in range(values.ndim) if axis not in kept)
    return float(values.mean(axis=others).var())


def varied_together(columns: Sequence[Numbers]) -> list[tuple[int, ...]]:
    """Group the axes that were varied together, so that their effects can't be distinguished.

    Args:
        columns: for each axis (n, k): its values at n measured points, in k columns.

    Returns:
        All axes by number, each in one group; an axis that can be identified is alone.
    """
    groups = [{axis} for axis in range(len(columns))]
    for axis in range(len(columns)):
        others = [number for number in range(len(columns)) if number != axis]
        if _own_share(columns, axis, others) >= _LEAST_OWN_SHARE:
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
        if _own_share(columns, axis, fewer) < _LEAST_OWN_SHARE:
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
