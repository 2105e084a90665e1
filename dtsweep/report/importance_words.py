"""Importance of the swept axes for the step time: a section of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.importance import importance
from dtsweep.analysis.study import Study
from dtsweep.report.records import records_of
from dtsweep.text import in_percent, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

LEAST_SHOWN = 0.01
"""Share of the variance, below which a row is part of `all else`."""


def importance_of_axes(study: Study) -> Importance:
    """Make the section of a study."""
    return Importance(importance(study))


@dataclass(frozen=True, eq=False)
class Importance:
    """Section of a report: shares of the variation of the step time, by axis."""

    rows: pd.DataFrame
    """Rows of `dtsweep.analysis.importance`."""

    def print(self, *, console: Console) -> None:
        """Print a sentence for each model and environment."""
        if self.rows.empty:
            return
        say(console, "\nWhat matters for the step time", style="bold")
        for line in sentences(self.rows):
            say(console, line)

    def as_json(self) -> dict[str, Any]:
        """Give the rows as JSON values, under `importance`."""
        return {"importance": records_of(self.rows)}


def groups_of(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Divide rows by model and environment."""
    groups = rows.groupby(["model_digest", "env_id"], dropna=False, sort=False)
    return [group for _, group in groups]


def sentences(rows: pd.DataFrame) -> list[str]:
    """Put shares into sentences, and name the axes that can't be distinguished."""
    groups = groups_of(rows)
    lines = []
    for group in groups:
        name = ""
        if len(groups) > 1:
            name = f"Model {group['model_digest'].iloc[0]} in {group['env_id'].iloc[0]}: "
        lines.append(f"{name}{_shares(group)}.")
    apart = dict.fromkeys(rows.loc[~rows["is_identifiable"].astype(bool), "axes"])
    lines += [f"Not identifiable: {axes} were varied together, and count as one." for axes in apart]
    lines.append(
        "These are shares of the variance of its logarithm, by the performance model, over the "
        "measured values of all axes."
    )
    return lines


def _shares(group: pd.DataFrame) -> str:
    """Name axes and pairs with their shares, the largest first."""
    is_shown = (group["share"] >= LEAST_SHOWN) & (group["kind"] != "rest")
    shown = group[is_shown]
    words = ", ".join(
        f"{axes} {in_percent(share)}"
        for axes, share in zip(shown["axes"], shown["share"], strict=True)
    )
    rest = float(group.loc[~is_shown, "share"].sum())
    if rest < LEAST_SHOWN / 2:
        return words
    return f"{words}; all else {in_percent(rest)}"
