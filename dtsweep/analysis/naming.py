"""Which point somebody means: by the beginning of its name, or by enough of its settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import setting_columns
from dtsweep.errors import SweepError, did_you_mean
from dtsweep.sweep.axes import parse_setting

if TYPE_CHECKING:
    import pandas as pd

_VALUES_SHOWN = 8


def find_point(points: pd.DataFrame, text: str) -> str:
    """Find the point that is meant.

    Args:
        points: one row per point, or several alike, with `point_id` and the settings.
        text: a `point_id` or the beginning of one; or settings, `workers=2 sync=ddp workload.width=64`, as many as
            tell the point from all others.

    Returns:
        Its `point_id`.

    Raises:
        SweepError: no point is meant, or several are.
    """
    if "=" not in text:
        return _by_name(points, text.strip())
    found = points
    for term in text.split():
        name, values = parse_setting(term)
        told = _values(points, name)
        kept = found[told.loc[found.index].map(lambda value, wanted=values: any(_is(value, each) for each in wanted))]
        if kept.empty:
            shown = _shown(told.loc[found.index])
            also = "" if found is points else " among those with what stands before it"
            raise SweepError(f"no measured point has {term}{also}; {name} is {shown}")
        found = kept
    if found["point_id"].nunique() > 1:
        apart = [name for name in _names(points) if _values(found, name).nunique(dropna=False) > 1]
        what = " and ".join(f"{name} ({_shown(_values(found, name))})" for name in apart) or "their point_id alone"
        raise SweepError(f"{found['point_id'].nunique()} points have {text!r}; add what tells them apart: {what}")
    return str(found["point_id"].iloc[0])


def _by_name(points: pd.DataFrame, text: str) -> str:
    names = sorted({name for name in points["point_id"] if text and name.startswith(text)})
    if text in names or len(names) == 1:
        return text if text in names else names[0]
    if names:
        raise SweepError(
            f"{len(names)} points begin with {text!r}: {', '.join(names[:_VALUES_SHOWN])}; give more of it"
        )
    raise SweepError(
        f"no ok trial of point {text!r}; give the beginning of a point_id, or settings: 'workers=2 sync=ddp'"
    )


def _names(points: pd.DataFrame) -> list[str]:
    """The settings, as a sweep file names them."""
    columns = [name for name in setting_columns(points) if name != "environment"]
    return [name.replace("workload_", "workload.", 1) for name in columns] + _variables(points)


def _variables(points: pd.DataFrame) -> list[str]:
    return sorted({f"env.{name}" for text in points["environment"].dropna() for name in json.loads(text)})


def _values(points: pd.DataFrame, name: str) -> pd.Series[Any]:
    """The values of a setting, null where a point has none."""
    if name.startswith("env."):
        own = points["environment"].fillna("{}").map(json.loads)
        if name in (known := _variables(points)):
            return own.map(lambda variables: variables.get(name.removeprefix("env.")))
        raise SweepError(f"{name!r} is no variable of these points; {did_you_mean(name, known or _names(points))}")
    column = name.replace("workload.", "workload_", 1)
    if column in setting_columns(points) and column != "environment":
        return points[column].astype(object).where(points[column].notna(), None)
    raise SweepError(f"{name!r} is no setting of these points; {did_you_mean(name, _names(points))}")


def _is(value: Any, wanted: Any) -> bool:
    """Whether a stored value is the one that was written: 0.1 is 0.10, and bf16 is text."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted or str(value).lower() == str(wanted).lower()
    return bool(value == wanted) or (value is not None and str(value) == str(wanted))


def _shown(values: pd.Series[Any]) -> str:
    told = sorted({"none" if value is None else str(value) for value in values}, key=lambda each: (len(each), each))
    more = [f"{len(told) - _VALUES_SHOWN} more"] * (len(told) > _VALUES_SHOWN)
    return ", ".join([*told[:_VALUES_SHOWN], *more])
