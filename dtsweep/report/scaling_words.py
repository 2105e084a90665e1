"""Rows of `worthwhile` and of the law of scaling, as remarks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.scaling import WORTH
from dtsweep.inference.verdicts import KneeVerdict
from dtsweep.report.labels import passes_label, point_label
from dtsweep.report.remarks import Remark, remark
from dtsweep.report.verdict_words import REASON_WORDS
from dtsweep.text import in_percent, is_wide

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

WORTH_RULE = (
    f"It pays where it adds at least {in_percent(WORTH)} of what a worker of the smallest world "
    "does."
)
"""Meaning of a worker that pays."""


def scaling_remarks(worthwhile: pd.DataFrame, usl: pd.DataFrame) -> list[Remark]:
    """Say for each group of `scaling` where one more worker stops paying, and the law if it fits.

    Args:
        worthwhile: rows of `dtsweep.analysis.worthwhile`.
        usl: rows of `dtsweep.predict.usl`, of the same trials.
    """
    counts = worthwhile[setting_columns(worthwhile)].nunique(dropna=False)
    varying = list(counts.index[counts > 1])
    fitted = usl[usl["reason"].isna()]
    remarks, unknown = [], Counter[str]()
    fits_by_group: dict[Any, list[Mapping[Any, Any]]] = {}
    for fit in fitted.to_dict("records"):
        fits_by_group.setdefault(fit["group"], []).append(fit)
    for row in worthwhile.to_dict("records"):
        fits = fits_by_group.get(row["group"], [])
        if row["verdict"] == KneeVerdict.UNKNOWN and not fits:
            unknown[REASON_WORDS[row["verdict_reason"]]] += 1
        else:
            remarks.append(_knee(row, _group_label(row, varying)))
            remarks += map(_law, fits)
    remarks += [
        remark("knees_unknown", count=count, reason=reason) for reason, count in unknown.items()
    ]
    if len(fitted) < len(usl):
        remarks.append(remark("few_sizes"))
    return remarks


def _knee(row: Mapping[Any, Any], group: str) -> Remark:
    """Make a remark of a row of `worthwhile`, counted in workers."""
    code = f"knee_{row['verdict']}"
    if row["verdict"] == KneeVerdict.UNKNOWN:
        return remark(code, group=group, reason=REASON_WORDS[row["verdict_reason"]])
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


def _law(fit: Mapping[Any, Any]) -> Remark:
    """Parameters of the law, its peak, where one more adds too little, and how far it misses."""
    import pandas as pd

    facts = [", ".join(_parameter_words(fit, name) for name in ("contention", "coherency"))]
    if pd.notna(fit["peak"]):
        facts.append(f"highest at {_size_words(fit, 'peak')}")
    if pd.notna(fit["pays_to"]):
        facts.append(f"beyond {_size_words(fit, 'pays_to')} one more worker doesn't pay")
    code = "law_contradicted" if fit["contradicted"] is True else "law"
    return remark(code, facts=facts, residual=fit["residual"])


def _parameter_words(fit: Mapping[Any, Any], name: str) -> str:
    value, low, high = (fit[f"{name}{end}"] for end in ("", "_low", "_high"))
    if is_wide(value, low, high):
        return f"{name} not known"
    return f"{name} {value:.3g} ({low:.3g} to {high:.3g})"


def _size_words(fit: Mapping[Any, Any], name: str) -> str:
    import pandas as pd

    low = fit[f"{name}_low"]
    high = fit[f"{name}_high"]
    to = "or more"
    if pd.notna(high):
        to = f"to {high:,.0f}"
    beyond = ""
    if fit[f"{name}_extrapolates"] is True:
        beyond = ", extrapolated"
        if fit["contradicted"] is not False:
            beyond += ", untested"
    if pd.notna(high) and is_wide(fit[name], low, high):
        return f"~{fit[name]:,.0f} ({beyond.removeprefix(', ')})".removesuffix(" ()")
    return f"{fit[name]:,.0f} ({low:,.0f} {to}{beyond})"
