"""Choose the ranks of a session that form a smaller world. Pure functions of their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dtsweep.sweep.task import Task


@dataclass(frozen=True, kw_only=True)
class RankAssignment:
    """A rank's place in the world that the next task needs."""

    world: int
    """Number of this world in the session, from 0."""

    rank: int | None
    """None leaves the rank out."""

    workers: int
    local_rank: int = 0
    local_workers: int = 1
    """Workers of this world on the rank's node."""

    node_rank: int = 0
    """Number of the rank's node among those of this world."""


def members_of(nodes: Sequence[str], *, workers: int, placement: str) -> list[int]:
    """Choose the ranks of a smaller world as Ray would place it.

    Args:
        nodes: where each rank of the session runs.
        workers: as many of them.
        placement: packed worlds fill the nodes with most ranks first; spread ones take the first
            rank of each node, then the second.

    Returns:
        Ranks of the session, ascending: in the order of the ranks in the world.

    >>> members_of(["a", "b", "b", "b"], workers=2, placement="pack")
    [1, 2]
    >>> members_of(["a", "a", "b", "b"], workers=2, placement="spread")
    [0, 2]
    """
    if workers == len(nodes):
        return list(range(workers))
    counts = Counter(nodes)
    order = {node: index for index, node in enumerate(counts)}
    seen = Counter[str]()
    local = list[int]()
    for node in nodes:
        local.append(seen[node])
        seen[node] += 1

    def place(rank: int) -> tuple[int, ...]:
        node = nodes[rank]
        if placement.endswith("spread"):
            return local[rank], order[node]
        return -counts[node], order[node], local[rank]

    return sorted(sorted(range(len(nodes)), key=place)[:workers])


def with_places(task: Task, members: Sequence[int], nodes: Sequence[str]) -> Task:
    """Mark the points in turn whose own worlds would have other ranks: they are measured alone.

    Args:
        task: of an attempt.
        members: of the session's ranks, those of the task's world.
        nodes: where each rank of the session runs.
    """
    in_turn = []
    for one in task.in_turn:
        world = one.point.world
        own = members_of(nodes, workers=world.workers, placement=world.placement)
        in_turn.append(replace(one, is_alone=own != list(members[: world.workers])))
    return replace(task, in_turn=in_turn)


def assign_ranks(
    nodes: Sequence[str], members: Sequence[int], *, world: int
) -> list[RankAssignment]:
    """Give each rank of a session its place in a world; those that are not members get none.

    Args:
        nodes: where each rank of the session runs.
        members: by `members_of`.
        world: its number.
    """
    local_workers = Counter(nodes[rank] for rank in members)
    seated = Counter[str]()
    node_ranks = {node: index for index, node in enumerate(local_workers)}
    assignments = [RankAssignment(world=world, rank=None, workers=len(members)) for _ in nodes]
    for index, rank in enumerate(members):
        node = nodes[rank]
        assignments[rank] = RankAssignment(
            world=world,
            rank=index,
            workers=len(members),
            local_rank=seated[node],
            local_workers=local_workers[node],
            node_rank=node_ranks[node],
        )
        seated[node] += 1
    return assignments
