"""Nodes of a cluster that a plan would run on, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dtsweep.cluster.autoscaler import NodeType
from dtsweep.cluster.capacity import Cluster
from dtsweep.cluster.ray_nodes import lives_on_ray
from dtsweep.errors import SweepError
from dtsweep.plan.cost import IDLE_S, Nodes, Range, nodes_needed, nodes_of_prices
from dtsweep.plan.prices import Prices
from dtsweep.session.node_choice import room_for
from dtsweep.sweep.point import World
from dtsweep.sweep.settings import Sweep
from dtsweep.text import count_of, duration


def nodes_on(
    cluster: Cluster, sweep: Sweep, prices: Prices, *, per_worker: Mapping[str, float]
) -> Nodes:
    """Nodes of a run on the cluster to which this process is connected.

    Raises:
        SweepError: the head does not answer.
    """
    added = (cluster.autoscaler and cluster.autoscaler.types) or ()
    names = {kind.name for kind in added}
    lives = lives_on_ray(per_worker, prices)()
    if lives is None:
        raise SweepError("the head of Ray does not list its nodes; see `ray status`")
    up = [life for life in lives if life.ended is None]
    # A node that an autoscaler has added goes, and comes again for a world.
    staying = Counter(life.node_type for life in up if life.node_type not in names)
    unpriced = [node_type for node_type in staying if prices.price_of(node_type) is None]
    assumptions = [
        f"node type {node_type!r} counts as free: {prices.how_to_add(node_type)}"
        for node_type in unpriced
    ]
    priced = {name: count for name, count in staying.items() if name not in unpriced}
    staying_usd = prices.of_nodes(priced) or 0.0
    if cluster.autoscaler is None:
        count = count_of(sum(staying.values()), "node")
        assumptions.append(f"{count} of the cluster count from start to end, busy or not")
        return Nodes(
            of_world=lambda _: Range(0.0, 0.0),
            staying_usd_per_hour=staying_usd,
            assumptions=assumptions,
        )
    idle_s = cluster.autoscaler.idle_timeout_s or IDLE_S
    assumptions.append(f"each node is idle for {duration(idle_s)} before it is taken away")
    of_world: Callable[[World], Range | None] = partial(
        _of_types, types=added, prices=prices, per_worker=per_worker
    )
    if cluster.autoscaler.types is None:
        of_world = nodes_of_prices(sweep, prices).of_world
        assumptions.append("the autoscaler's node types are those of the prices")
    return Nodes(
        of_world=of_world,
        staying_usd_per_hour=staying_usd,
        idle_s=idle_s,
        assumptions=assumptions,
    )


def _of_types(
    world: World,
    types: Sequence[NodeType],
    prices: Prices,
    per_worker: Mapping[str, float],
) -> Range | None:
    """USD for an hour of a world on nodes that an autoscaler adds, by the type that it takes."""
    costs = []
    for kind in types:
        count = nodes_needed(world, room_for(kind.resources, per_worker))
        price = prices.price_of(kind.name)
        if count is not None and count <= kind.max_nodes and price is not None:
            costs.append(count * price)
    if not costs:
        return None
    return Range(min(costs), max(costs))
