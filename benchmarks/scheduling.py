"""Use of a cluster by sessions of mixed sizes: the largest first, next to the order of a plan.

Sessions are simulated on nodes that nobody else uses. Nodes are chosen as in a run
(`dtsweep.plan.allotment`): the first session that fits onto free nodes begins. All sessions of a
batch wait from the beginning. Nothing is trained.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.log_entry import heading, table
from dtsweep.plan.allotment import NodePool, Places
from dtsweep.sweep.point import World

ROOM = 8
"""Workers that a node can hold."""


@dataclass(frozen=True, kw_only=True)
class SimulatedSession:
    """A session, and what the scheduler does not know of it."""

    world: World
    lasts_s: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Figures of a simulated run."""

    utilisation: float
    """Node-seconds of running sessions, as a share of all until 90 % of the work has begun.

    The tail of a run is empty under any order.
    """

    whole_utilisation: float
    """Node-seconds of running sessions, as a share of all until the end."""

    makespan_s: float


def sessions(
    count: int, *, nodes: int, rng: np.random.Generator, largest: float = 1.0
) -> list[SimulatedSession]:
    """Draw sessions: worlds of 1, 2, 4, … workers up to the largest, equally often.

    Args:
        count: how many.
        nodes: of the cluster.
        rng: source of all draws.
        largest: share of the cluster that the largest world takes.
    """
    most = round(largest * nodes * ROOM)
    sizes = [*(2**power for power in range(int(np.log2(most)))), most]
    workers = rng.choice(sizes, count)
    lasts_s = rng.lognormal(np.log(120.0), 0.8, count)
    return [
        SimulatedSession(
            world=World(workers=int(w), placement="pack", environment=()), lasts_s=float(s)
        )
        for w, s in zip(workers, lasts_s, strict=True)
    ]


def simulate(drawn: Sequence[SimulatedSession], pool: NodePool) -> Outcome:
    """Run sessions on a pool, as they fit in their order."""
    waiting = [*range(len(drawn))]
    running: dict[int, Places] = {}
    ends: list[tuple[float, int]] = []
    began: dict[int, float] = {}
    nodes_of: dict[int, int] = {}
    now = 0.0
    while waiting or running:
        too_large: set[World] = set()
        for index in [*waiting]:
            world = drawn[index].world
            if world in too_large:
                continue
            places = pool.places_for(world, taken=running.values())
            if places is None:
                too_large.add(world)
                continue
            waiting.remove(index)
            running[index] = places
            nodes_of[index] = len(places)
            began[index] = now
            heapq.heappush(ends, (now + drawn[index].lasts_s, index))
        now, ended = heapq.heappop(ends)
        del running[ended]
    return _outcome(drawn, began, nodes_of, len(pool.rooms))


def _outcome(
    drawn: Sequence[SimulatedSession], began: dict[int, float], nodes_of: dict[int, int], nodes: int
) -> Outcome:
    begins = np.array([began[index] for index in range(len(drawn))])
    lasts_s = np.array([session.lasts_s for session in drawn])
    used = np.array([nodes_of[index] for index in range(len(drawn))])
    by_begin = np.argsort(begins)
    work = np.cumsum((used * lasts_s)[by_begin])
    until = float(begins[by_begin][np.searchsorted(work, 0.9 * work[-1])])
    busy_s = np.clip(np.minimum(begins + lasts_s, until) - begins, 0, None)
    makespan_s = float(np.max(begins + lasts_s))
    return Outcome(
        utilisation=float(np.sum(used * busy_s) / (nodes * until)),
        whole_utilisation=float(work[-1] / (nodes * makespan_s)),
        makespan_s=makespan_s,
    )


def main() -> None:
    """Print an entry of the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    pool = NodePool(rooms={f"node{index}": ROOM for index in range(arguments.nodes)})
    print(heading("how full is a cluster with the largest worlds first?"))
    rows = []
    for largest in (1.0, 0.6, 0.25):
        drawn = sessions(
            arguments.sessions,
            nodes=arguments.nodes,
            rng=np.random.default_rng(arguments.seed),
            largest=largest,
        )
        by_size = sorted(drawn, key=lambda session: -session.world.workers)
        for order, ordered in (("of the plan", drawn), ("largest first", by_size)):
            outcome = simulate(ordered, pool)
            rows.append(
                [
                    f"{largest:.0%}",
                    order,
                    f"{outcome.utilisation:.1%}",
                    f"{outcome.whole_utilisation:.1%}",
                    f"{outcome.makespan_s:,.0f}",
                ]
            )
    headers = ["largest world, of the cluster", "order", "used until 90 % has begun"]
    print(table([*headers, "used until the end", "makespan s"], rows))


if __name__ == "__main__":
    main()
