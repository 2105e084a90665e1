"""Cost of the runs of some results: a section of the report; and prices that are given later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import rows_of
from dtsweep.metrics.charge import held_s
from dtsweep.plan.prices import Prices, read_types
from dtsweep.results.statuses import LOST
from dtsweep.results.store import Results
from dtsweep.text import count_of, lost_line, say, usd

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from dtsweep.analysis import Study

_READ = (
    "status",
    "node_types",
    "usd_per_hour",
    "cost_usd",
    "startup_s",
    "nodes_wait_s",
    "trial_s",
)


def priced(frame: pd.DataFrame, prices: Prices) -> pd.DataFrame:
    """Give all rows the prices of their node types; null where one has no price.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        prices: that hold for all rows.
    """
    rows = [_priced_row(row, prices) for row in rows_of(frame[[*_READ[1:]]])]
    columns = {name: [row[name] for row in rows] for name in ("usd_per_hour", "cost_usd")}
    # In one piece: pandas warns of columns that were added one by one.
    return frame.assign(**columns).astype(dict.fromkeys(columns, "float64")).copy()


def without_price(frame: pd.DataFrame, prices: Prices) -> list[str]:
    """Name the node types of rows that have no price.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        prices: that hold for all rows.
    """
    sets = frame["node_types"].dropna().unique()
    node_types = {node_type for nodes in sets for node_type in read_types(nodes)}
    return sorted(name for name in node_types if prices.price_of(name) is None)


def _priced_row(row: Mapping[Any, Any], prices: Prices) -> dict[str, Any]:
    """Row with the price of its node types, and its cost."""
    per_hour = cost = None
    if row["node_types"] is not None:
        per_hour = prices.of_nodes(read_types(row["node_types"]))
    if per_hour is not None:
        cost = per_hour * held_s(row) / 3600
    return {**row, "usd_per_hour": per_hour, "cost_usd": cost}


def cost_section(study: Study, *, store: Results, prices: Prices | None = None) -> Costs:
    """Make the section of the runs' cost.

    Args:
        study: of the points that are reported.
        store: the results that it was loaded from.
        prices: that hold for all rows; None for those of the runs.
    """
    rows = store.attempts(_READ)
    if prices is not None:
        rows = [_priced_row(row, prices) for row in rows]
        total = None
    else:
        total = _total([run.record.cost_usd for run in store.run_records()])
    points = study.points
    return Costs(
        rows=_sum_of_rows(rows),
        lost=_sum_of_rows([row for row in rows if row["status"] in LOST]),
        total_usd=total,
        points=len(points),
        unpriced_points=int(points["usd_per_hour"].isna().sum()) if len(points) else 0,
    )


def _total(costs: Sequence[float | None]) -> float | None:
    """Sum of costs; None where one is unknown, or there is none."""
    known = [cost for cost in costs if cost is not None]
    if not known or len(known) < len(costs):
        return None
    return sum(known)


@dataclass(frozen=True, kw_only=True)
class _CostSum:
    """Attempts with their node-seconds and cost."""

    attempts: int
    node_s: float
    usd: float | None
    """None where the price of one is unknown."""


def _sum_of_rows(rows: Sequence[Mapping[str, Any]]) -> _CostSum:
    """Sum up the attempts whose nodes are known."""
    known = [row for row in rows if row["node_types"]]
    node_s = (held_s(row) * sum(read_types(row["node_types"]).values()) for row in known)
    return _CostSum(
        attempts=len(known), node_s=sum(node_s), usd=_total([row["cost_usd"] for row in known])
    )


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Section of a report: what runs have cost, and what was lost of it."""

    rows: _CostSum
    """All attempts."""

    lost: _CostSum
    """Attempts that ended without a result of their own."""

    total_usd: float | None
    """Cost of all nodes of all runs, idle ones too; None where it is unknown."""

    points: int
    unpriced_points: int
    """Points whose nodes have no price."""

    def print(self, *, console: Console) -> None:
        """Print a line for the cost, one for what was lost, and one for points without prices."""
        if self.total_usd is not None:
            words = ""
            if self.rows.usd is not None:
                of_attempts = f"{usd(self.rows.usd)} of it for attempts"
                words = f", {of_attempts}, and the rest for starts and idle nodes"
            say(console, f"\nAll runs cost {usd(self.total_usd)}{words}.")
        elif self.rows.usd is not None:
            say(console, f"\nThe attempts cost {usd(self.rows.usd)}, idle nodes not counted.")
        if self.lost.node_s > 0:
            line = lost_line(self.lost.node_s, self.lost.usd, self.total_usd or self.rows.usd)
            say(console, f"{line[0].upper()}{line[1:]}.")
        if 0 < self.unpriced_points < self.points:
            unpriced = f"{self.unpriced_points} of {count_of(self.points, 'point')}"
            say(
                console,
                f"The cost of {unpriced} is unknown: their nodes have no price. "
                "--prices FILE gives one.",
            )

    def as_json(self) -> dict[str, Any]:
        """Give the sums as JSON values, under `cost`; unknown is None."""
        return {
            "cost": {
                "total_usd": self.total_usd,
                "attempts_usd": self.rows.usd,
                "lost_usd": self.lost.usd,
                "lost_node_s": self.lost.node_s,
                "unpriced_points": self.unpriced_points,
            }
        }
