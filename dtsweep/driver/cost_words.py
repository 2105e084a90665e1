"""Cost of the nodes of a run, in lines for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dtsweep.driver.node_account import NodeAccount
from dtsweep.plan.prices import Prices
from dtsweep.text import count_of, duration, usd


@dataclass(frozen=True, kw_only=True)
class NodesLeft:
    """Nodes that are up at the end of a run, by type."""

    workers: Mapping[str, float]
    """Nodes that hold workers."""

    others: Mapping[str, float]
    """The head, if it holds none and has a price."""

    are_taken_away: bool
    """True if an autoscaler takes idle nodes away."""

    idle_timeout_s: float | None
    """Seconds after which it does; None is unknown."""


def cost_lines(account: NodeAccount, prices: Prices, stay: NodesLeft | None) -> list[str]:
    """Say what a run has cost, and what stays up.

    Args:
        account: of its nodes.
        prices: of them.
        stay: nodes that stay up; None where none does.
    """
    total = account.cost_usd
    if total is None:
        return ["the cost of this run is unknown: " + _unpriced(account, prices)]
    lines = [f"this run cost {usd(total)}"]
    if stay is not None:
        lines += _staying(stay, prices)
    return lines


def _unpriced(account: NodeAccount, prices: Prices) -> str:
    return "; ".join(prices.how_to_add(node_type) for node_type in account.unpriced)


def _staying(stay: NodesLeft, prices: Prices) -> list[str]:
    """Say what nodes cost after the run."""
    lines = []
    count = sum(stay.workers.values())
    per_hour = prices.of_nodes(stay.workers)
    if count and per_hour is not None:
        lines.append(_after_the_run(stay, int(count), per_hour))
    others = prices.of_nodes(stay.others)
    if stay.others and others:
        lines.append(f"the head costs {usd(others)} an hour until it is taken down (ray down)")
    return lines


def _after_the_run(stay: NodesLeft, count: int, per_hour: float) -> str:
    nodes = f"{count_of(count, 'node')} still up"
    if not stay.are_taken_away:
        return f"{nodes}: {usd(per_hour)} an hour until you stop them"
    if stay.idle_timeout_s is None:
        return f"{nodes}: {usd(per_hour)} an hour until the autoscaler takes them away"
    more = per_hour * stay.idle_timeout_s / 3600
    return (
        f"{nodes}: about {usd(more)} more until the autoscaler takes them away, idle for "
        f"{duration(stay.idle_timeout_s)}"
    )
