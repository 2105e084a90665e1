"""Points that differ in `compile` alone, compared by throughput: where compiling pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtsweep.analysis import difference, setting_columns
from dtsweep.analysis.study import Study
from dtsweep.inference.verdicts import Verdict
from dtsweep.report.labels import trial_label, varying_columns
from dtsweep.report.remarks import Remark, remark
from dtsweep.report.verdict_words import REASON_WORDS, VERDICT_WORDS
from dtsweep.text import percent

if TYPE_CHECKING:
    import pandas as pd


def compiled_remarks(study: Study, points: pd.DataFrame) -> Sequence[Remark]:
    """Say where compiled points are slower than uncompiled ones, those first, and where faster.

    Args:
        study: of all trials.
        points: rows of `dtsweep.analysis.frontier`.

    Returns:
        One remark, or none where no two points differ in `compile` alone.
    """
    is_compiled = points["compile"].astype("boolean").fillna(value=False).astype(bool)
    shared = [*(name for name in setting_columns(points) if name != "compile"), "env_id", "hosts"]
    # Null is a value that both may have, and merges as any other.
    pairs = points[is_compiled].merge(points[~is_compiled], on=shared, suffixes=("", "_plain"))
    varying = [name for name in varying_columns(points) if name != "compile"]
    lines: dict[str, dict[str, str]] = {Verdict.SLOWER: {}, Verdict.FASTER: {}}
    for pair in pairs.to_dict("records"):
        rows = difference(study, pair["point_id"], pair["point_id_plain"], of="samples_per_s")
        same = (rows["hosts_a"] == pair["hosts"]) & (rows["hosts_b"] == pair["hosts"])
        row = rows[same & rows["env_id"].isin([pair["env_id"]])].iloc[0]
        words = f"{row['ratio']:.2f} times the samples/s"
        if row["verdict"] == Verdict.UNKNOWN:
            words += f", not tested ({REASON_WORDS[row['verdict_reason']]})"
        else:
            verdict = VERDICT_WORDS[row["verdict"]].format(zone=percent(row["zone"]))
            words += f" ({row['ratio_low']:.2f}–{row['ratio_high']:.2f}), {verdict}"
        lines.setdefault(str(row["verdict"]), {})[trial_label(pair, varying)] = words
    verdicts = {
        str(verdict): len(of_verdict) for verdict, of_verdict in lines.items() if of_verdict
    }
    listed = {label: words for of_verdict in lines.values() for label, words in of_verdict.items()}
    return [remark("compiled", verdicts=verdicts, points=listed)] if listed else []
