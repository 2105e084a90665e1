"""The nodes of a cluster as a lane sees them: which of them its next session must not use, and why."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection

from dtsweep.session.node_choice import STRIKES, Strikes, choose_nodes, leaving_nodes, nodes_now
from dtsweep.session.nodes import NODE_ANSWERS_S
from dtsweep.session.session import SessionError
from dtsweep.session.settings import Settings
from dtsweep.sweep.point import World


class NodeWatch:
    """Which nodes trials died on, which are being taken back, and what is told of them."""

    def __init__(self, settings: Settings) -> None:
        """Know nothing of any node."""
        self._settings = settings
        self._strikes = Strikes()
        self._left_out: set[str] = set()
        self._notes: list[str] = []

    def died(self, trial_id: str, node_id: str) -> None:
        """Note that a process of a trial has died on a node."""
        self._strikes.died(trial_id, node_id)

    def take_notes(self) -> list[str]:
        """Lines on nodes that have been left out since these were taken last."""
        notes, self._notes = self._notes, []
        return notes

    async def stay(self, node_ids: Collection[str], *, until: float) -> bool:
        """Whether none of these nodes is taken back before a Unix time in seconds."""
        if self._settings.is_private:
            return True
        leaving = await asyncio.wait_for(asyncio.to_thread(leaving_nodes), NODE_ANSWERS_S)
        return all(leaving.get(node_id, math.inf) > until for node_id in node_ids)

    async def left_out(self, world: World) -> list[str]:
        """The ids of nodes that a session of this world must not use.

        Raises:
            SessionError: the others can't hold it, and none will come.
        """
        if self._settings.is_private:
            return []
        usable, resources = self._settings.nodes, {"CPU": self._settings.cpus_per_worker}
        nodes = await asyncio.wait_for(asyncio.to_thread(nodes_now), NODE_ANSWERS_S)
        chosen = choose_nodes(
            [node for node in nodes if usable is None or node.node_id in usable],
            struck=self._strikes.struck(),
            world=world,
            each=resources | {"GPU": self._settings.gpus_per_worker},
            grows=self._settings.is_autoscaled,
        )
        why = {
            "is being taken back": chosen.leaving,
            f"is left out: {STRIKES} trials lost a process there": chosen.struck,
        }
        for what, left_out in why.items():
            self._notes += [f"node {node.name} {what}" for node in left_out if node.node_id not in self._left_out]
            self._left_out |= {node.node_id for node in left_out}
        if chosen.misfit is not None:
            raise SessionError("infeasible", chosen.misfit, hopeless_for="world")
        return [node.node_id for node in (*chosen.leaving, *chosen.struck)]
