"""A plan laid out on a cluster: GPUs, slots, what does not fit, and the autoscaler's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dtsweep import Measure, Resources, Sweep, SweepError
from dtsweep.cluster.autoscaler import Autoscaler, NodeType
from dtsweep.cluster.capacity import Cluster
from dtsweep.driver.prepare import fewer_sessions, lay_out, prepare
from dtsweep.plan.plan import Plan, make_plan
from dtsweep.plan.trial import Trial
from dtsweep.session.node_choice import Node
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import World
from tests.counts import calls_of
from tests.outcomes import Tokens

Resource = Mapping[str, float]
Axes = dict[str, list[Any]]
TWO_OF_TWO = [{"CPU": 2.0}, {"CPU": 2.0}]
EIGHT_GPUS = {"CPU": 16.0, "GPU": 8.0}
HEAD = {"node:__internal_head__": 1.0}
UNKNOWN = Autoscaler()
ONCE = Measure(repeats=1)


def cluster_of(nodes: Sequence[Resource], autoscaler: Autoscaler | None = None) -> Cluster:
    named = [Node(node_id=f"node{index}", resources=has) for index, has in enumerate(nodes)]
    return Cluster(name="test", is_private=False, nodes=named, autoscaler=autoscaler)


def adds(*types: tuple[int, Resource], most: int = 100) -> Autoscaler:
    """An autoscaler that can have so many nodes of each type, and of all together."""
    kinds = [
        NodeType(name=f"type{i}", resources=has, max_nodes=count)
        for i, (count, has) in enumerate(types)
    ]
    return Autoscaler(types=kinds, max_nodes=most)


@dataclass(frozen=True, kw_only=True)
class Made:
    """A plan's first batch on a cluster that is settled for it."""

    sweep: Sweep
    nests: bool
    groups: Sequence[Sequence[Trial]]
    refused: Sequence[tuple[Trial, str]]
    canaries: Mapping[World, Trial]
    flags: tuple[str, ...]


def made_of(sweep: Sweep, plan: Plan, cluster: Cluster) -> Made:
    settled = prepare(sweep, plan, cluster)
    layout = lay_out(settled, plan)
    return Made(sweep=settled.sweep, nests=settled.nests, **vars(layout))


def planned(axes: Axes, *, measure: Measure = ONCE, **resources: Any) -> tuple[Sweep, Plan]:
    settings = Resources(**resources)
    sweep = Sweep(workload=Tokens(), axes=axes, measure=measure, resources=settings)
    return sweep, make_plan(sweep, candidates(sweep), [])


def prepared(cluster: Cluster, axes: Axes, **settings: Any) -> Made:
    return made_of(*planned(axes, **settings), cluster)


def refused(made: Made) -> dict[tuple[int, str], str]:
    return {(trial.point.workers, trial.point.placement): reason for trial, reason in made.refused}


@pytest.mark.parametrize(
    ("gpus", "autoscaler", "given", "settled"),
    [
        (0, None, None, 0),
        (8, None, None, 1),
        (0, adds((1, {"CPU": 8.0, "GPU": 4.0})), None, 1),
        (0, adds((1, {"CPU": 8.0})), None, 0),
        (8, UNKNOWN, None, 1),
        (0, UNKNOWN, 0, 0),
        (8, None, 0, 0),
        (8, None, 1, 1),
    ],
)
def test_a_worker_gets_a_gpu_where_there_are_any_unless_the_sweep_says_otherwise(
    gpus: int, autoscaler: Autoscaler | None, given: int | None, settled: int
) -> None:
    has = {"CPU": 2.0} | ({"GPU": gpus} if gpus else {})
    made = prepared(cluster_of([has], autoscaler), {"workers": [1]}, gpus_per_worker=given)
    assert made.sweep.resources.gpus_per_worker == settled


def test_node_types_that_are_unknown_are_not_taken_for_types_without_gpus() -> None:
    said = r"say how many GPUs a worker gets, Resources\(gpus_per_worker=1\)"
    with pytest.raises(SweepError, match=said):
        prepared(cluster_of([{"CPU": 2.0}], UNKNOWN), {"workers": [1]})


