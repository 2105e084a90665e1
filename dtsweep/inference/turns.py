"""Points that were measured in turn: their rates under equal conditions.

In a cycle each point of a group has a turn, so all of them see the same minute of the machine. The
ratio of two rates within a cycle has little of the drift that both share. What is estimated is the
ratio of rates *under equal conditions*; the rates themselves, with the drift, are those of the
trial's own window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.inference.variance import Numbers
from dtsweep.measure.cycles import LEAST_CYCLES, effects_of, in_columns

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = {
    "samples_per_s": ("turn_samples_per_s", 1),
    "tokens_per_s": ("turn_samples_per_s", 1),
    "usd_per_million_samples": ("turn_samples_per_s", -1),
    "latency_s": ("turn_latency_s", 1),
}
"""Column of turns that a measured column follows from, and the power."""


def with_turns(
    columns: pd.DataFrame, trials: pd.DataFrame, of: str, *, sign: int = 1
) -> pd.DataFrame:
    """Move the values of trials that were measured in turn to their levels under equal conditions.

    The mean over a group stays that of its trials' own windows.

    Args:
        columns: a row per trial with `value`, the logarithm of a measured column times `sign`, and
            `value_error`.
        trials: the same rows, with the columns of turns.
        of: the measured column.
        sign: 1, or -1.

    Returns:
        These columns, and `in_turn`, the group of such a trial, where there is one.
    """
    name, power = _COLUMNS.get(of, ("turn_samples_per_s", 0))
    if not power or name not in trials or trials["turn_group"].isna().all():
        return columns
    columns = columns.assign(in_turn=None)
    windows = np.log(trials[name.removeprefix("turn_")].astype("float64"))
    for group, members in trials.groupby("turn_group", sort=False):
        logs = _logarithms(members[name])
        is_enough = (~np.isnan(logs)).sum(axis=1) >= LEAST_CYCLES
        if is_enough.sum() > 1:
            rows, (levels, errors) = members.index[is_enough], effects_of(logs[is_enough])
            shifts = levels - (windows[rows] - windows[rows].mean())
            columns.loc[rows, "value"] += sign * power * shifts
            columns.loc[rows, "value_error"] = errors
            columns.loc[rows, "in_turn"] = group
    return columns


def _logarithms(turns: pd.Series[Any]) -> Numbers:
    """(points, cycles) logarithms, nan where a point had no turn; no cycle has a single point."""
    lists = [() if turn is None else turn for turn in turns]
    if len(lists) < 2:
        return np.full((len(lists), 0), np.nan)
    values = in_columns(lists)
    values[~(np.isfinite(values) & (values > 0))] = np.nan
    logs: Numbers = np.log(values[:, (~np.isnan(values)).sum(axis=0) > 1])
    return logs
