"""Nodes that are asked for before a session starts on them: a placement group that nobody uses.

What Train asks of an autoscaler by itself starts with its processes, ends in an error that does not
say what was missing, and is asked again. Asked for here, the wait has a deadline and is known in
seconds, and nothing is asked for any more once it is given up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from dtsweep.session.node_choice import NODE_ID, SessionNodes
from dtsweep.session.node_watch import NodeWatch
from dtsweep.session.orphans import remove_orphans
from dtsweep.session.session_settings import Settings
from dtsweep.session.start_errors import SessionError
from dtsweep.sweep.point import World

_LOOK_EVERY_S = 1.0
"""Interval of questions to the autoscaler on a request."""

_REFUSED_S = 20.0
"""Time for which a request must be refused: nodes of an ended session still count as used."""


class NodesRefusedError(SessionError):
    """The autoscaler adds no nodes in the place of those that are left out."""


class _NodeRequest:
    """Room for workers, asked for and not used; `withdraw` gives it back."""

    def __init__(self, world: World, settings: Settings, *, without: Sequence[str]) -> None:
        """Make the request.

        Args:
            world: whose placement is asked for.
            settings: resources of a worker.
            without: ids of nodes that don't count.
        """
        per_worker = {"CPU": settings.cpus_per_worker, "GPU": settings.gpus_per_worker}
        bundle = {kind: count for kind, count in per_worker.items() if count}
        self._group = placement_group(
            [bundle] * world.workers,
            strategy=world.placement.upper(),
            name=_name(),
            bundle_label_selector=SessionNodes(without=without).selectors(world.workers),
        )
        self._world = world
        self._settings = settings

    async def met(self, *, is_patient: bool, say: Callable[[str], None]) -> None:
        """Wait until there is room for all of them.

        An autoscaler at its maximum refuses what it adds later, when other users of the cluster
        have given nodes back. Worlds that its configuration forbids are refused before the run.

        Args:
            is_patient: whether to wait on while the autoscaler refuses the request.
            say: called once if the autoscaler refuses it for long.

        Raises:
            SessionError: `no_nodes` after the time that nodes have.
            NodesRefusedError: the autoscaler refuses it for long.
        """
        began = accepted_at = time.monotonic()
        timeout_s = self._settings.node_timeout_s
        nodes = f"nodes for {self._world.workers} workers"
        hindrance = ""
        has_said = False
        while not await asyncio.to_thread(self._group.wait, _LOOK_EVERY_S):
            left_s = began + timeout_s - time.monotonic()
            if left_s <= 0:
                reason = f"{nodes} did not come in {timeout_s:g} s{hindrance}; see --node-timeout"
                raise SessionError("no_nodes", reason, hopeless_for="world")
            try:
                is_refused = await asyncio.wait_for(asyncio.to_thread(self._is_refused), left_s)
            except (ray.exceptions.RayError, TimeoutError) as error:
                # From one answer that does not come nothing follows: it is asked again.
                is_refused = False
                hindrance = f": Ray's head did not answer ({type(error).__name__})"
            else:
                hindrance = ": the autoscaler can't add them now" if is_refused else ""
            if not is_refused:
                accepted_at = time.monotonic()
            elif time.monotonic() - accepted_at >= _REFUSED_S and not has_said:
                if not is_patient:
                    raise NodesRefusedError("no_nodes", f"{nodes} can't be added now")
                say(f"waiting for {nodes}: the autoscaler can't add them now; see `ray status`")
                has_said = True

    def _is_refused(self) -> bool:
        """True if the autoscaler can't meet the request; killed sessions don't count as users."""
        remove_orphans()
        return is_refused(scaling_state(), group=self._group.id.hex())

    def keep_alive(self) -> PlacementGroup | None:
        """Keep the new nodes in use, with all that workers need free, until Train has started.

        Returns:
            What does so; None where the nodes have gone again.
        """
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        came = sorted(
            set(placement_group_table(self._group)["bundles_to_node_id"].values())
            & addresses.keys()
        )
        if not came:
            return None
        return placement_group(
            [{f"node:{addresses[node_id]}": 0.001} for node_id in came],
            bundle_label_selector=[{NODE_ID: node_id} for node_id in came],
            name=_name(),
        )

    def withdraw(self) -> None:
        """Ask no longer; nodes that came are free."""
        remove_placement_group(self._group)


def _name() -> str:
    """A name that tells whose a placement group is: it outlives its slot."""
    return f"{ray.get_runtime_context().get_actor_name()}:{time.monotonic_ns()}"


class NodeRequests:
    """Requests of a slot to an autoscaler: the nodes of each session."""

    def __init__(self, settings: Settings, nodes: NodeWatch, *, say: Callable[[str], None]) -> None:
        """Ask for nothing yet, and where nodes stay never.

        Args:
            settings: of the slot.
            nodes: which ones its sessions may use.
            say: called with a line for the user.
        """
        self._settings = settings
        self._nodes = nodes
        self._say = say
        self._kept_alive: PlacementGroup | None = None
        self._wait: tuple[float, float] | None = None
        """From when until when nodes were waited for last, by the monotonic clock."""

    async def come(self, world: World, places: Mapping[str, int] | None) -> SessionNodes:
        """Have all nodes of a session come that is about to start.

        Args:
            world: of its ranks.
            places: number of ranks on each node, where the driver has chosen them.

        Raises:
            SessionError: they don't come.
        """
        if places is not None:
            await self._nodes.check(places)
            return SessionNodes(places=places)
        if not self._settings.is_autoscaled:
            chosen = await self._nodes.choose(world)
            return SessionNodes(without=chosen.without)
        self.let_go()
        began = time.monotonic()
        try:
            return await self._come_in_any_case(world)
        finally:
            self._wait = began, time.monotonic()

    async def _come_in_any_case(self, world: World) -> SessionNodes:
        """Have all nodes come; failing ones are used again if none come in their place."""
        try:
            return await self._come(world, is_patient=False)
        except SessionError as error:
            is_reset = await self._nodes.reset(world)
            if not is_reset and not isinstance(error, NodesRefusedError):
                raise
        return await self._come(world, is_patient=True)

    async def _come(self, world: World, *, is_patient: bool) -> SessionNodes:
        chosen = await self._nodes.choose(world)
        request = _NodeRequest(world, self._settings, without=chosen.without)
        try:
            await request.met(is_patient=is_patient or not chosen.failing, say=self._say)
            self._kept_alive = request.keep_alive()
            if self._kept_alive is not None:
                await asyncio.to_thread(self._kept_alive.wait, _LOOK_EVERY_S)
        finally:
            request.withdraw()
        return SessionNodes(without=chosen.without)

    def waited_s(self, *, since: float) -> float | None:
        """Time for which nodes were waited for, in seconds.

        Given once for each session that started, else None.

        Args:
            since: by the monotonic clock.
        """
        wait, self._wait = self._wait, None
        if wait is None:
            return None
        return max(0.0, wait[1] - max(wait[0], since))

    def let_go(self) -> None:
        """Keep no nodes for a session any more that has them, or does not come up."""
        if self._kept_alive is not None:
            remove_placement_group(self._kept_alive)
            self._kept_alive = None


def withdraw_all(slot: str) -> None:
    """Withdraw what a slot whose process has ended has asked for."""
    for name, entry in placement_group_table().items():
        if entry["name"].startswith(f"{slot}:") and entry["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))


def scaling_state() -> Any:
    """Last state of Ray's second autoscaler, as `autoscaler_pb2.AutoscalingState`."""
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    client = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    reply = GetClusterStatusReply()
    reply.ParseFromString(client.get_cluster_status(timeout_s=10))
    return reply.autoscaling_state


def is_refused(state: Any, *, group: str) -> bool:
    """True if an autoscaler says that it can't meet a placement group.

    `GROUP:STRATEGY|STATE` is how it calls it.
    """
    return any(
        gang.details.startswith(f"{group}:") for gang in state.infeasible_gang_resource_requests
    )
