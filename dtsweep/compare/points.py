"""Comparison of two points, in words and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import difference, setting_columns
from dtsweep.analysis.canaries import significant_drift
from dtsweep.analysis.naming import find_point
from dtsweep.analysis.study import Frame, study_of
from dtsweep.errors import SweepError
from dtsweep.inference.verdicts import Method, Verdict
from dtsweep.report.labels import trial_label, update_labels
from dtsweep.report.next_step import run_with_launches
from dtsweep.report.records import records_of
from dtsweep.report.verdict_words import LONG_REASON_WORDS, REASON_WORDS, VERDICT_WORDS
from dtsweep.text import percent, percent_up, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_METHODS = {
    Method.IN_TURN: ", measured in turn",
    Method.PAIRED: " one by one",
    Method.PAIRED_POOLED: " one by one, their spread from all points",
    Method.POOLED: ", their spread from all points",
    Method.WELCH: "",
}
"""Words for each method of `difference` that tests."""


def compare_points(
    frame: Frame, a: str, b: str, *, of: Sequence[str], zone: float | None = None
) -> dict[str, Any]:
    """Compare two points that a user names.

    Args:
        frame: one row per trial, canaries included, or a study of it.
        a: of the first, as `find_point` takes it.
        b: of the second.
        of: rates and times to compare them by.
        zone: indifference zone, as `difference` takes it.

    Returns:
        JSON values: `a` and `b` (`point_id`, `label`), `differences` (rows of `difference`, each
        with `words`), `notes` (further measurements, the machine's drift, and what makes them
        two ways to the same), `drift` (a share).

    Raises:
        SweepError: no trial ended ok; a name means no point, or several, or both mean one.
    """
    study = study_of(frame)
    points = study.points
    if points.empty:
        raise SweepError("no trial ended ok, so there is nothing to compare; the report says why")
    varying = [name for name in setting_columns(points) if points[name].nunique(dropna=False) > 1]
    names = [find_point(points, text) for text in (a, b)]
    if names[0] == names[1]:
        raise SweepError(
            f"{a!r} and {b!r} are one point ({names[0]}); name another one to compare it with"
        )
    pair = [points[points["point_id"] == name].iloc[0] for name in names]
    rows = records_of(difference(study, *names, of=of, zone=zone))
    differing = [
        name for name in ("env_id", "hosts_a", "hosts_b") if len({row[name] for row in rows}) > 1
    ]
    drift = significant_drift(study.canaries)
    labelled = [{"point_id": row["point_id"], "label": trial_label(row, varying)} for row in pair]
    for row in rows:
        distinction = ", ".join(f"{name} {row[name]}" for name in differing)
        row["words"] = ": ".join(filter(None, [distinction, _words_on(row)]))
    notes = [*drift_notes(drift), *_group_notes(*pair)]
    if any(row["verdict"] == Verdict.UNKNOWN and row["ratio"] is not None for row in rows):
        run = run_with_launches(study)
        notes.insert(0, f"Next: {run}, which shows how far launches differ.")
    return {
        "a": labelled[0],
        "b": labelled[1],
        "differences": rows,
        "notes": notes,
        "drift": drift,
    }


def drift_notes(drift: float | None) -> list[str]:
    """Say which differences the machine's drift hides; empty if `drift` is None."""
    if drift is None:
        return []
    percent = percent_up(drift)
    return [
        f"The machine drifted: by up to {percent} within a run; single launches show no "
        "difference below that."
    ]


def _words_on(row: dict[str, Any]) -> str:
    """Put a row of `difference` into sentences.

    >>> _words_on({"of": "latency_s", "ratio": None, "verdict_reason": "not_measured"})
    'Unknown by latency_s: not measured.'
    """
    if row["ratio"] is None:
        return f"Unknown by {row['of']}: {REASON_WORDS[row['verdict_reason']]}."
    ratio = f"{row['ratio']:.3f} times"
    if row["verdict"] == Verdict.UNKNOWN:
        reason = LONG_REASON_WORDS[row["verdict_reason"]]
        return f"Unknown by {row['of']}: {ratio} by the means, but {reason}."
    launches = f"{row['launches_a']} and {row['launches_b']} launches{_METHODS[row['method']]}"
    ratio += f" ({row['ratio_low']:.3f}–{row['ratio_high']:.3f}; {launches})"
    if row["verdict"] == Verdict.UNDECIDED:
        least = percent_up(row["detectable_ratio"] - 1)
        return f"Undecided by {row['of']}: {ratio}. A difference of {least} would be found."
    zone = percent(row["zone"])
    if row["verdict"] == Verdict.EQUAL:
        return f"A and B are equal within {zone} by {row['of']}: {ratio}."
    practical = ""
    if 1 / (1 + row["zone"]) <= row["ratio_low"] and row["ratio_high"] <= 1 + row["zone"]:
        practical = f" That is less than {zone}: no practical difference."
    return f"A is {VERDICT_WORDS[row['verdict']]} by {row['of']}: {ratio}.{practical}"


def _group_notes(first: pd.Series[Any], second: pd.Series[Any]) -> list[str]:
    """Say why two points are not in one comparable group."""
    import pandas as pd

    notes = []
    updates = update_labels(pd.DataFrame([first, second]))
    if updates[0] != updates[1]:
        notes.append(
            f"Updates of A are {updates[0]}, of B {updates[1]}: faster is not sooner at the same "
            "loss."
        )
    models = [
        [str(point[name]) for name in ("workload", "model_digest") if pd.notna(point[name])]
        for point in (first, second)
    ]
    if models[0] != models[1]:
        notes.append("A and B train different models: a sample of one is none of the other.")
    return notes


def print_difference(compared: dict[str, Any], *, console: Console) -> None:
    """Print what `compare_points` found."""
    rows = compared["differences"]
    say(console, "\n".join(row["words"] for row in rows), style="bold")
    for end in ("a", "b"):
        doubts = sorted({row[f"caution_{end}"] for row in rows} - {"", None})
        point = compared[end]
        line = f"{end.upper()}: {point['label']} ({point['point_id']})"
        if doubts:
            line += f"; caution: {'; '.join(doubts)}"
        say(console, line)
    for note in compared["notes"]:
        say(console, note)
