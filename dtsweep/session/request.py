"""Nodes that are asked for before a session starts on them: a placement group that nobody uses.

What Train asks of an autoscaler by itself starts with its processes, ends in an error that does not say what was
missing, and is asked again. Asked for here, nodes can come while the world before is still measured, the wait has a
deadline and is known in seconds, and nothing is asked for any more once it is given up.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from dtsweep.session.session import SessionError
from dtsweep.session.settings import Settings
from dtsweep.sweep.point import World

LOOK_EVERY_S = 1.0
"""How often the autoscaler is asked how a request stands."""

INFEASIBLE_S = 20.0
"""How long it must say that a request can't be met: what another session has just left still counts as used."""


class NodeRequest:
    """Room for workers, asked for and not used; `withdraw` gives it back."""

    def __init__(self, world: World, settings: Settings, *, workers: int) -> None:
        """Ask.

        Args:
            world: whose placement is asked for.
            settings: resources of a worker.
            workers: how many of the world's workers need room that is not there.
        """
        each = {"CPU": settings.cpus_per_worker, "GPU": settings.gpus_per_worker}
        bundle = {kind: count for kind, count in each.items() if count}
        self._group = placement_group([bundle] * workers, strategy=world.placement.upper(), name=_name())
        self._world, self._settings = world, settings

    async def met(self) -> None:
        """Wait until there is room for all of them.

        Raises:
            SessionError: `no_nodes` after the time that nodes have, `infeasible` where the autoscaler says so for long.
        """
        began = time.monotonic()
        feasible_at = began
        while not await asyncio.to_thread(self._group.wait, LOOK_EVERY_S):
            now, workers = time.monotonic(), self._world.workers
            state = await asyncio.to_thread(scaling_state)
            if not is_refused(state, group=self._group.id.hex()):
                feasible_at = now
            if now - feasible_at >= INFEASIBLE_S:
                raise SessionError(
                    "infeasible",
                    f"the autoscaler can't add nodes for {workers} workers: see `ray status`",
                    hopeless_for="world",
                )
            if now - began >= self._settings.node_timeout_s:
                seconds = f"{self._settings.node_timeout_s:g}"
                raise SessionError(
                    "no_nodes",
                    f"nodes for {workers} workers did not come in {seconds} s; see --node-timeout",
                    hopeless_for="world",
                )

    def keep_alive(self) -> PlacementGroup:
        """Have the nodes that came count as used, with all that workers need free: Train takes its time to start."""
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        came = sorted(set(placement_group_table(self._group)["bundles_to_node_id"].values()) & addresses.keys())
        return placement_group(
            [{f"node:{addresses[node_id]}": 0.001} for node_id in came],
            bundle_label_selector=[{"ray.io/node-id": node_id} for node_id in came],
            name=_name(),
        )

    def withdraw(self) -> None:
        """Ask no longer; nodes that came are free."""
        remove_placement_group(self._group)


def _name() -> str:
    """A name that tells whose a placement group is: it outlives its lane."""
    return f"{ray.get_runtime_context().get_actor_name()}:{time.monotonic_ns()}"


class NodeRequests:
    """What a lane asks an autoscaler for: the nodes of a session that starts, and those that the next one will lack."""

    def __init__(self, settings: Settings) -> None:
        """Ask for nothing yet, and where nodes stay never."""
        self._settings = settings
        self._next: World | None = None
        self._present: World | None = None
        """Of the session that holds its nodes."""
        self._ahead: NodeRequest | None = None
        self._kept_alive: PlacementGroup | None = None
        self._wait: tuple[float, float] | None = None
        """From when until when nodes were waited for last, by the monotonic clock."""

    def ask_ahead(self, world: World | None) -> None:
        """Ask for what the next session will lack, once this one has its nodes: before, it would take them.

        Args:
            world: the next session's; None to ask for nothing any more.
        """
        self._withdraw_ahead()
        self._next = world
        self._ask()

    async def come(self, world: World) -> None:
        """Have all nodes of a session come that is about to start.

        Raises:
            SessionError: they don't.
        """
        if not self._settings.is_autoscaled:
            return
        began = time.monotonic()
        self._present = None
        self.withdraw()
        request = NodeRequest(world, self._settings, workers=world.workers)
        try:
            await request.met()
            self._kept_alive = request.keep_alive()
            await asyncio.to_thread(self._kept_alive.wait, LOOK_EVERY_S)
        finally:
            request.withdraw()
            self._wait = began, time.monotonic()

    def launched(self, world: World) -> None:
        """Note that a session of this world holds its nodes."""
        self._present = world
        self._let_go()
        self._ask()

    def waited_s(self, *, since: float) -> float | None:
        """How long nodes were waited for from then on, in seconds; said once for each session that started, else None.

        Args:
            since: by the monotonic clock.
        """
        wait, self._wait = self._wait, None
        return None if wait is None else max(0.0, wait[1] - max(wait[0], since))

    def withdraw(self) -> None:
        """Ask for nothing ahead any more, and keep nothing."""
        self._let_go()
        self._withdraw_ahead()

    def _withdraw_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.withdraw()
            self._ahead = None

    def _let_go(self) -> None:
        if self._kept_alive is not None:
            remove_placement_group(self._kept_alive)
            self._kept_alive = None

    def _ask(self) -> None:
        if self._present is not None and self._next is not None:
            workers = workers_ahead(self._next, present=self._present)
            self._ahead = NodeRequest(self._next, self._settings, workers=workers) if workers else None


def workers_ahead(world: World, *, present: World) -> int:
    """For how many workers of the next world, which lacks nodes, room is asked for while the present one still runs.

    What the present one holds becomes free. One that needs a single node that is not there needs it whole.

    >>> pack, strict = (World(workers=3, placement=name, environment=()) for name in ("pack", "strict_pack"))
    >>> workers_ahead(pack, present=World(workers=2, placement="pack", environment=()))
    1
    >>> workers_ahead(strict, present=pack)
    3
    """
    return world.workers if world.placement == "strict_pack" else max(0, world.workers - present.workers)


def withdraw_all(lane: str) -> None:
    """Withdraw what a lane whose process has ended has asked for."""
    for name, entry in placement_group_table().items():
        if entry["name"].startswith(f"{lane}:") and entry["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))


def scaling_state() -> Any:
    """What Ray's second autoscaler last said of itself, as `ray.core.generated.autoscaler_pb2.AutoscalingState`."""
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    client = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    reply = GetClusterStatusReply()
    reply.ParseFromString(client.get_cluster_status(timeout_s=10))
    return reply.autoscaling_state


def is_refused(state: Any, *, group: str) -> bool:
    """Whether an autoscaler says that it can't meet a placement group; `GROUP:STRATEGY|STATE` is how it calls it."""
    return any(gang.details.startswith(f"{group}:") for gang in state.infeasible_gang_resource_requests)
