"""Find a point by the beginning of its name or by enough of its settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import setting_columns
from dtsweep.analysis.where import parse_condition
from dtsweep.errors import SweepError

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 8
"""Values or names that an error lists."""

_BETWEEN = re.compile(r"(?<!\band)(?<!\bor)(?<!\bnot)(?<=[\w.'\")])\s+(?=[A-Za-z_][\w.]*\s*[<>=!])")
"""Between two settings that only a space parts."""


def find_point(points: pd.DataFrame, text: str) -> str:
    """Find the point that is meant.

    Args:
        points: rows of `over_launches`.
        text: a `point_id` or the beginning of one; or settings, `workers=2 sync=ddp
            workload.width=64`, as many as tell the point from all others: a condition of `where` in
            which spaces are `and`.

    Returns:
        Its `point_id`.

    Raises:
        SweepError: no point is meant, or several are.
    """
    if not re.search("[<>=]", text):
        return _by_name(sorted(points["point_id"].unique()), text.strip())
    condition = parse_condition(_BETWEEN.sub(" and ", text.strip()), points)
    found = points[condition.holds(points).fillna(value=False).astype(bool)]
    if found.empty:
        there = "; ".join(
            f"{_name(column)} is {_values(points[column])}" for column in condition.columns
        )
        raise SweepError(f"no measured point has {text!r}: {there}")
    if (count := found["point_id"].nunique()) > 1:
        apart = [c for c in setting_columns(found) if found[c].nunique(dropna=False) > 1]
        what = " and ".join(f"{_name(column)} ({_values(found[column])})" for column in apart)
        raise SweepError(
            f"{count} points have {text!r}; add what tells them apart: "
            f"{what or 'their point_id alone'}"
        )
    return str(found["point_id"].iloc[0])


def _by_name(names: list[str], text: str) -> str:
    meant = [name for name in names if text and name.startswith(text)]
    if text in meant or len(meant) == 1:
        if text in meant:
            return text
        return meant[0]
    if meant:
        raise SweepError(
            f"{len(meant)} points begin with {text!r}: {_listed(meant)}; give more of it"
        )
    raise SweepError(
        f"no ok trial of point {text!r}; give a point_id, its beginning, or settings: 'workers=2 "
        "sync=ddp'"
    )


def _name(column: str) -> str:
    """Name a setting as a sweep file does."""
    return column.replace("workload_", "workload.", 1)


def _values(column: pd.Series[Any]) -> str:
    import pandas as pd

    values = [str(value) for value in sorted(column.dropna().unique().tolist())]
    if pd.isna(column).any():
        values.append("none")
    return _listed(values)


def _listed(words: list[str]) -> str:
    shown = words[:_SHOWN]
    if len(words) > _SHOWN:
        shown.append(f"{len(words) - _SHOWN} more")
    return ", ".join(shown)
