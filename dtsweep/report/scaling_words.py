"""Rows of `worthwhile` and of the law of scaling, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.worthwhile import WORTH
from dtsweep.inference.verdicts import KneeVerdict
from dtsweep.report.labels import passes_label, point_label
from dtsweep.report.verdict_words import KNEE_WORDS, REASON_WORDS
from dtsweep.text import count_of, in_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

WORTH_RULE = (
    f"It pays where it adds at least {in_percent(WORTH)} of what a worker of the smallest world "
    "does."
)
"""Meaning of a worker that pays."""


def scaling_sentences(worthwhile: pd.DataFrame, usl: pd.DataFrame) -> list[str]:
    """Say for each group of `scaling` where one more worker stops paying.

    A line for the law that fits follows.

    Args:
        worthwhile: rows of `dtsweep.analysis.worthwhile`.
        usl: rows of `dtsweep.analysis.usl`, of the same trials.
    """
    counts = worthwhile[setting_columns(worthwhile)].nunique(dropna=False)
    varying = list(counts.index[counts > 1])
    fitted = usl[usl["reason"].isna()]
    lines, unknown = [], Counter[str]()
    for row in worthwhile.to_dict("records"):
        fits = fitted[fitted["group"] == row["group"]].to_dict("records")
        words = _knee_words(row)
        if fits or row["verdict"] != KneeVerdict.UNKNOWN:
            lines.append(f"{_group_label(row, varying)}: {words}.")
            lines += [f"  Universal Scalability Law: {_fit_words(fit)}." for fit in fits]
        else:
            unknown[words] += 1
    lines += [
        f"{count_of(count, 'group')} of several sizes: {words}." for words, count in unknown.items()
    ]
    if len(fitted) < len(usl):
        lines.append("The Universal Scalability Law is fitted to four sizes or more.")
    return lines


def _knee_words(row: Mapping[Any, Any]) -> str:
    """Put a row of `worthwhile`, counted in workers, into words."""
    template = KNEE_WORDS[row["verdict"]]
    if row["verdict"] == KneeVerdict.UNKNOWN:
        return template.format(reason=REASON_WORDS[row["verdict_reason"]])
    if row["verdict"] == KneeVerdict.BEYOND_SIZES:
        return template.format(largest=row["largest"])
    pays_at_least = int(row["pays_at_least"])
    if row["verdict"] == KneeVerdict.NOT_DISTINGUISHABLE:
        return template.format(pays_at_least=count_of(pays_at_least, "worker"))
    high = int(row["pays_to_high"])
    return template.format(
        size=count_of(int(row["pays_to"]), "worker"),
        next_size=int(row["next_size"]),
        interval="" if pays_at_least == high else f" (95 %: from {pays_at_least} to {high})",
    )


def _group_label(row: Mapping[Any, Any], varying: list[str]) -> str:
    import pandas as pd

    if row["kind"] == "weak":
        shape = f"{passes_label(row)} per worker"
    else:
        shape = f"{row['global_batch']} per step"
    return f"{point_label(pd.Series(row), varying)}, {row['kind']} scaling, {shape}"


def _fit_words(fit: Mapping[Any, Any]) -> str:
    """Parameters of the law, its peak, where one more adds too little, and how far it misses."""
    import pandas as pd

    shares = [
        f"{name} {fit[name]:.3g} ({fit[f'{name}_low']:.3g} to {fit[f'{name}_high']:.3g})"
        for name in ("contention", "coherency")
    ]
    ends = [
        words.format(size=_size_words(fit, name))
        for name, words in {
            "peak": "highest at {size}",
            "pays_to": "beyond {size} one more worker doesn't pay",
        }.items()
        if pd.notna(fit[name])
    ]
    misses = f"misses the measured by {in_percent(fit['residual'], digits=1)}"
    doubt = ""
    if fit["contradicted"] is True:
        doubt = ", more than launches differ"
    return "; ".join([", ".join(shares), *ends, misses + doubt])


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
    return f"{fit[name]:,.0f} ({low:,.0f} {to}{beyond})"
