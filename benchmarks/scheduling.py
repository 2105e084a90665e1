"""Use of a cluster and waits of worlds: backfill next to first-come-first-served.

Sessions of mixed sizes are simulated on nodes that nobody else uses. The scheduler is the one of a
run (`dtsweep.plan.allotment`); first-come-first-served is the same one that sees only the first
waiting session. Expected times are wrong by a random factor. Nothing is trained.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.log_entry import heading, table
from dtsweep.plan.allotment import NodePool, RunningSession, WaitingSession

ROOM = 8
"""Workers that a node can hold."""

LARGE = 0.1
"""Share of the cluster from which on a world counts as large."""


@dataclass(frozen=True, kw_only=True)
class SimulatedSession:
    """A session, and what the scheduler does not know of it."""

    waiting: WaitingSession
    arrives_at: float
    lasts_s: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Figures of a simulated run."""

    utilisation: float
    """Node-seconds of running sessions, as a share of all until 90 % of the work has begun.

    The tail of a run is empty under any order.
    """

    longest_wait_s: float
    """Of large worlds."""

    median_wait_s: float
    """Of all."""

    makespan_s: float


def sessions(
    count: int,
    *,
    nodes: int,
    load: float | None,
    error: float,
    rng: np.random.Generator,
    largest: float = 1.0,
) -> list[SimulatedSession]:
    """Draw sessions: worlds of 1, 2, 4, … workers up to the largest, equally often.

    Args:
        count: how many.
        nodes: of the cluster.
        largest: share of the cluster that the largest world takes.
        load: arriving work as a share of what the cluster can do; None: all arrive at once.
        error: standard deviation of the logarithm of the expected over the true time.
        rng: source of all draws.
    """
    most = round(largest * nodes * ROOM)
    sizes = [*(2**power for power in range(int(np.log2(most)))), most]
    workers = rng.choice(sizes, count)
    lasts_s = rng.lognormal(np.log(120.0), 0.8, count)
    expected_s = lasts_s * rng.lognormal(0.0, error, count)
    arrives_at = np.zeros(count)
    if load is not None:
        node_s = float(np.sum(np.ceil(workers / ROOM) * lasts_s))
        arrives_at = np.sort(rng.uniform(0, node_s / (nodes * load), count))
    return [
        SimulatedSession(
            waiting=WaitingSession(workers=int(w), expected_s=float(e)),
            arrives_at=float(a),
            lasts_s=float(s),
        )
        for w, e, a, s in zip(workers, expected_s, arrives_at, lasts_s, strict=True)
    ]


def simulate(drawn: Sequence[SimulatedSession], pool: NodePool, *, backfills: bool) -> Outcome:
    """Run sessions on a pool in their order of arrival."""
    arriving = sorted(range(len(drawn)), key=lambda index: drawn[index].arrives_at)
    waiting: list[int] = []
    running: dict[int, RunningSession] = {}
    ends: list[tuple[float, int]] = []
    began: dict[int, float] = {}
    nodes_of: dict[int, int] = {}
    now = 0.0
    while arriving or waiting or running:
        while arriving and drawn[arriving[0]].arrives_at <= now:
            waiting.append(arriving.pop(0))
        while waiting:
            seen = waiting if backfills else waiting[:1]
            begin = pool.next_to_begin(
                [drawn[index].waiting for index in seen], list(running.values()), now=now
            )
            if begin is None:
                break
            index = waiting.pop(begin.index)
            session = drawn[index]
            running[index] = RunningSession(
                places=begin.places, ends_at=now + session.waiting.expected_s
            )
            nodes_of[index] = len(begin.places)
            began[index] = now
            heapq.heappush(ends, (now + session.lasts_s, index))
        next_arrival = drawn[arriving[0]].arrives_at if arriving else np.inf
        if ends and ends[0][0] <= next_arrival:
            now, ended = heapq.heappop(ends)
            del running[ended]
        elif arriving:
            now = next_arrival
    return _outcome(drawn, began, nodes_of, len(pool.rooms))


def _outcome(
    drawn: Sequence[SimulatedSession], began: dict[int, float], nodes_of: dict[int, int], nodes: int
) -> Outcome:
    begins = np.array([began[index] for index in range(len(drawn))])
    lasts_s = np.array([session.lasts_s for session in drawn])
    used = np.array([nodes_of[index] for index in range(len(drawn))])
    arrivals = np.array([session.arrives_at for session in drawn])
    by_begin = np.argsort(begins)
    work = np.cumsum((used * lasts_s)[by_begin])
    until = float(begins[by_begin][np.searchsorted(work, 0.9 * work[-1])])
    busy_s = np.clip(np.minimum(begins + lasts_s, until) - begins, 0, None)
    waits = begins - arrivals
    large = used >= LARGE * nodes
    return Outcome(
        utilisation=float(np.sum(used * busy_s) / (nodes * until)),
        longest_wait_s=float(np.max(waits[large])),
        median_wait_s=float(np.median(waits)),
        makespan_s=float(np.max(begins + lasts_s)),
    )


def main() -> None:
    """Print an entry of the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    pool = NodePool(rooms={f"node{index}": ROOM for index in range(arguments.nodes)})
    print(heading("how full is a cluster with backfill, and how long do large worlds wait?"))
    rows = []
    for largest, load, error in itertools.product((1.0, 0.25), (None, 0.9), (0.0, 0.5)):
        drawn = sessions(
            arguments.sessions,
            nodes=arguments.nodes,
            load=load,
            error=error,
            rng=np.random.default_rng(arguments.seed),
            largest=largest,
        )
        first = simulate(drawn, pool, backfills=False)
        filled = simulate(drawn, pool, backfills=True)
        arrivals = "all at once" if load is None else f"load {load:.0%}"
        rows.append(
            [
                f"{largest:.0%}",
                arrivals,
                f"{error:g}",
                f"{first.utilisation:.1%}",
                f"{filled.utilisation:.1%}",
                f"{first.makespan_s:,.0f}",
                f"{filled.makespan_s:,.0f}",
                f"{first.longest_wait_s:,.0f}",
                f"{filled.longest_wait_s:,.0f}",
                f"{filled.longest_wait_s / first.longest_wait_s:.2f}",
            ]
        )
    headers = [
        "largest world, of the cluster",
        "arrivals",
        "error of expected times",
        "used, FCFS",
        "used, backfill",
    ]
    headers += ["makespan s, FCFS", "backfill", "longest wait of a large world s, FCFS", "backfill"]
    print(table([*headers, "ratio"], rows))


if __name__ == "__main__":
    main()
