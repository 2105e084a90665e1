"""Nodes that sweeps can use at once, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtsweep import Measure, Resources, Sweep, workloads
from dtsweep.plan.demand import nodes_json
from dtsweep.sweep.axes import candidates
from tests.conftest import Command


def demand(
    workers: list[int],
    *,
    placement: str = "pack",
    repeats: int | None = 2,
    **resources: Any,
) -> int:
    sweep = Sweep(
        workload=workloads.Gpt(),
        axes={"workers": workers, "placement": [placement]},
        measure=Measure(repeats=repeats),
        resources=Resources(**resources),
    )
    rows = nodes_json(sweep, candidates(sweep))["nodes"]["by_workers_per_node"]
    (row,) = [row for row in rows if row["workers_per_node"] == 8]
    at_once: int = row["at_once"]
    return at_once


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
    assert demand(workers, placement=placement) == nodes


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
    assert demand([8, 16, 32], repeats=repeats, concurrent=concurrent) == nodes


def test_a_world_that_must_stay_on_one_node_and_is_too_large_needs_none() -> None:
    assert demand([8, 16], placement="strict_pack") == 1
    assert demand([16], placement="strict_pack") == 0


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
            {"workers_per_node": size, "at_once": nodes} for size, nodes in ((1, 3), (2, 2), (4, 1))
        ],
    }
    none = forked_command("plan", "study.py", "--json", "--set", "workers=5", folder=tmp_path)
    rows = json.loads(none.stdout)["nodes"]["by_workers_per_node"]
    assert [row["at_once"] for row in rows] == [5, 3, 2, 1]
