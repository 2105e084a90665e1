"""Limits of points in remarks and in table columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import rows_of
from dtsweep.inference.spread import POINT
from dtsweep.report.labels import point_key
from dtsweep.report.notes import counts_of
from dtsweep.report.remarks import Remark, one_line_remark, remark
from dtsweep.results.schema import IMPORTED

if TYPE_CHECKING:
    import pandas as pd

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


def limits_on(shown: Sequence[pd.DataFrame], bounds: pd.DataFrame) -> list[Remark]:
    """Count the limits of points; empty without points.

    Args:
        shown: points of each frontier.
        bounds: rows of `dtsweep.analysis.bottleneck`.
    """
    import pandas as pd

    known = [rows_of_bounds(points, bounds) for points in shown if len(points)]
    return [bounds_counted(pd.concat(known))] if known else []


def rows_of_bounds(points: pd.DataFrame, bounds: pd.DataFrame) -> pd.DataFrame:
    """Look up the rows of `bounds` of some points, in their order."""
    keys = map(point_key, rows_of(bounds[[*POINT]]))
    places = {key: place for place, key in enumerate(keys)}
    wanted = map(point_key, rows_of(points[[*POINT]]))
    return bounds.iloc[[places[key] for key in wanted]]


def bound_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of a table by point: what limits it, and the number that says so.

    Args:
        rows: of `dtsweep.analysis.bottleneck`, in the order of the table.
    """
    return {
        "limited by": [bound or _UNKNOWN for bound in rows["bound"]],
        "because": list(rows["bound_reason"]),
    }


def bounds_counted(rows: pd.DataFrame) -> Remark:
    """Count points by their bound, the most frequent first."""
    return remark("bounds", counts=counts_of(rows["bound"].map(lambda bound: bound or _UNKNOWN)))
