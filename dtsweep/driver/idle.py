"""An autoscaler's nodes: from when until when each was up, and how long they stood idle."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray

from dtsweep.metrics.attempt_result import AttemptResult


@dataclass(frozen=True, kw_only=True)
class NodeLife:
    """Start and end of a node that can hold a worker.

    In seconds since the epoch, by the clock of its head.
    """

    began: float
    ended: float | None
    """None while it is up."""


@dataclass(frozen=True, kw_only=True)
class NodeLifetimes:
    """The nodes of a Ray whose autoscaler adds and removes them."""

    per_worker: Mapping[str, float]
    """Resources of one worker."""

    def idle_node_s(self, result: AttemptResult, *, wall_s: float) -> float | None:
        """Idle node-seconds of an attempt that has just ended: nodes up without any of its ranks.

        Args:
            result: what became of it.
            wall_s: how long ago it was handed out, in seconds.

        Returns:
            None where the head does not say which nodes were up.
        """
        now = time.time()
        try:
            lives = lifetimes_of(self.per_worker)
        except ray.exceptions.RayError:
            return None
        hosts = len({facts.node_id for facts in result.facts.values()})
        held_s = wall_s
        if result.startup_s is not None:
            # Its nodes are its own once all of them are there.
            held_s = result.startup_s - (result.nodes_wait_s or 0.0) + (result.trial_s or 0.0)
        return max(0.0, node_s(lives, began=now - wall_s, ended=now) - hosts * held_s)


def node_s(lives: Sequence[NodeLife], *, began: float, ended: float) -> float:
    """Node-seconds between two times.

    >>> node_s([NodeLife(began=0, ended=4), NodeLife(began=3, ended=None)], began=1, ended=6)
    6
    """
    return sum(max(0, min(life.ended or ended, ended) - max(life.began, began)) for life in lives)


def lifetimes_of(per_worker: Mapping[str, float]) -> list[NodeLife]:
    """Lifetimes of all nodes that can hold a worker, from the head; some of them have ended.

    Args:
        per_worker: resources of one worker.
    """
    client = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    return [
        NodeLife(began=info.start_time_ms / 1e3, ended=info.end_time_ms / 1e3 or None)
        for info in client.get_all_node_info(timeout=10).values()
        if all(info.resources_total.get(kind, 0) >= count for kind, count in per_worker.items())
    ]
