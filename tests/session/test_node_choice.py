"""Nodes that a session is started on, and its ranks that make a smaller world; no Ray runs here."""

from __future__ import annotations

import pytest

from dtsweep.session.node_choice import FailureCounts, Node, choose_nodes
from dtsweep.session.rank_assignment import assign_ranks, members_of
from dtsweep.sweep.point import World


def node(node_id: str, *, cpus: int = 1, leaves_at: float | None = None) -> Node:
    return Node(
        node_id=node_id, name=f"host-{node_id}", resources={"CPU": cpus}, leaves_at=leaves_at
    )


def chosen(
    nodes: list[Node],
    workers: int,
    *,
    struck: str = "",
    placement: str = "pack",
    grows: bool = False,
) -> tuple[list[str], str | None]:
    """The ids of what is left out, and why the rest is too little."""
    world = World(workers=workers, placement=placement, environment=())
    choice = choose_nodes(
        nodes, failing=set(struck), world=world, per_worker={"CPU": 1, "GPU": 0}, grows=grows
    )
    return choice.without, choice.misfit


A, B, C = (node(name) for name in "abc")
LEAVING = node("b", leaves_at=0.0)


def test_a_node_that_is_being_taken_back_is_left_out_whether_or_not_it_is_said_when() -> None:
    assert chosen([A, LEAVING, C], 2) == (["b"], None)
    assert chosen([A, node("b", leaves_at=1e9), C], 2) == (["b"], None)


def test_a_world_that_does_not_fit_without_it_is_refused_at_once() -> None:
    left_out, misfit = chosen([A, LEAVING], 2)
    assert left_out == ["b"]
    assert (
        misfit == "2 workers don't fit any more: 1 node with room for 1; host-b is being taken back"
    )


def test_where_nodes_can_be_added_they_are_waited_for() -> None:
    assert chosen([A, LEAVING], 2, grows=True) == (["b"], None)
    assert chosen([A, B], 2, struck="a", grows=True) == (["a"], None)


@pytest.mark.parametrize(
    ("workers", "placement", "left_out"),
    [(2, "pack", ["a"]), (3, "pack", []), (2, "strict_spread", ["a"]), (3, "strict_spread", [])],
)
def test_a_node_that_trials_died_on_is_left_out_unless_the_world_needs_it(
    workers: int, placement: str, left_out: list[str]
) -> None:
    assert chosen([A, B, C], workers, struck="a", placement=placement) == (left_out, None)


def test_a_node_that_has_gone_makes_a_world_too_large() -> None:
    assert chosen([A, B], 3)[1] == "3 workers don't fit any more: 2 nodes with room for 1+1"


def test_two_trials_that_died_on_a_node_and_nowhere_else_strike_it() -> None:
    failure_counts = FailureCounts()
    for trial in ("one", "one", "two"):
        failure_counts.died(trial, "a")
    assert failure_counts.failing() == {"a"}
    failure_counts.reset()
    assert failure_counts.failing() == frozenset()
    for trial in ("one", "two"):
        failure_counts.died(trial, "a")
    # The second dies elsewhere as well: that is its own fault.
    failure_counts.died("two", "b")
    assert failure_counts.failing() == frozenset()


EVEN, UNEVEN = ["a", "a", "b", "b", "c", "c"], ["a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("nodes", "workers", "placement", "members"),
    [
        (EVEN, 6, "pack", [0, 1, 2, 3, 4, 5]),
        (EVEN, 3, "pack", [0, 1, 2]),
        (EVEN, 3, "spread", [0, 2, 4]),
        (EVEN, 4, "spread", [0, 1, 2, 4]),
        (EVEN, 2, "strict_spread", [0, 2]),
        (UNEVEN, 2, "strict_pack", [1, 2]),
        (UNEVEN, 2, "spread", [0, 1]),
        (UNEVEN, 1, "pack", [1]),
    ],
)
def test_a_smaller_world_is_placed_as_its_placement_says(
    nodes: list[str], workers: int, placement: str, members: list[int]
) -> None:
    assert members_of(nodes, workers=workers, placement=placement) == members


def test_ranks_count_from_0_in_a_smaller_world_on_each_node_too() -> None:
    assigned = assign_ranks(EVEN, [0, 2, 3], world=7)
    assert [one.rank for one in assigned] == [0, None, 1, 2, None, None]
    members = [one for one in assigned if one.rank is not None]
    assert [(one.local_rank, one.local_workers) for one in members] == [(0, 1), (0, 2), (1, 2)]
    assert [one.node_rank for one in members] == [0, 1, 1]
    assert {(one.world, one.workers) for one in assigned} == {(7, 3)}


def test_a_world_that_comes_up_nowhere_leaves_no_strike_on_the_nodes_that_it_tried() -> None:
    failure_counts = FailureCounts()
    for start, node_id in (("start 1", "a"), ("start 2", "a")):
        failure_counts.died(start, node_id)
    failure_counts.reset_nodes(["start 1", "start 2"])
    assert failure_counts.failing() == {"a"}
    failure_counts.died("start 3", "b")
    failure_counts.reset_nodes(["start 1", "start 2", "start 3"])
    assert failure_counts.failing() == frozenset()
