"""Cost of the nodes of a run, in lines for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dtsweep.driver.node_account import NodeAccount
from dtsweep.plan.prices import Prices
from dtsweep.text import count_of, duration, lost_line, usd

_USES = {
    "measuring_s": "measuring",
    "starting_s": "starting",
    "idle_s": "idle",
    "lost_s": "lost",
}


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
    """Say what a run has cost and for what, what was lost, and what stays up.

    Args:
        account: of its nodes.
        prices: of them.
        stay: nodes that stay up; None where none does.
    """
    uses = account.cost_by_use()
    if uses is None:
        return ["the cost of this run is unknown: " + _unpriced(account, prices)]
    total = sum(uses.values())
    shares = ""
    if total > 0:
        parts = [f"{name} {uses[use] / total:.0%}" for use, name in _USES.items()]
        shares = f" ({', '.join(parts)})"
    lines = [f"this run cost {usd(total)}{shares}"]
    node_s, lost_usd = account.lost()
    if node_s > 0:
        lines.append(lost_line(node_s, lost_usd, total))
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
