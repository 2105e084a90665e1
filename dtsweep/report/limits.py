"""Limits of points in remarks and in table columns, and axes to try next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import rows_of
from dtsweep.inference.spread import POINT
from dtsweep.report.labels import point_key
from dtsweep.report.notes import counts_of
from dtsweep.report.records import records_of
from dtsweep.report.remarks import Remark, one_line_remark, remark
from dtsweep.results.schema import IMPORTED

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.recommend import Recommendation

_UNKNOWN = "not known"
"""Text for a point without a bound."""


def limit_of(point: pd.Series[Any], bounds: pd.DataFrame) -> list[Remark]:
    """Say what limits a point, in one line; empty of an imported one.

    Args:
        point: row of `over_launches`.
        bounds: rows of `dtsweep.analysis.bottleneck`.
    """
    if point["harness"] == IMPORTED:
        return []
    row = rows_of_bounds(point.to_frame().T, bounds).iloc[0]
    reason = str(row["bound_reason"]).partition(":")[0]
    if reason.startswith("can't tell"):
        reason = ""
    of_step = ""
    # What is not known to better than half of it is not written in an answer.
    if reason.endswith("of the step") and "~" not in reason:
        of_step = f": {reason}"
    if row["bound"]:
        return [remark("limit", bound=row["bound"], share=of_step)]
    if of_step:
        return [remark("limit_of_part", part=reason)]
    if reason:
        reason = f": {reason}"
    return [one_line_remark("limit_unknown", shorten=("reason",), reason=reason)]


def limits_on(
    recommended: Sequence[Recommendation], shown: Sequence[pd.DataFrame], bounds: pd.DataFrame
) -> list[Remark]:
    """Name axes to try next, where one point is recommended, and count the limits of points.

    Args:
        recommended: of one goal.
        shown: points of each frontier.
        bounds: rows of `dtsweep.analysis.bottleneck`.
    """
    import pandas as pd

    remarks = []
    if len(recommended) == 1:
        point = recommended[0].point.to_frame().T
        (axes,) = rows_of_bounds(point, bounds)["next_axes"]
        if axes:
            remarks.append(remark("try_next", axes=[axis.axis for axis in axes]))
    if known := [rows_of_bounds(points, bounds) for points in shown if len(points)]:
        remarks.append(bounds_counted(pd.concat(known)))
    return remarks


def rows_of_bounds(points: pd.DataFrame, bounds: pd.DataFrame) -> pd.DataFrame:
    """Look up the rows of `bounds` of some points, in their order."""
    keys = map(point_key, rows_of(bounds[[*POINT]]))
    places = {key: place for place, key in enumerate(keys)}
    wanted = map(point_key, rows_of(points[[*POINT]]))
    return bounds.iloc[[places[key] for key in wanted]]


def bound_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of a table by point: what limits it, the number that says so, and what to try next.

    Args:
        rows: of `dtsweep.analysis.bottleneck`, in the order of the table.
    """
    return {
        "limited by": [bound or _UNKNOWN for bound in rows["bound"]],
        "because": list(rows["bound_reason"]),
        "try next": [", ".join(axis.axis for axis in axes) for axes in rows["next_axes"]],
    }


def bounds_counted(rows: pd.DataFrame) -> Remark:
    """Count points by their bound, the most frequent first."""
    return remark("bounds", counts=counts_of(rows["bound"].map(lambda bound: bound or _UNKNOWN)))


def bounds_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Give rows of `dtsweep.analysis.bottleneck` as JSON values; unknown is None.

    Returns:
        One dict per point with the columns of `bottleneck`; `next_axes` is a list of dicts with
        `axis`, `at_most_share` and `why`.
    """
    next_axes = rows["next_axes"].map(lambda axes: [axis._asdict() for axis in axes])
    return records_of(rows.assign(next_axes=next_axes))
