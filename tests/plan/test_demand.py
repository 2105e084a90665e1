"""Nodes that sweeps can use at once, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtsweep import Measure, Resources, Sweep, workloads
from dtsweep.plan.demand import Demand, nodes_json
from dtsweep.sweep.axes import candidates
from tests.conftest import Command


def demand(
    workers: list[int],
    *,
    room: int = 8,
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
    rows = nodes_json(sweep, candidates(sweep))["nodes"]["by_workers_per_node"]
    (row,) = [row for row in rows if row["workers_per_node"] == room]
    return Demand(**row)


@pytest.mark.parametrize(
    ("workers", "placement", "nodes"),
    [
        ([1, 8], "pack", 1),
        ([1, 16], "pack", 2),
        ([17], "pack", 3),
        ([2, 5], "strict_spread", 5),
        ([2, 5], "spread", 5),
        ([8], "strict_pack", 1),
    ],
)
def test_one_session_needs_the_nodes_of_the_largest_world(
    workers: list[int], placement: str, nodes: int
) -> None:
    found = demand(workers, placement=placement)
    assert found == Demand(workers_per_node=8, at_once=nodes, of_largest=nodes)


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
    found = demand([8, 16, 32], repeats=repeats, concurrent=concurrent)
    assert (found.at_once, found.of_largest) == (nodes, 4)


def test_slots_that_share_nodes_need_a_part_for_each() -> None:
    assert demand([1, 8], concurrent=8, share_nodes=True).at_once == 8
    assert demand([1, 2], concurrent=8, room=2, share_nodes=True).at_once == 8
    assert demand([8], concurrent=3, share_nodes=True).at_once == 3


def test_a_world_that_must_stay_on_one_node_and_is_too_large_is_named() -> None:
    found = demand([8, 16], placement="strict_pack")
    assert (found.at_once, found.of_largest) == (1, 1)
    assert found.misfits == ("16 workers with placement strict_pack",)
    assert demand([16], placement="strict_pack").at_once == 0


SWEEP = """
from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=16, sequence=8, data="pydoc"),
    axes={"workers": [1, 3], "micro_batch": [4, 3]},
    skip=lambda p: "too many" if p.workers == 3 and p.micro_batch == 3 else None,
    measure=Measure(repeats=2),
    resources=Resources(gpus_per_worker=1, cpus_per_worker=2),
)
"""


def test_a_plan_says_how_many_nodes_a_sweep_needs_for_each_size_of_a_node(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(SWEEP)
    done = forked_command("plan", "study.py", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["nodes"] == {
        "cpus_per_worker": 2,
        "gpus_per_worker": 1,
        "by_workers_per_node": [
            {"workers_per_node": size, "at_once": nodes, "of_largest": nodes, "misfits": []}
            for size, nodes in ((1, 3), (2, 2), (4, 1))
        ],
    }
    none = forked_command("plan", "study.py", "--json", "--set", "workers=5", folder=tmp_path)
    rows = json.loads(none.stdout)["nodes"]["by_workers_per_node"]
    assert [row["at_once"] for row in rows] == [5, 3, 2, 1]
