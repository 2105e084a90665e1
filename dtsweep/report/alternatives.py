"""Alternatives to a recommendation, in words: points that are better in another respect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.report.labels import trial_label
from dtsweep.report.remarks import Remark, remark
from dtsweep.text import in_percent

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.recommend import Recommendation

_RATIOS = {"latency_s": "step time", "samples_per_s": "samples/s"}
"""Name of each compared quantity."""


def alternatives(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Name the points that are better than the recommended one in another respect."""
    remarks = []
    for _, row in recommendation.alternatives.iterrows():
        advantage = {"latency_s": "shorter steps", "samples_per_s": "more throughput"}.get(
            row["better"], f"a better {row['better']}"
        )
        ratios = {name: float(row[f"{name}_ratio"]) for name in _RATIOS}
        known = {name: ratio for name, ratio in ratios.items() if not math.isnan(ratio)}
        remarks.append(
            remark(
                "alternative",
                advantage=advantage,
                point=trial_label(row, varying),
                ratios=known,
                figures=[_times(ratio, _RATIOS[name]) for name, ratio in known.items()],
                why_not=_why_not(row, recommendation),
            )
        )
    return remarks


def _times(ratio: float, of: str) -> str:
    """Write a ratio, as a fraction where it is small.

    >>> _times(0.0611, "step time"), _times(1.72, "samples/s")
    ('1/16.4 of the step time', '1.72 times the samples/s')
    """
    if ratio < 0.5:
        return f"1/{1 / ratio:.3g} of the {of}"
    return f"{ratio:.3g} times the {of}"


def _why_not(row: pd.Series[Any], recommendation: Recommendation) -> str:
    """Say why an alternative is not a candidate; empty if it is one."""
    if not row["is_allowed"]:
        return f", by {row['semantics']} updates (--allow {row['semantics']} takes it)"
    if row["is_unknown"]:
        lacking = " and ".join(name for name in recommendation.unmeasured if row.isna()[name])
        if not lacking:
            return ", but not known to meet the condition"
        return f", but its {lacking} is not known"
    if not row["is_met"]:
        return ", but does not meet the condition"
    if row["is_slow"]:
        share = in_percent(recommendation.goal.least_rate)
        return f", but less than {share} of the best samples_per_s"
    return ""
