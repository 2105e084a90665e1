"""Prices of nodes that are given after the runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import rows_of
from dtsweep.metrics.charge import held_s
from dtsweep.plan.prices import Prices, read_types

if TYPE_CHECKING:
    import pandas as pd

_READ = (
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
    rows = [_priced_row(row, prices) for row in rows_of(frame[[*_READ]])]
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
