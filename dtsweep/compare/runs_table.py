"""Comparison of two runs in the terminal: a table of the differences found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.compare.words import share_in_percent
from dtsweep.inference.verdicts import Verdict
from dtsweep.report.verdict_words import VERDICT_WORDS
from dtsweep.text import count_of, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 3
"""Points of one run alone that are named."""

_SIGNIFICANT = (Verdict.SLOWER, Verdict.FASTER)
_ORDER = (*_SIGNIFICANT, Verdict.UNDECIDED, Verdict.UNKNOWN)

_DRAWS = "earlier,\nnew"
"""Head of the column that counts launches or runs."""

_ABOVE_TABLE = ("of", _DRAWS)
"""Columns that are said above the table where all cells are the same."""


def print_comparison(
    compared: Mapping[str, Any], *, console: Console, show_all: bool = False
) -> None:
    """Print what `comparison_json` holds.

    Args:
        compared: its value.
        console: where to.
        show_all: also comparisons without a result, and every point of one run alone.
    """
    say(console, compared["words"], style="bold")
    for sentence in compared["grew"]:
        say(console, sentence)
    for row in compared["broken"]:
        say(
            console,
            f"No longer runs: {row['label']}: {row['status']}: "
            f"{row['reason'] or 'no reason stored'}",
        )
    rows = sorted(
        compared["rows"],
        key=lambda row: (not row["is_regression"], _ORDER.index(row["verdict"])),
    )
    shown = rows
    if not show_all:
        shown = [row for row in rows if row["verdict"] in _SIGNIFICANT]
    if shown:
        say(console, "")
        _print_rows(shown, compared, console=console)
    if hidden := len(rows) - len(shown):
        count = count_of(hidden, "comparison")
        say(console, f"\n{count} without a significant difference: --all shows all")
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


def _print_rows(
    rows: Sequence[Mapping[str, Any]], compared: Mapping[str, Any], *, console: Console
) -> None:
    """Print comparisons as a table, and above it what is the same in all of them."""
    words = [row["label"].split() for row in rows]
    is_shared = {}
    if len(rows) > 1:
        is_shared = {word: all(word in label for label in words) for word in words[0]}
    shared = [word for word in words[0] if is_shared.get(word)]
    columns = _columns(rows, compared)
    columns["point"] = [" ".join(word for word in label if word not in shared) for label in words]
    same = {
        name: cells[0]
        for name, cells in columns.items()
        if name in _ABOVE_TABLE and len(set(cells)) == 1
    }
    parts = [
        " ".join(shared),
        same.get("of", ""),
        _drawn(rows[0], compared) if _DRAWS in same else "",
    ]
    say(console, "; ".join(filter(None, parts)))
    print_table(
        {name: cells for name, cells in columns.items() if name not in same and any(cells)},
        console=console,
    )


def _drawn(row: Mapping[str, Any], compared: Mapping[str, Any]) -> str:
    """Say how many launches or runs a comparison is of."""
    then = row["launches_base"]
    now = row["launches_new"]
    return (
        f"{then} {compared['unit']}{'es' if compared['unit'] == 'launch' else 's'} earlier, {now} "
        "now"
    )


def _columns(
    rows: Sequence[Mapping[str, Any]], compared: Mapping[str, Any]
) -> dict[str, list[str]]:
    return {
        "point": [row["label"] for row in rows],
        "of": [row["of"] for row in rows],
        "new over\nearlier": [
            f"{row['ratio']:.3f}" if row["ratio"] is not None else "" for row in rows
        ],
        "95 %": [_interval(row) for row in rows],
        _DRAWS: [f"{row['launches_base']}, {row['launches_new']}" for row in rows],
        "verdict": [_word(row, compared["threshold"]) for row in rows],
        "caution": [row["caution"] for row in rows],
    }


def _interval(row: Mapping[str, Any]) -> str:
    if row["ratio_low"] is None:
        return ""
    return f"{row['ratio_low']:.3f}–{row['ratio_high']:.3f}"


def _word(row: Mapping[str, Any], threshold: float) -> str:
    if row["is_regression"]:
        return "regression"
    if row["verdict"] == Verdict.SLOWER:
        return f"slower, not by {share_in_percent(threshold)}"
    if row["verdict"] != Verdict.UNDECIDED:
        return VERDICT_WORDS[row["verdict"]]
    if row["p_value"] <= 0.05:
        return "not significant among so many"
    return "not significant"
