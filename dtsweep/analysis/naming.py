"""Find a point by the beginning of its name or by enough of its settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import setting_columns
from dtsweep.analysis.settings import axis_name
from dtsweep.analysis.where import parse_condition
from dtsweep.errors import SweepError
from dtsweep.text import listed

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 8
"""Values or names that an error lists."""


def find_point(points: pd.DataFrame, text: str) -> str:
    """Find the point that is meant.

    Args:
        points: rows of `over_launches`.
        text: a `point_id` or the beginning of one; or settings, `workers=2 sync=ddp
            workload.width=64`, as many as tell the point from all others: a condition of `where`.

    Returns:
        Its `point_id`.

    Raises:
        SweepError: no point is meant, or several are.
    """
    if not re.search("[<>=]", text):
        return _by_name(sorted(points["point_id"].unique()), text.strip())
    condition = parse_condition(text.strip(), points)
    matches = points[condition.holds(points).fillna(value=False).astype(bool)]
    if matches.empty:
        settings = "; ".join(
            f"{axis_name(column)} is {_values(points[column])}" for column in condition.columns
        )
        raise SweepError(f"no measured point has {text!r}: {settings}")
    if (count := matches["point_id"].nunique()) > 1:
        differing = _telling_apart(matches)
        hint = " and ".join(
            f"{axis_name(column)} ({_values(matches[column])})" for column in differing
        )
        raise SweepError(
            f"{count} points have {text!r}; add what tells them apart: "
            f"{hint or 'their point_id alone'}"
        )
    return str(matches["point_id"].iloc[0])


def _telling_apart(points: pd.DataFrame) -> list[str]:
    """Name the settings that tell points apart; one that follows from earlier ones is left out."""
    columns: list[str] = []
    groups = 1
    for column in setting_columns(points):
        count = points.groupby([*columns, column], dropna=False).ngroups
        if count > groups:
            columns.append(column)
            groups = count
    return columns


def _by_name(names: list[str], text: str) -> str:
    matches = [name for name in names if text and name.startswith(text)]
    if text in matches or len(matches) == 1:
        if text in matches:
            return text
        return matches[0]
    if matches:
        raise SweepError(
            f"{len(matches)} points begin with {text!r}: {listed(matches, most=_SHOWN)}; give more "
            "of it"
        )
    raise SweepError(
        f"no ok trial of point {text!r}; give a point_id, its beginning, or settings: 'workers=2 "
        "sync=ddp'"
    )


def _values(column: pd.Series[Any]) -> str:
    import pandas as pd

    values = [str(value) for value in sorted(column.dropna().unique().tolist())]
    if pd.isna(column).any():
        values.append("none")
    return listed(values, most=_SHOWN)
