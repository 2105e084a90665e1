"""Nodes of a cluster as a slot sees them: those its next session must not use, and reasons."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence

from ray.exceptions import RayError

from dtsweep.session.node_choice import (
    FAILS,
    LEAVES,
    FailureCounts,
    Node,
    NodeChoice,
    NodeNotes,
    choose_nodes,
    leaving_nodes,
    nodes_now,
)
from dtsweep.session.nodes import NODE_ANSWERS_S
from dtsweep.session.session_settings import Settings
from dtsweep.session.start_errors import SessionError
from dtsweep.sweep.point import World
from dtsweep.text import count_of


class NodeWatch:
    """Nodes that trials died on, nodes that are being taken back, and messages on them."""

    def __init__(
        self, settings: Settings, failure_counts: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        """Start from the failure counts of an earlier slot."""
        self._settings = settings
        self._per_worker = {"CPU": settings.cpus_per_worker, "GPU": settings.gpus_per_worker}
        self.failures = FailureCounts(failure_counts)
        self.notes = NodeNotes()

    async def stay(self, node_ids: Collection[str], *, until: float) -> bool:
        """True if none of these nodes is known to be taken back before a Unix time in seconds."""
        if self._settings.is_private:
            return True
        try:
            leaving = await asyncio.wait_for(asyncio.to_thread(leaving_nodes), NODE_ANSWERS_S)
        except (RayError, TimeoutError):
            # A head that is slow or away says nothing against ranks that are up; a leaving node
            # costs them one attempt.
            return True
        return all(leaving.get(node_id, math.inf) > until for node_id in node_ids)

    async def choose(self, world: World) -> NodeChoice:
        """Choose the nodes that a session of this world must not use, and note the new ones.

        Raises:
            SessionError: the others can't hold it, and none will come; or the head does not answer.
        """
        if self._settings.is_private:
            return NodeChoice(leaving=[], failing=[])
        nodes = await self._nodes_now(self._settings.node_timeout_s)
        chosen = self._chosen(nodes, world, grows=self._settings.is_autoscaled)
        self.notes.add(chosen.leaving, LEAVES)
        self.notes.add(chosen.failing, FAILS)
        if chosen.misfit is not None:
            raise SessionError("infeasible", chosen.misfit, hopeless_for="world")
        return chosen

    async def reset(self, world: World) -> bool:
        """Use failing nodes again if none came in their place; True if a world fits with them.

        Raises:
            SessionError: Ray's head does not say which nodes there are.
        """
        nodes = await self._nodes_now(NODE_ANSWERS_S)
        failing = self.failures.failing()
        reused = [node for node in nodes if node.node_id in failing]
        if not reused or self._chosen(nodes, world, grows=False).misfit is not None:
            return False
        self.notes.used_again(reused)
        self.failures.reset()
        return True

    def _chosen(self, nodes: Sequence[Node], world: World, *, grows: bool) -> NodeChoice:
        return choose_nodes(
            nodes,
            failing=self.failures.failing(),
            world=world,
            per_worker=self._per_worker,
            grows=grows,
        )

    async def check(self, places: Mapping[str, int]) -> None:
        """Check that the nodes that the driver has chosen for a session are still there.

        Raises:
            SessionError: one has gone, or is being taken back; or the head does not answer.
        """
        staying = {
            node.node_id
            for node in await self._nodes_now(self._settings.node_timeout_s)
            if node.leaves_at is None
        }
        gone = [node for node in places if node not in staying]
        if gone:
            reason = f"{count_of(len(gone), 'node')} of the session left before it started"
            raise SessionError("node_lost", reason)

    async def _nodes_now(self, within_s: float) -> list[Node]:
        """The nodes that are there."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(nodes_now), within_s)
        except (RayError, TimeoutError) as error:
            reason = f"Ray's head did not say in {within_s:g} s which nodes there are"
            raise SessionError("collateral", reason) from error
