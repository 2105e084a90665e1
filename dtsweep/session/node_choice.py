"""Nodes for a session: without those being taken back and those that trials died on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import ray

from dtsweep.sweep.point import World
from dtsweep.text import count_of

NODE_ID = "ray.io/node-id"
"""Ray's label of a node with its id."""

_STRIKES = 2
"""Number of trials that lost a process on a node, and only there, before it is left out.

It is used again where the other nodes don't suffice.
"""

LEAVES = "is being taken back"
FAILS = f"is left out: processes of {_STRIKES} trials or starts died there"
"""Reasons for which sessions use a node no more."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A living node of the cluster."""

    node_id: str
    resources: Mapping[str, float]
    name: str = ""
    """Host name of its machine."""

    leaves_at: float | None = None
    """Unix time in seconds at which its owner takes it back, 0 where that is not said.

    None where it stays.
    """


@dataclass(frozen=True, kw_only=True)
class NodeChoice:
    """Nodes of the next session."""

    leaving: Sequence[Node]
    """Nodes that are being taken back; they are left out."""

    failing: Sequence[Node]
    """Nodes that trials died on; they are left out."""

    misfit: str | None = None
    """Reason why the other nodes can't hold it, if none can be added."""

    @property
    def without(self) -> list[str]:
        """Ids of the nodes that are left out."""
        return [node.node_id for node in (*self.leaving, *self.failing)]


@dataclass(frozen=True, kw_only=True)
class SessionNodes:
    """Nodes on which the ranks of a session run."""

    places: Mapping[str, int] | None = None
    """Number of ranks on each node, by its id; None leaves the choice to Ray."""

    without: Sequence[str] = ()
    """Ids of nodes that are left out where the choice is Ray's."""

    def selectors(self, workers: int) -> list[dict[str, str]] | None:
        """Ray's label selector of each worker; None is any node.

        >>> SessionNodes(places={"a": 1, "b": 1}).selectors(2)
        [{'ray.io/node-id': 'a'}, {'ray.io/node-id': 'b'}]
        >>> SessionNodes(without=["b", "c"]).selectors(1)
        [{'ray.io/node-id': '!in(b,c)'}]
        """
        if self.places is not None:
            nodes = [node for node, ranks in self.places.items() for _ in range(ranks)]
            return [{NODE_ID: node} for node in nodes]
        if not self.without:
            return None
        return [{NODE_ID: f"!in({','.join(self.without)})"}] * workers


ANY_NODES = SessionNodes()