def test_what_does_not_fit_is_refused_with_its_reason_and_in_no_session() -> None:
    placements = {"pack": "", "strict_pack": " on one node", "strict_spread": " on a node each"}
    axes: Axes = {"workers": [1, 3, 5], "placement": [*placements]}
    made = prepared(cluster_of(TWO_OF_TWO), axes)
    room = "don't fit: 2 nodes with room for 2+2"
    assert refused(made) == {
        (workers, placement): f"{workers} workers of 1 CPU{rule} {room}"
        for workers in (3, 5)
        for placement, rule in placements.items()
        if (workers, placement) != (3, "pack")
    }
    # Of one placement the smaller world runs in the larger one's session.
    assert {
        tuple((t.point.workers, t.point.placement) for t in group) for group in made.groups
    } == {((3, "pack"), (1, "pack")), ((1, "strict_pack"),), ((1, "strict_spread"),)}
    # Several sessions at a time change nothing: each may use all nodes.
    made = prepared(cluster_of([{"CPU": 4.0}, {"CPU": 2.0}]), {"workers": [6, 7]}, concurrent=2)
    assert refused(made) == {(7, "pack"): "7 workers of 1 CPU don't fit: 2 nodes with room for 4+2"}
    # Nodes of unknown types may have room for anything.
    grows = cluster_of(TWO_OF_TWO, UNKNOWN)
    assert not prepared(grows, {"workers": [100]}, gpus_per_worker=0).refused
    tf32 = prepared(cluster_of(TWO_OF_TWO), {"precision": ["fp32", "tf32"]}).refused
    assert [reason for _, reason in tf32] == ["precision tf32 needs a GPU; use fp32"]
    with_gpu = cluster_of([{"CPU": 2.0, "GPU": 1.0}])
    assert not prepared(with_gpu, {"precision": ["fp32", "tf32"]}).refused


def test_what_ran_out_of_memory_is_no_canary() -> None:
    sweep, plan = planned({"micro_batch": [2, 4, 8]})
    sizes = {trial.point.micro_batch: trial.trial_id for trial in plan.to_run}

    def canary(*full: int) -> int:
        rows = [{"trial_id": sizes[size], "status": "oom_device"} for size in full]
        made = made_of(sweep, replace(plan, rows=rows), cluster_of(TWO_OF_TWO))
        (trial,) = made.canaries.values()
        return trial.point.micro_batch

    assert (canary(), canary(8), canary(4, 8)) == (4, 4, 2)


def test_a_run_that_goes_on_in_a_later_round_has_the_canaries_of_the_first() -> None:
    sweep, first = planned({"micro_batch": [2, 4, 8]})
    best = max(first.to_run, key=lambda trial: trial.point.micro_batch)
    launches = [replace(best, repeat=repeat, trial_id=f"{repeat}") for repeat in range(2, 6)]
    later = replace(first, to_run=launches[3:], done=[*first.to_run, *launches[:3]])
    sizes = [
        canary.point.micro_batch
        for plan in (first, later)
        for canary in made_of(sweep, plan, cluster_of(TWO_OF_TWO)).canaries.values()
    ]
    assert sizes == [4, 4]


@pytest.mark.parametrize(
    ("autoscaler", "room"),
    [
        (adds((3, {"CPU": 2.0})), "at most 4 nodes with room for 1+2+2+2"),
        (adds((3, {"CPU": 2.0}), (1, {"CPU": 4.0}), most=2), "at most 3 nodes with room for 1+4+2"),
        (adds(), "at most 1 node with room for 1"),
    ],
)
def test_what_fits_not_even_with_all_nodes_that_can_be_added_is_refused(
    autoscaler: Autoscaler, room: str
) -> None:
    # Of the node of a type that is there already there can be no more than of those that are not.
    there = [{"CPU": 1.0, **HEAD}] + [{"CPU": 2.0}] * bool(autoscaler.types)
    made = prepared(cluster_of(there, autoscaler), {"workers": [1, 9]})
    assert refused(made) == {(9, "pack"): f"9 workers of 1 CPU don't fit: {room}"}


