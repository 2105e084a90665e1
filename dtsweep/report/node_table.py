"""Speeds of the nodes of a mixed cluster, in the terminal and as JSON values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import Study
from dtsweep.analysis.node_speeds import ranks_of, speeds_of
from dtsweep.report.records import records_of
from dtsweep.report.verdict_words import REASON_WORDS
from dtsweep.text import format_ends, format_integers, print_table, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from dtsweep.results.store import Results


def speeds_of_nodes(results: Results | str) -> Callable[[Study], NodeSpeeds]:
    """Make the section of the nodes' speeds.

    Args:
        results: the place that the study was loaded from.
    """

    def section(study: Study) -> NodeSpeeds:
        # `devices` lists the device models of a trial, separated by commas.
        is_mixed = study.trials["devices"].str.contains(", ", regex=False).any()
        return NodeSpeeds(
            speeds_of(study.trials, ranks_of(results, study.trials)) if is_mixed else None
        )

    return section


@dataclass(frozen=True, eq=False)
class NodeSpeeds:
    """Section of a report: relative speeds of nodes, where a trial ran on several device models."""

    rows: pd.DataFrame | None
    """Rows of `dtsweep.analysis.node_speeds`; None where no trial ran on several device models."""

    def print(self, *, console: Console) -> None:
        """Print a table of nodes."""
        if self.rows is None:
            return
        rows = self.rows
        is_fastest = rows["node"] == rows["fastest"]
        low, high = (rows[name].mask(is_fastest) for name in ("speed_low", "speed_high"))
        columns = {
            "node": rows["node"].to_list(),
            "device": rows["device"].fillna("unknown").to_list(),
            "speed": [format_ends(*row) for row in zip(rows["speed"], low, high, strict=True)],
            "trials": format_integers(rows["trials"]),
            "launches": format_integers(rows["launches"]),
        }
        say(
            console,
            "\nNodes of different devices · speed relative to the fastest node",
            style="bold",
        )
        print_table(columns, console=console)
        for reason in rows["reason"].dropna().unique():
            say(console, f"A node without a speed: {REASON_WORDS[reason]}.")

    def as_json(self) -> dict[str, Any]:
        """Give the rows as JSON values, under `node_speeds`.

        The list is empty if no trial ran on several device models.
        """
        return {"node_speeds": [] if self.rows is None else records_of(self.rows)}
