"""Comparison of two runs in the terminal: a table of the differences found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtsweep.compare.words import Row, Rows, share_in_percent
from dtsweep.inference.verdicts import Verdict
from dtsweep.report.verdict_words import VERDICT_WORDS
from dtsweep.text import count_of, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 3
"""Points of one run alone that are named."""

_DRAWS = {"launch": "launches:\nearlier,\nnew", "run": "runs:\nearlier,\nnew"}
"""Head of the column that counts draws, by their unit."""

_SIGNIFICANT = (Verdict.SLOWER, Verdict.FASTER)
_ORDER = (*_SIGNIFICANT, Verdict.UNDECIDED, Verdict.UNKNOWN)


def print_comparison(compared: Row, *, console: Console, show_all: bool = False) -> None:
    """Print what `comparison_json` holds."""
    say(console, compared["words"], style="bold")
    for sentence in [*compared["grew"], *compared["changes"]]:
        say(console, sentence)
    for row in compared["broken"]:
        say(
            console,
            f"No longer runs: {row['label']}: {row['status']}: "
            f"{row['reason'] or 'no reason stored'}",
        )
    shown = chosen_rows(compared, show_all=show_all)
    if shown:
        say(console, "")
        print_table(columns_of_rows(shown, compared), console=console)
    if hidden := len(compared["rows"]) - len(shown):
        count = count_of(hidden, "comparison")
        them = "it" if hidden == 1 else "them"
        say(console, f"\n{count} without a significant difference: --all shows {them}")
    for where, name in (("only_base", "the earlier run"), ("only_new", "the new run")):
        if labels := [point["label"] for point in compared[where]]:
            say(console, f"\nOnly in {name}: {_listed(labels, show_all=show_all)}")
    say(console, "\n" + "\n".join(compared["notes"]))


def _listed(labels: Sequence[str], *, show_all: bool) -> str:
    """Name points one a line; of many how many there are, and the first."""
    if show_all:
        shown = labels
    else:
        shown = labels[:_SHOWN]
    lines = [count_of(len(labels), "point"), *shown]
    if len(shown) < len(labels):
        lines.append(f"{len(labels) - len(shown)} more: --all shows them")
    return "\n  ".join(lines)


def chosen_rows(compared: Row, *, show_all: bool = False) -> Rows:
    """Give the rows of significant differences, or all of them, regressions first."""
    rows = compared["rows"]
    if not show_all:
        rows = [row for row in rows if row["verdict"] in _SIGNIFICANT]
    return sorted(rows, key=lambda row: (not row["is_regression"], _ORDER.index(row["verdict"])))


def columns_of_rows(rows: Rows, compared: Row) -> dict[str, list[str]]:
    """Columns of a table of rows of a comparison; those without any content are left out."""
    columns = {
        "point": [row["label"] for row in rows],
        "of": [row["of"] for row in rows],
        "new over\nearlier": [
            f"{row['ratio']:.3f}" if row["ratio"] is not None else "" for row in rows
        ],
        "95 %": [_interval(row) for row in rows],
        _DRAWS[compared["unit"]]: [
            f"{row['launches_base']}, {row['launches_new']}" for row in rows
        ],
        "verdict": [_word(row, compared["threshold"]) for row in rows],
        "caution": [row["caution"] for row in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


def _interval(row: Row) -> str:
    if row["ratio_low"] is None:
        return ""
    return f"{row['ratio_low']:.3f}–{row['ratio_high']:.3f}"


def _word(row: Row, threshold: float) -> str:
    if row["is_regression"]:
        return "regression"
    if row["verdict"] == Verdict.SLOWER:
        return f"slower, not by {share_in_percent(threshold)}"
    if row["verdict"] != Verdict.UNDECIDED:
        return VERDICT_WORDS[row["verdict"]]
    if row["p_value"] <= 0.05:
        return "not significant among so many"
    return "not significant"
