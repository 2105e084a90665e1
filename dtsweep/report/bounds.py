"""Rows of `dtsweep.analysis.bottleneck` as table columns, as a remark, and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.report.records import records_of
from dtsweep.report.remarks import Remark, remark

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.next_axes import NextAxis

UNKNOWN = "not known"
"""Text for a point without a bound."""


def bound_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of a table by point: what limits it, the number that says so, and what to try next.

    Args:
        rows: of `dtsweep.analysis.bottleneck`, in the order of the table.
    """
    return {
        "limited by": [bound or UNKNOWN for bound in rows["bound"]],
        "because": list(rows["bound_reason"]),
        "try next (share of the step)": [next_words(axes) for axes in rows["next_axes"]],
    }


def next_words(axes: Sequence[NextAxis]) -> str:
    """Name axes with the share of the step that each attacks: the most that it can save.

    A share above the whole step is noise.

    >>> from dtsweep.analysis.next_axes import NextAxis
    >>> next_words([NextAxis("precision", 0.5, ""), NextAxis("workers", 0.98, "")])
    'precision 50 %, workers 98 %'
    """
    return ", ".join(f"{axis.axis} {min(1.0, axis.at_most_share) * 100:.0f} %" for axis in axes)


def bounds_counted(rows: pd.DataFrame) -> Remark:
    """Count points by their bound, the most frequent first."""
    counts = rows["bound"].map(lambda bound: bound or UNKNOWN).value_counts()
    return remark("bounds", counts={str(bound): int(count) for bound, count in counts.items()})


def bounds_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Give rows of `dtsweep.analysis.bottleneck` as JSON values; unknown is None.

    Returns:
        One dict per point with the columns of `bottleneck`; `next_axes` is a list of dicts with
        `axis`, `at_most_share` and `why`.
    """
    next_axes = rows["next_axes"].map(lambda axes: [axis._asdict() for axis in axes])
    return records_of(rows.assign(next_axes=next_axes))
