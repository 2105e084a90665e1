"""Rows of `worthwhile` as remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.scaling import WORTH
from dtsweep.inference.verdicts import KneeVerdict
from dtsweep.report.labels import passes_label, point_label
from dtsweep.report.remarks import Remark, remark
from dtsweep.report.verdict_words import REASON_WORDS
from dtsweep.text import in_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

WORTH_RULE = (
    f"It pays where it adds at least {in_percent(WORTH)} of what a worker of the smallest world "
    "does."
)
"""Meaning of a worker that pays."""


def scaling_remarks(worthwhile: pd.DataFrame) -> list[Remark]:
    """Say for each group of `scaling` where one more worker stops paying; unknown ones are counted.

    Args:
        worthwhile: rows of `dtsweep.analysis.worthwhile`.
    """
    counts = worthwhile[setting_columns(worthwhile)].nunique(dropna=False)
    varying = list(counts.index[counts > 1])
    is_unknown = worthwhile["verdict"] == KneeVerdict.UNKNOWN
    is_open = worthwhile["verdict"] == KneeVerdict.NOT_DISTINGUISHABLE
    # Several groups in which nothing differs have one remark together.
    is_shared = is_open & (is_open.sum() > 1)
    remarks = [
        _knee(row, _group_label(row, varying))
        for row in worthwhile[~is_unknown & ~is_shared].to_dict("records")
    ]
    if is_shared.any():
        groups = [_group_label(row, varying) for row in worthwhile[is_shared].to_dict("records")]
        remarks.append(remark("knees_not_distinguishable", count=len(groups), groups=groups))
    unknown = worthwhile.loc[is_unknown, "verdict_reason"].value_counts()
    return remarks + [
        remark("knees_unknown", count=count, reason=REASON_WORDS[str(reason)])
        for reason, count in unknown.items()
    ]


def _knee(row: Mapping[Any, Any], group: str) -> Remark:
    """Make a remark of a row of `worthwhile`, counted in workers."""
    code = f"knee_{row['verdict']}"
    if row["verdict"] == KneeVerdict.BEYOND_SIZES:
        return remark(code, group=group, largest=row["largest"])
    low = int(row["pays_at_least"])
    if row["verdict"] == KneeVerdict.NOT_DISTINGUISHABLE:
        return remark(code, group=group, pays_at_least=low)
    high, interval = int(row["pays_to_high"]), ""
    if low != high:
        interval = f" (95 %: from {low} to {high})"
    size, next_size = int(row["pays_to"]), int(row["next_size"])
    return remark(code, group=group, size=size, next_size=next_size, interval=interval)


def _group_label(row: Mapping[Any, Any], varying: list[str]) -> str:
    if row["kind"] == "weak":
        shape = f"{passes_label(row)} per worker"
    else:
        shape = f"{row['global_batch']} per step"
    return f"{point_label(row, varying)}, {row['kind']} scaling, {shape}"
