"""Lay out a run on a cluster: GPUs, refused trials, slots and sessions. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from dtsweep.errors import SweepError
from dtsweep.plan.canary_choice import choose_canaries
from dtsweep.plan.estimate import are_brief
from dtsweep.plan.plan import Plan
from dtsweep.plan.trial import Trial, group_launches, groups_of
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.point import Point, World
from dtsweep.sweep.settings import Sweep

if TYPE_CHECKING:
    from dtsweep.driver.cluster import Cluster, Node

    Slots = Sequence[tuple[Node, ...] | None]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan, laid out on a cluster."""

    sweep: Sweep
    """With the GPUs of a worker settled."""

    groups: Sequence[Sequence[Trial]]
    """Trials that may share a session, in the order in which they run."""

    refused: Sequence[tuple[Trial, str]]
    """Trials that the cluster can't hold, each with the reason."""

    slots: Slots
    """The nodes of each slot; None is all."""

    canaries: Mapping[World, Trial]
    nests: bool = False
    """True if sessions also run smaller worlds."""

    flags: tuple[str, ...] = ()
    """Of every row of the run."""


def prepare(sweep: Sweep, plan: Plan, cluster: Cluster) -> Prepared:
    """Lay a plan out on a cluster.

    Raises:
        SweepError: the cluster has no room for that many slots, or it must be said whether workers
            get GPUs.
    """
    sweep = _with_gpus(sweep, cluster)
    slots = _slots(sweep, cluster)
    # What nodes can hold is asked once for each shape of a world, however many nodes and trials
    # there are.
    no_room = cache(partial(_no_room, sweep, cluster, slots))
    harness = Harness(has_gpus=bool(sweep.resources.gpus_per_worker))
    points = ((trial, trial.point) for trial in plan.to_run)
    reasons = [
        (t, impossible(point, harness) or no_room(point.workers, point.placement))
        for t, point in points
    ]
    to_run = [trial for trial, reason in reasons if reason is None]
    groups: list[Sequence[Trial]] = [*groups_of(to_run, fresh=sweep.measure.fresh)]
    # On an autoscaler a smaller world of its own gives nodes back.
    stays = cluster.autoscaler is None or are_brief(sweep, groups, plan.rows)
    nests = sweep.measure.nested and not sweep.measure.fresh and stays
    if nests:
        groups = _by_launch(groups, slots=len(slots))
    full = {row["trial_id"] for row in plan.rows if row["status"] == "oom_device"}
    planned = list(groups)
    if cluster.autoscaler is not None:
        groups = _growing_once(groups, cluster, sweep)
    flags: tuple[str, ...] = ()
    if sweep.measure.repeats > 1 and groups != planned:
        flags = ("adjacent_launches",)
    return Prepared(
        sweep=sweep,
        groups=groups,
        nests=nests,
        refused=[(trial, reason) for trial, reason in reasons if reason is not None],
        slots=slots,
        canaries=choose_canaries(
            [trial for trial in (*to_run, *plan.done) if trial.trial_id not in full]
        ),
        flags=flags,
    )


def _growing_once(
    groups: Sequence[Sequence[Trial]], cluster: Cluster, sweep: Sweep
) -> list[Sequence[Trial]]:
    """Sort sessions so that nodes are requested once and then released: most nodes first.

    Repeats of a world are neighbours.
    """
    worlds = [group[0].point.world for group in groups]
    least = cache(partial(cluster.least_nodes, per_worker=resources_of_worker(sweep)))
    first = {world: index for index, world in reversed([*enumerate(worlds)])}
    return sorted(groups, key=lambda g: (-least(w := g[0].point.world), -w.workers, first[w]))


def _by_launch(groups: Sequence[Sequence[Trial]], *, slots: int) -> list[Sequence[Trial]]:
    """Join the worlds that one session can run, largest first; several slots share them in turn."""
    launches = group_launches(groups)
    if slots > 1:
        return [group for worlds in launches for group in worlds]
    return [[trial for group in worlds for trial in group] for worlds in launches]


def _with_gpus(sweep: Sweep, cluster: Cluster) -> Sweep:
    """Settle how many GPUs a worker gets."""
    settled: int | bool | None = sweep.resources.gpus_per_worker
    if settled is None:
        settled = cluster.has_gpus()
    if settled is None:
        raise SweepError(
            "an autoscaler can add nodes of unknown types here: say how many GPUs a worker gets, "
            "Resources(gpus_per_worker=1), or 0 for none"
        )
    return replace(sweep, resources=replace(sweep.resources, gpus_per_worker=int(settled)))


def _slots(sweep: Sweep, cluster: Cluster) -> Slots:
    """Share the nodes out over the slots; one slot has them all."""
    count = sweep.resources.concurrent
    if count == 1:
        return [None]
    if cluster.autoscaler is not None:
        raise SweepError(
            "concurrent trials need nodes that stay; this cluster adds and removes them: use "
            "concurrent=1"
        )
    usable = [node for node in cluster.nodes if node.resources.get("CPU", 0)]
    if len(usable) < count:
        raise SweepError(
            f"concurrent={count} needs as many nodes, so that trials don't disturb each other; "
            f"here: {len(usable)}"
        )
    return [tuple(usable[index::count]) for index in range(count)]


def _no_room(
    sweep: Sweep, cluster: Cluster, slots: Slots, workers: int, placement: str
) -> str | None:
    """Say why some slot can't hold a world of this shape, or None."""
    point = Point(workers=workers, placement=placement)
    per_worker = resources_of_worker(sweep)
    reasons = (cluster.misfit(point, per_worker=per_worker, nodes=slot) for slot in slots)
    return next((reason for reason in reasons if reason), None)


def resources_of_worker(sweep: Sweep) -> dict[str, float]:
    """Resources of one worker, once its GPUs are settled."""
    return {"CPU": sweep.resources.cpus_per_worker, "GPU": sweep.resources.gpus_per_worker or 0}