def test_a_cluster_that_grows_is_asked_for_the_most_nodes_first_and_for_each_world_once() -> None:
    axes: Axes = {"workers": [2, 4], "placement": ["pack", "strict_pack", "strict_spread"]}
    grows = cluster_of([HEAD], adds((9, {"CPU": 4.0})))
    made = prepared(grows, axes, measure=Measure(repeats=2, nested=False))
    shapes = [(g[0].point.workers, g[0].point.placement, g[0].repeat) for g in made.groups]
    assert shapes[:4] == [(w, "strict_spread", repeat) for w in (4, 2) for repeat in (1, 2)]
    assert {shape[:2] for shape in shapes[4:8]} == {(4, "pack"), (4, "strict_pack")}
    assert [shape[2] for shape in shapes] == [1, 2] * 6
    assert made.flags == ("adjacent_launches",)


def sessions(made: Made) -> list[list[tuple[int, int]]]:
    """Workers and repeat of the trials of each session."""
    return [[(trial.point.workers, trial.repeat) for trial in group] for group in made.groups]


def test_where_nodes_come_or_sessions_share_them_the_repeats_of_a_world_follow_each_other() -> None:
    axes: Axes = {"workers": [1, 2]}
    twice = Measure(repeats=2, half_width=None, min_seconds=30)
    fixed = prepared(cluster_of(TWO_OF_TWO), axes, measure=twice)
    assert (sessions(fixed), fixed.flags) == ([[(2, 1), (1, 1)], [(2, 2), (1, 2)]], ())
    apart = prepared(cluster_of(TWO_OF_TWO), axes, measure=replace(twice, nested=False))
    assert sessions(apart) == [[(2, 1)], [(1, 1)], [(2, 2)], [(1, 2)]]
    grows = prepared(cluster_of(TWO_OF_TWO, adds((1, {"CPU": 2.0}))), axes, measure=twice)
    # The world of both nodes first, then the small ones side by side.
    small = [{"CPU": 1.0}, {"CPU": 1.0}]
    lanes = prepared(cluster_of(small), axes, measure=twice, concurrent=2)
    for made in (grows, lanes):
        assert sessions(made) == [[(2, 1)], [(2, 2)], [(1, 1)], [(1, 2)]]
        assert made.flags == ("adjacent_launches",)


def test_on_an_autoscaler_a_smaller_world_shares_a_session_only_if_a_start_is_longer() -> None:
    grows = cluster_of(TWO_OF_TWO, adds((1, {"CPU": 2.0})))
    brief = Measure(repeats=1, half_width=None, min_seconds=1)
    few: Axes = {"workers": [1, 2], "micro_batch": [1, 2]}
    many: Axes = few | {"micro_batch": [*range(1, 20)]}
    assert prepared(grows, few, measure=brief).nests
    assert not prepared(grows, few, measure=replace(brief, min_seconds=10)).nests
    assert not prepared(grows, many, measure=brief).nests
    assert not prepared(grows, few, measure=replace(brief, nested=False)).nests
    assert prepared(cluster_of(TWO_OF_TWO), many, measure=brief).nests


def test_a_single_session_has_nobody_to_share_nodes_with() -> None:
    grows = cluster_of(TWO_OF_TWO, adds((5, {"CPU": 2.0})))
    made = prepared(grows, {"workers": [1]}, concurrent=3, share_nodes=True)
    assert made.sweep.resources.concurrent == 1
    assert not made.sweep.resources.share_nodes


