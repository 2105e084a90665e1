"""Expected cost of a plan, by the nodes that its worlds need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from dtsweep.plan.estimate import session_times
from dtsweep.plan.plan import Plan
from dtsweep.plan.prices import PricedType, Prices
from dtsweep.sweep.point import World
from dtsweep.sweep.settings import Sweep
from dtsweep.text import count_of, duration

IDLE_S = 300.0
"""Idle time-out of an autoscaler whose own is unknown: Ray's default."""


class Range(NamedTuple):
    """Least and highest USD for an hour of the nodes of a world."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Mean of both ends."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Nodes that a run would have, and what they cost."""

    of_world: Callable[[World], Range | None]
    """USD for an hour of the nodes of a world; None where no node with a price can hold it."""

    staying_usd_per_hour: float = 0.0
    """Price of the nodes that are up all the time, whatever runs."""

    idle_s: float = 0.0
    """Seconds for which each node of a world is idle before an autoscaler takes it away."""

    assumptions: Sequence[str] = ()
    """Assumptions on the nodes, in words."""


@dataclass(frozen=True, kw_only=True)
class PlannedCost:
    """Range of the expected cost of a run."""

    low_usd: float
    middle_usd: float
    high_usd: float
    assumptions: Sequence[str]
    """Facts and assumptions that it rests on, in words."""


def planned_cost(sweep: Sweep, plan: Plan, nodes: Nodes) -> PlannedCost | None:
    """Expect what a plan costs; None if no node with a price can hold any of its worlds."""
    of_world = cache(nodes.of_world)
    sessions = session_times(sweep, plan.to_run, plan.rows)
    priced = [
        (session.seconds, prices)
        for session in sessions
        if (prices := of_world(session.world)) is not None
    ]
    if not priced:
        return None
    assumptions = ["starts of sessions are included", *nodes.assumptions]
    if missing := len(sessions) - len(priced):
        assumptions.append(
            f"{count_of(missing, 'session')} left out, which no node with a price can hold"
        )
    middle_s = plan.duration.middle_s
    factor = plan.duration.high_s / middle_s
    peak = Range(max(p.low for _, p in priced), max(p.high for _, p in priced))
    staying = nodes.staying_usd_per_hour * middle_s
    working_low = sum(s * p.low for s, p in priced) + staying
    low = working_low / factor + nodes.idle_s * peak.low
    middle = sum(s * p.middle for s, p in priced) + staying + nodes.idle_s * peak.middle
    working_high = sum(s * p.high for s, p in priced) + staying
    high = working_high * factor + nodes.idle_s * peak.high
    return PlannedCost(
        low_usd=low / 3600,
        middle_usd=middle / 3600,
        high_usd=high / 3600,
        assumptions=assumptions,
    )


def nodes_of_prices(sweep: Sweep, prices: Prices) -> Nodes:
    """Nodes of a run whose cluster is not asked: those of the file of prices.

    Nodes whose CPUs and GPUs the file does not have hold one worker at least, and all at most.
    """
    per_worker = workers_need(sweep, prices)
    heads = [entry for entry in prices.types.values() if is_head(entry)]
    types = [entry for entry in prices.types.values() if not is_head(entry)]
    if any(entry.resources is not None for entry in types):
        types = [
            entry
            for entry in types
            if entry.resources is not None and room_on(entry.resources, per_worker) > 0
        ]
    else:
        per_worker = {}

    def of_world(world: World) -> Range | None:
        if prices.every_node is not None:
            return _of_any_size(world, prices.every_node)
        ranges = [_of_type(world, entry, per_worker) for entry in types]
        known = [one for one in ranges if one is not None]
        if not known:
            return None
        return Range(min(one.low for one in known), max(one.high for one in known))

    assumptions = [f"each node is idle for {duration(IDLE_S)} before an autoscaler takes it away"]
    if not per_worker:
        assumptions.append("a node holds one worker at least, and all of a world at most")
    else:
        worker = " and ".join(f"{count:g} {kind}" for kind, count in per_worker.items() if count)
        names = " or ".join(entry.name for entry in types)
        assumptions.append(f"a worker has {worker}, on nodes of {names or 'no type'}")
    if any(None not in (entry.usd_per_hour, entry.spot_usd_per_hour) for entry in types):
        assumptions.append("nodes are on demand")
    head_prices = [entry.price(spot=False) or 0.0 for entry in heads]
    return Nodes(
        of_world=of_world,
        staying_usd_per_hour=sum(head_prices),
        idle_s=IDLE_S,
        assumptions=assumptions,
    )


def is_head(entry: PricedType) -> bool:
    """True if a node of a type can hold no worker: it has 0 CPUs and no GPUs, or is called head."""
    if entry.resources is None:
        return entry.name == "head"
    return not any(entry.resources.values())


def workers_need(sweep: Sweep, prices: Prices) -> dict[str, float]:
    """Resources of a worker; GPUs that the sweep leaves open are one where a type has any."""
    gpus = sweep.resources.gpus_per_worker
    if gpus is None:
        gpus = int(any(entry.gpus for entry in prices.types.values()))
    return {"CPU": sweep.resources.cpus_per_worker or 1, "GPU": gpus}


def nodes_needed(world: World, room: int) -> int | None:
    """Number of nodes of one type that a world needs; None where they can't hold it.

    >>> world = World(workers=16, placement="pack", environment=())
    >>> nodes_needed(world, 8), nodes_needed(world, 5), nodes_needed(world, 0)
    (2, 4, None)
    """
    if room < 1 or (world.placement == "strict_pack" and room < world.workers):
        return None
    if world.placement == "strict_spread":
        return world.workers
    return math.ceil(world.workers / room)


def room_on(resources: Mapping[str, float], per_worker: Mapping[str, float]) -> int:
    """Number of workers that a node can hold; what is not known of it is enough."""
    rooms = [
        int(resources[kind] // count)
        for kind, count in per_worker.items()
        if count and kind in resources
    ]
    return min(rooms, default=0)


def _of_type(world: World, entry: PricedType, per_worker: Mapping[str, float]) -> Range | None:
    """USD for an hour of a world on nodes of one type."""
    price = entry.price(spot=False)
    if price is None or entry.resources is None or not per_worker:
        return _of_any_size(world, price)
    count = nodes_needed(world, room_on(entry.resources, per_worker))
    if count is None:
        return None
    return Range(count * price, count * price)


def _of_any_size(world: World, price: float | None) -> Range | None:
    """USD for an hour of a world on nodes of unknown size."""
    if price is None:
        return None
    least = 1
    if world.placement == "strict_spread":
        least = world.workers
    most = world.workers
    if world.placement == "strict_pack":
        most = 1
    return Range(least * price, most * price)
