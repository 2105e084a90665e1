"""Nodes that sweeps can use at once, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dtsweep import Measure, Resources, Sweep, SweepError, workloads
from dtsweep.cluster_files.demand import Demand, Node, demand_of
from dtsweep.sweep.axes import candidates

GPU_NODE = Node(cpus=96, gpus=8)


def demand(
    workers: list[int],
    *,
    node: Node = GPU_NODE,
    placement: str = "pack",
    repeats: int | None = 2,
    **resources: Any,
) -> Demand:
    sweep = Sweep(
        workload=workloads.Gpt(),
        axes={"workers": workers, "placement": [placement]},
        measure=Measure(repeats=repeats),
        resources=Resources(**resources),
    )
    points = [candidate.point for candidate in candidates(sweep) if candidate.reason is None]
    return demand_of(sweep, points, node)


@pytest.mark.parametrize(
    ("workers", "placement", "nodes"),
    [
        ([1, 8], "pack", 1),
        ([1, 16], "pack", 2),
        ([17], "pack", 3),
        ([2, 4], "strict_spread", 4),
        ([2, 4], "spread", 4),
        ([8], "strict_pack", 1),
    ],
)
def test_one_session_needs_the_nodes_of_the_largest_world(
    workers: list[int], placement: str, nodes: int
) -> None:
    found = demand(workers, placement=placement, gpus_per_worker=1)
    assert found == Demand(at_once=nodes, of_largest=nodes)


@pytest.mark.parametrize(
    ("concurrent", "repeats", "nodes"),
    [
        (2, 1, 4 + 2),
        (3, 1, 4 + 2 + 1),
        # No more worlds can be there at once.
        (9, 1, 4 + 2 + 1),
        # A world has a session for each of its launches.
        (3, 2, 4 + 4 + 2),
        (2, None, 4 + 4),
    ],
)
def test_slots_need_the_nodes_of_the_largest_worlds_that_can_be_there_at_once(
    concurrent: int, repeats: int | None, nodes: int
) -> None:
    found = demand([8, 16, 32], repeats=repeats, gpus_per_worker=1, concurrent=concurrent)
    assert found == Demand(at_once=nodes, of_largest=4)


def test_slots_that_share_nodes_need_a_part_for_each() -> None:
    shared = {"share_nodes": True, "gpus_per_worker": 1}
    assert demand([1], concurrent=8, **shared).at_once == 1
    assert demand([1, 2], concurrent=8, **shared).at_once == 2
    assert demand([8], concurrent=3, **shared).at_once == 3


def test_workers_of_a_node_are_limited_by_cpus_too() -> None:
    assert Node(cpus=7, gpus=0).room(Resources(cpus_per_worker=2)) == 3
    assert Node(cpus=7, gpus=8).room(Resources(cpus_per_worker=2, gpus_per_worker=1)) == 3
    # A node with GPUs gives a worker that takes none its CPUs alone.
    assert Node(cpus=7, gpus=1).room(Resources(cpus_per_worker=2, gpus_per_worker=0)) == 3
    found = demand([4], node=Node(cpus=4, gpus=0), cpus_per_worker=2)
    assert found.of_largest == 2


def test_a_world_that_must_stay_on_one_node_and_is_too_large_is_named() -> None:
    found = demand([8, 16], placement="strict_pack", gpus_per_worker=1)
    assert found.of_largest == 1
    (line,) = found.misfits
    assert line.startswith("16 workers with placement strict_pack don't fit on a node of 96 CPUs")


def test_a_node_without_room_for_a_worker_is_refused() -> None:
    with pytest.raises(SweepError, match="a worker needs 8 CPUs, and a node has 4 CPUs; give more"):
        demand([1], node=Node(cpus=4, gpus=0), cpus_per_worker=8)
    with pytest.raises(SweepError, match="no world of the sweep fits on nodes of 96 CPUs"):
        demand([16], placement="strict_pack", gpus_per_worker=1)
