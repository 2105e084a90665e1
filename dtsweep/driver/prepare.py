"""Lay out a run on a cluster: GPUs, refused trials, slots and sessions. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from dtsweep.driver.queue import BatchLayout
from dtsweep.errors import SweepError
from dtsweep.plan.estimate import are_brief
from dtsweep.plan.plan import Plan
from dtsweep.plan.trial import Trial, choose_canaries, groups_of, sessions_of
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.settings import Sweep
from dtsweep.text import count_of

if TYPE_CHECKING:
    from dtsweep.cluster.capacity import Cluster


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A cluster, settled for a sweep: it is the same for all batches of a run."""

    sweep: Sweep
    """With settled resources: GPUs and CPUs of a worker, and whether slots share nodes."""

    cluster: Cluster

    no_room: Callable[[int, str], str | None]
    """Says why the cluster can't hold so many workers in this placement, or None."""

    nests: bool = False
    """True if sessions also run smaller worlds."""


def prepare(sweep: Sweep, plan: Plan, cluster: Cluster) -> Prepared:
    """Settle resources and slots, before the first batch is laid out.

    Raises:
        SweepError: it must be said whether workers get GPUs.
    """
    gpus = sweep.resources.gpus_per_worker
    if gpus is None:
        gpus = cluster.has_gpus()
    if gpus is None:
        raise SweepError(
            "an autoscaler can add nodes of unknown types here: say how many GPUs a worker gets, "
            "Resources(gpus_per_worker=1), or 0 for none"
        )
    sweep = _settled(sweep, gpus_per_worker=int(gpus))
    sweep = _settled(sweep, cpus_per_worker=_cpus_of_worker(sweep, cluster, plan))
    concurrent = min(sweep.resources.concurrent, _most_sessions(sweep, cluster))
    share_nodes = sweep.resources.share_nodes and concurrent > 1
    sweep = _settled(sweep, concurrent=concurrent, share_nodes=share_nodes)
    # What nodes can hold is asked once for each shape of a world, however many nodes and trials
    # there are.
    no_room = cache(partial(cluster.misfit, per_worker=resources_of_worker(sweep)))
    prepared = Prepared(sweep=sweep, cluster=cluster, no_room=no_room)
    nests = sweep.measure.nested and not sweep.measure.fresh
    # A search has planned with the sessions of its sweep, and its choices must not depend on nodes.
    if sweep.search is None:
        nests = nests and _stays(prepared, plan)
    return replace(prepared, nests=nests)


def _most_sessions(sweep: Sweep, cluster: Cluster) -> int:
    """Number of sessions that may run at the same time; at least 1."""
    rooms = cluster.rooms(resources_of_worker(sweep))
    if rooms is None or cluster.autoscaler is not None:
        # Which nodes come for a request is known once they are there.
        return 1
    if sweep.resources.share_nodes:
        return max(1, sum(rooms))
    return max(1, sum(room > 0 for room in rooms))


def fewer_sessions(sweep: Sweep, prepared: Prepared) -> str | None:
    """Say that fewer sessions run at the same time than the sweep asks for; None if not."""
    asked, settled = sweep.resources.concurrent, prepared.sweep.resources.concurrent
    if settled == asked:
        return None
    if prepared.cluster.autoscaler is not None:
        return f"concurrent={asked}: on nodes that an autoscaler adds one session runs at a time"
    words = f"concurrent={asked}: the cluster has room for {count_of(settled, 'session')}"
    if sweep.resources.share_nodes:
        return f"{words} at the same time"
    return f"{words} with nodes of their own; Resources(share_nodes=True) lets them share a node"


def _stays(prepared: Prepared, plan: Plan) -> bool:
    """True if the nodes of a launch's largest world should stay for its smaller ones.

    On an autoscaler a smaller world of its own gives nodes back.
    """
    if prepared.cluster.autoscaler is None:
        return True
    fitting, _ = _by_room(prepared, plan)
    groups = groups_of(fitting, fresh=prepared.sweep.measure.fresh)
    return are_brief(prepared.sweep, groups, plan.rows)


def lay_out(prepared: Prepared, plan: Plan) -> BatchLayout:
    """Lay the trials of a plan out."""
    sweep = prepared.sweep
    cluster = prepared.cluster
    fitting, refused = _by_room(prepared, plan)
    groups: list[Sequence[Trial]] = [*groups_of(fitting, fresh=sweep.measure.fresh)]
    groups = sessions_of(groups, nests=prepared.nests, slots=sweep.resources.concurrent)
    full = {row["trial_id"] for row in plan.rows if row["status"] == "oom_device"}
    planned = list(groups)
    if cluster.autoscaler is not None or sweep.resources.concurrent > 1:
        groups = _largest_first(groups, cluster, sweep)
    # Of each point once, however many rounds it has come through: the middle stays the same.
    watched = [
        trial
        for trial in (*fitting, *plan.done)
        if trial.repeat == 1 and trial.trial_id not in full
    ]
    has_repeats = len({trial.repeat for trial in fitting}) > 1
    flags: tuple[str, ...] = ()
    if has_repeats and groups != planned:
        flags = ("adjacent_launches",)
    return BatchLayout(
        groups=groups, refused=refused, canaries=choose_canaries(watched), flags=flags
    )


def _by_room(prepared: Prepared, plan: Plan) -> tuple[list[Trial], list[tuple[Trial, str]]]:
    """The trials that the cluster can hold, and the others with their reasons."""
    harness = Harness(has_gpus=bool(prepared.sweep.resources.gpus_per_worker))
    fitting = []
    refused = []
    for trial in plan.to_run:
        point = trial.point
        reason = impossible(point, harness) or prepared.no_room(point.workers, point.placement)
        if reason is None:
            fitting.append(trial)
        else:
            refused.append((trial, reason))
    return fitting, refused


def _largest_first(
    groups: Sequence[Sequence[Trial]], cluster: Cluster, sweep: Sweep
) -> list[Sequence[Trial]]:
    """Sort sessions by their nodes, most first; repeats of a world are neighbours.

    So an autoscaler adds nodes once and then removes them. Sessions that run at the same time leave
    fewer nodes idle before one that needs all of them.
    """
    worlds = [group[0].point.world for group in groups]
    least = cache(partial(cluster.least_nodes, per_worker=resources_of_worker(sweep)))
    first = {world: index for index, world in reversed([*enumerate(worlds)])}

    def order(group: Sequence[Trial]) -> tuple[float, int, int]:
        world = group[0].point.world
        return -least(world), -world.workers, first[world]

    return sorted(groups, key=order)


def _settled(sweep: Sweep, **resources: Any) -> Sweep:
    return replace(sweep, resources=replace(sweep.resources, **resources))


def _cpus_of_worker(sweep: Sweep, cluster: Cluster, plan: Plan) -> int:
    """CPUs of a worker; results that are continued keep theirs."""
    resources = sweep.resources
    if resources.cpus_per_worker is not None:
        return resources.cpus_per_worker
    cpus = cluster.cpus_per_worker(resources.gpus_per_worker or 0)
    for row in plan.rows:
        is_alike = row["status"] == "ok" and row["gpus_per_worker"] == resources.gpus_per_worker
        if is_alike and row["cpus_per_worker"]:
            cpus = int(row["cpus_per_worker"])
    return cpus


def resources_of_worker(sweep: Sweep) -> dict[str, float]:
    """Resources of one worker, once they are settled."""
    resources = sweep.resources
    return {"CPU": resources.cpus_per_worker or 1, "GPU": resources.gpus_per_worker or 0}
