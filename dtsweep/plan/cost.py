"""Expected cost of a plan, by the nodes that its worlds need; nodes that it can use at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from dtsweep.plan.estimate import session_times
from dtsweep.plan.plan import Plan
from dtsweep.plan.prices import PricedType, Prices
from dtsweep.sweep.axes import Candidate
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
        (seconds, prices) for world, seconds in sessions if (prices := of_world(world)) is not None
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

    def working(end: str) -> float:
        return float(sum(seconds * getattr(prices, end) for seconds, prices in priced)) + staying

    return PlannedCost(
        low_usd=(working("low") / factor + nodes.idle_s * peak.low) / 3600,
        middle_usd=(working("middle") + nodes.idle_s * peak.middle) / 3600,
        high_usd=(working("high") * factor + nodes.idle_s * peak.high) / 3600,
        assumptions=assumptions,
    )


def nodes_of_prices(sweep: Sweep, prices: Prices) -> Nodes:
    """Nodes of a run whose cluster is not asked: those of the file of prices.

    Nodes whose CPUs and GPUs the file does not have hold one worker at least, and all at most.
    """
    gpus = sweep.resources.gpus_per_worker
    if gpus is None:
        # Left open: one where a type has any.
        gpus = int(any(entry.gpus for entry in prices.types.values()))
    per_worker: dict[str, float] = {"CPU": sweep.resources.cpus_per_worker or 1, "GPU": gpus}
    heads = [entry for entry in prices.types.values() if _is_head(entry)]
    types = [entry for entry in prices.types.values() if not _is_head(entry)]
    sized = [entry for entry in types if entry.resources is not None]
    if sized:
        types = [entry for entry in sized if _room_on(entry.resources or {}, per_worker) > 0]
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
    return Nodes(
        of_world=of_world,
        staying_usd_per_hour=sum(entry.price(spot=False) or 0.0 for entry in heads),
        idle_s=IDLE_S,
        assumptions=assumptions,
    )


def _is_head(entry: PricedType) -> bool:
    """True if a node of a type can hold no worker: it has 0 CPUs and no GPUs, or is called head."""
    if entry.resources is None:
        return entry.name == "head"
    return not any(entry.resources.values())


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


def _room_on(resources: Mapping[str, float], per_worker: Mapping[str, float]) -> int:
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
    count = nodes_needed(world, _room_on(entry.resources, per_worker))
    if count is None:
        return None
    return Range(count * price, count * price)


def _of_any_size(world: World, price: float | None) -> Range | None:
    """USD for an hour of a world on nodes of unknown size."""
    if price is None:
        return None
    least, most = 1, world.workers
    if world.placement == "strict_spread":
        least = world.workers
    if world.placement == "strict_pack":
        most = 1
    return Range(least * price, most * price)


def nodes_json(sweep: Sweep, candidates: Iterable[Candidate]) -> dict[str, Any]:
    """Give what a sweep needs of nodes, as JSON values.

    Returns:
        CPUs and GPUs of a worker; GPUs are None where the cluster decides. The nodes for each size
        of a node: 1, 2, 4, … workers, up to the largest world on one node.
    """
    points = [candidate.point for candidate in candidates if candidate.reason is None]
    worlds = {(point.workers, point.placement): point.world for point in points}
    largest = max((world.workers for world in worlds.values()), default=0)
    sizes = []
    if worlds:
        sizes = [2**power for power in range((largest - 1).bit_length() + 1)]
    return {
        "nodes": {
            "cpus_per_worker": sweep.resources.cpus_per_worker or 1,
            "gpus_per_worker": sweep.resources.gpus_per_worker,
            "by_workers_per_node": [
                {"workers_per_node": size, "at_once": _at_once(sweep, worlds.values(), size)}
                for size in sizes
            ],
        }
    }


def _at_once(sweep: Sweep, worlds: Collection[World], workers_per_node: int) -> int:
    """Nodes of the `concurrent` largest worlds; 0 where none fits.

    A world can be there once for each launch of its points.
    """
    launches = sweep.measure.repeats or 1
    if sweep.question is not None:
        launches = sweep.question.max_launches
    counts = []
    for world in worlds:
        count = nodes_needed(world, workers_per_node)
        if world.placement == "spread":
            # It uses a node for each worker where there are as many.
            count = world.workers
        counts += [count or 0] * launches
    return sum(sorted(counts, reverse=True)[: sweep.resources.concurrent])