@pytest.mark.parametrize(
    ("nodes", "autoscaler", "resources", "settled"),
    [
        # CPU worlds keep a thread per worker.
        ([{"CPU": 16.0}], None, {}, 1),
        ([{"CPU": 16.0, "GPU": 8.0}], None, {"gpus_per_worker": 0}, 1),
        ([{"CPU": 4.0}, {"CPU": 100.0, "GPU": 8.0}], None, {}, 12),
        ([{"CPU": 100.0, "GPU": 8.0}], None, {"cpus_per_worker": 3}, 3),
        ([{"CPU": 4.0, "GPU": 8.0}], None, {}, 1),
        # The node with least; it must hold every worker.
        ([{"CPU": 100.0, "GPU": 8.0}, {"CPU": 32.0, "GPU": 8.0}], None, {}, 4),
        ([{"CPU": 4.0}], adds((1, {"CPU": 8.0, "GPU": 4.0})), {}, 2),
        ([{"CPU": 100.0, "GPU": 8.0}], UNKNOWN, {"gpus_per_worker": 1}, 1),
    ],
)
def test_a_worker_with_a_gpu_gets_its_share_of_the_nodes_cpus(
    nodes: list[Resource], autoscaler: Autoscaler | None, resources: dict[str, Any], settled: int
) -> None:
    made = prepared(cluster_of(nodes, autoscaler), {"workers": [1]}, **resources)
    assert made.sweep.resources.cpus_per_worker == settled
    assert made.refused == []


def test_results_that_are_continued_keep_the_cpus_of_their_workers() -> None:
    sweep, plan = planned({"micro_batch": [1, 2]})
    row: dict[str, Any] = {"trial_id": "t", "status": "ok", "window_s": None}
    row |= {"gpus_per_worker": 1.0, "cpus_per_worker": 2.0}
    rows = [row, {**row, "status": "user_error", "cpus_per_worker": 3.0}]
    made = made_of(sweep, replace(plan, rows=rows), cluster_of([{"CPU": 16.0, "GPU": 2.0}]))
    assert made.sweep.resources.cpus_per_worker == 2


@pytest.mark.parametrize(
    ("nodes", "autoscaler", "share_nodes", "settled"),
    [
        (TWO_OF_TWO, None, False, 2),
        (TWO_OF_TWO, None, True, 4),
        ([HEAD, {"CPU": 2.0}], None, False, 1),
        ([HEAD], adds((3, {"CPU": 2.0})), False, 1),
        ([HEAD], UNKNOWN, False, 1),
    ],
)
def test_no_more_sessions_are_expected_at_a_time_than_the_nodes_have_room_for(
    nodes: list[Resource], autoscaler: Autoscaler | None, share_nodes: bool, settled: int
) -> None:
    asked = {"concurrent": 9, "share_nodes": share_nodes, "gpus_per_worker": 0}
    sweep, plan = planned({"workers": [1]}, **asked)
    made = prepare(sweep, plan, cluster_of(nodes, autoscaler))
    assert made.sweep.resources.concurrent == settled
    why = "one session runs at a time" if autoscaler else "concurrent=9: the cluster has room for "
    assert why in (fewer_sessions(sweep, made) or "")


def test_one_session_is_split_for_slots_that_would_have_none() -> None:
    axes: Axes = {"micro_batch": [*range(1, 20)]}
    made = prepared(cluster_of(TWO_OF_TWO), axes, concurrent=2)
    assert [len(group) for group in made.groups] == [10, 9]
    assert len({trial.trial_id for group in made.groups for trial in group}) == 19
    many = prepared(cluster_of([EIGHT_GPUS]), axes, concurrent=8, share_nodes=True)
    # Parts of fewer than four trials are not worth another start.
    assert [len(group) for group in many.groups] == [5, 5, 5, 4]
    few = prepared(cluster_of(TWO_OF_TWO), {"micro_batch": [*range(1, 8)]}, concurrent=2)
    assert [len(group) for group in few.groups] == [7]


@pytest.mark.parametrize("slots", [1, 100])
def test_a_thousand_nodes_are_looked_at_once_for_each_shape_of_a_world(slots: int) -> None:
    cluster = cluster_of([{"CPU": 2.0}] * 1000)

    def work(points: int) -> int:
        axes: Axes = {"workers": [1, 2], "micro_batch": [*range(1, points // 2 + 1)]}
        sweep, plan = planned(axes, concurrent=slots)
        return calls_of(lambda: made_of(sweep, plan, cluster))

    few, many = work(100), work(1100)
    assert few < 90 * 1000
    assert many - few < 300 * 1000