class NodeNotes:
    """Lines for the user on nodes that sessions use no more, one for each node."""

    def __init__(self) -> None:
        """Begin without a line."""
        self._lines: list[str] = []
        self._named: set[str] = set()

    def add(self, nodes: Sequence[Node], reason: str) -> None:
        """Name the nodes that have not been named yet."""
        new = [node for node in nodes if node.node_id not in self._named]
        self._lines += [f"node {node.name} {reason}" for node in new]
        self._named |= {node.node_id for node in new}

    def used_again(self, nodes: Sequence[Node]) -> None:
        """Say that nodes are used again; they may be named another time."""
        self._lines += [f"node {node.name} is used again: none came in its place" for node in nodes]
        self._named -= {node.node_id for node in nodes}

    def take(self) -> list[str]:
        """Hand over the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines


class FailureCounts:
    """Nodes on which trials lost a process, by trial."""

    def __init__(self, nodes: Mapping[str, frozenset[str]] | None = None) -> None:
        """Start from the counts of an earlier slot."""
        self._nodes = dict(nodes or {})

    def add(self, nodes: Mapping[str, frozenset[str]]) -> None:
        """Add the counts of another slot."""
        for trial_id, died_on in nodes.items():
            self._nodes[trial_id] = self._nodes.get(trial_id, frozenset()) | died_on

    def by_trial(self) -> dict[str, frozenset[str]]:
        """The nodes of each trial that lost one."""
        return dict(self._nodes)

    def died(self, trial_id: str, node_id: str) -> None:
        """Note that a process of a trial has died on a node."""
        self.add({trial_id: frozenset({node_id})})

    def failing(self) -> frozenset[str]:
        """Nodes on which enough trials died; a trial that died on several nodes counts for none."""
        counts = Counter(next(iter(nodes)) for nodes in self._nodes.values() if len(nodes) == 1)
        return frozenset(node_id for node_id, count in counts.items() if count >= _STRIKES)

    def reset_nodes(self, starts: Sequence[str]) -> None:
        """Forget starts of one world that died on several nodes: the world is at fault itself."""
        if len({node for start in starts for node in self._nodes.get(start, ())}) > 1:
            for start in starts:
                self._nodes.pop(start, None)

    def reset(self) -> None:
        """Forget all failures."""
        self._nodes = {}


def nodes_now() -> list[Node]:
    """The cluster's living nodes, as Ray's head knows them."""
    leaving = leaving_nodes()
    return [
        Node(
            node_id=node["NodeID"],
            name=node["NodeManagerHostname"],
            resources=node["Resources"],
            leaves_at=leaving.get(node["NodeID"]),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def leaving_nodes() -> dict[str, float]:
    """Nodes that are being taken back, by the Unix time in seconds of their end; 0 if not given."""
    from ray._private.state import state

    return {
        node_id: deadline_ms / 1000 for node_id, deadline_ms in state.get_draining_nodes().items()
    }


def choose_nodes(
    nodes: Sequence[Node],
    *,
    failing: Collection[str],
    world: World,
    per_worker: Mapping[str, float],
    grows: bool,
) -> NodeChoice:
    """Leave out the nodes that leave, and failing ones where the others can hold the world.

    Args:
        nodes: those that a session may use at all.
        failing: ids of nodes that trials died on.
        world: how many workers, and how they are placed.
        per_worker: resources of one worker.
        grows: whether nodes can be added; missing ones are then waited for.
    """
    leaving = [node for node in nodes if node.leaves_at is not None]
    staying = [node for node in nodes if node.leaves_at is None]
    sound = [node for node in staying if node.node_id not in failing]
    rooms = rooms_of(sound, per_worker)
    if grows or can_hold(rooms, workers=world.workers, placement=world.placement):
        failing_nodes = [node for node in staying if node not in sound]
        return NodeChoice(leaving=leaving, failing=failing_nodes)
    rooms = rooms_of(staying, per_worker)
    if can_hold(rooms, workers=world.workers, placement=world.placement):
        return NodeChoice(leaving=leaving, failing=[])
    suffix = ""
    if leaving:
        suffix = f"; {', '.join(node.name for node in leaving)} is being taken back"
    return NodeChoice(
        leaving=leaving,
        failing=[],
        misfit=f"{world.workers} workers don't fit any more: {rooms_in_words(rooms)}{suffix}",
    )


def can_hold(rooms: Sequence[int], *, workers: int, placement: str) -> bool:
    """True if nodes can hold a world.

    Args:
        rooms: how many workers each could hold.
        workers: of the world.
        placement: `strict_pack` wants one node, `strict_spread` a node for each.

    >>> [can_hold([2, 1], workers=2, placement=p) for p in ("pack", "strict_pack", "strict_spread")]
    [True, True, True]
    >>> [can_hold([3], workers=2, placement=p) for p in ("pack", "strict_pack", "strict_spread")]
    [True, True, False]
    """
    if placement == "strict_pack":
        return max(rooms, default=0) >= workers
    if placement == "strict_spread":
        return sum(room > 0 for room in rooms) >= workers
    return sum(rooms) >= workers


def rooms_in_words(rooms: Sequence[int]) -> str:
    """Say how many workers nodes have room for.

    >>> rooms_in_words([2, 1]), rooms_in_words([])
    ('2 nodes with room for 2+1', '0 nodes with room for none')
    """
    return f"{count_of(len(rooms), 'node')} with room for {'+'.join(map(str, rooms)) or 'none'}"


def room_for(resources: Mapping[str, float], per_worker: Mapping[str, float]) -> int:
    """Number of workers a node could hold, if nothing else ran there.

    >>> room_for({"CPU": 8, "GPU": 2}, {"CPU": 1, "GPU": 1})
    2
    """
    needed = {kind: count for kind, count in per_worker.items() if count}
    return min((int(resources.get(kind, 0) // needed[kind]) for kind in needed), default=0)


def rooms_of(nodes: Sequence[Node], per_worker: Mapping[str, float]) -> list[int]:
    """Number of workers that each node could hold, if nothing else ran."""
    return [room_for(node.resources, per_worker) for node in nodes]
