"""Nodes of a Ray, those that have ended too: their types, and from when until when they were up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from dtsweep.cluster.autoscaler import WATCHED_ONLY
from dtsweep.cluster.node_account import NodeLife
from dtsweep.plan.prices import SPOT, Prices, shape_name
from dtsweep.session.node_choice import room_for

_ANSWERS_S = 10.0
"""Time limit for Ray's head to list its nodes."""

_HEAD = "head"
"""Type of a head without room for workers that has no other type with a price."""

GROUP_LABEL, INSTANCE_LABEL, MARKET_LABEL = (
    "ray.io/node-group",
    "ray.io/instance-type",
    "ray.io/market-type",
)
"""Labels of Ray for a node's group, its instance type, and whether it is a spot node."""


def lives_on_ray(
    per_worker: Mapping[str, float], prices: Prices | None
) -> Callable[[], list[NodeLife] | None]:
    """Make the function that asks Ray's head for all nodes of a run; some of them have ended.

    A head without room for a worker is among them if its type has a price. A head that is silent
    for a moment gives None.
    """
    client = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)

    def lives() -> list[NodeLife] | None:
        try:
            nodes = client.get_all_node_info(timeout=_ANSWERS_S)
        except ray.exceptions.RayError:
            return None
        made = (
            _life_of(node_id.hex(), info, per_worker, prices) for node_id, info in nodes.items()
        )
        return [life for life in made if life is not None]

    return lives


def _life_of(
    node_id: str, info: Any, per_worker: Mapping[str, float], prices: Prices | None
) -> NodeLife | None:
    resources = dict(info.resources_total)
    room = room_for(resources, per_worker)
    instance_type = info.instance_type_name or info.labels.get(INSTANCE_LABEL)
    names = [info.labels.get(GROUP_LABEL), info.node_type_name, instance_type]
    if not room:
        names.append(_HEAD)
    node_type = type_of(
        names,
        shape=shape_name(resources),
        is_spot=info.labels.get(MARKET_LABEL) == "spot",
        prices=prices,
    )
    if not room:
        is_charged = prices is not None and prices.price_of(node_type) is not None
        if not info.is_head_node or not is_charged:
            return None
    return NodeLife(
        node_id=node_id,
        node_type=node_type,
        began=info.start_time_ms / 1e3,
        ended=info.end_time_ms / 1e3 or None,
        room=room,
    )


def type_of(
    names: Sequence[str | None], *, shape: str, is_spot: bool, prices: Prices | None
) -> str:
    """Type of a node: its first name that has a price, else its first name, else its shape.

    Args:
        names: of its group, its type and its instance type; what is unknown is empty.
        shape: name by what it has.
        is_spot: True if its label says that it is a spot node.
        prices: whose names are used where they have an entry for it.

    >>> type_of(["small", "m5.large"], shape="2cpu", is_spot=True, prices=None)
    'small@spot'
    """
    suffix = ""
    if is_spot:
        suffix = SPOT
    given = [name for name in names if name and not WATCHED_ONLY.fullmatch(name)]
    candidates = [f"{name}{suffix}" for name in given or [shape]]
    if prices is not None:
        for candidate in candidates:
            if prices.entry_of(candidate) is not None:
                return candidate
    return candidates[0]
