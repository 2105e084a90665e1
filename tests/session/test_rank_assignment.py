"""Which ranks of a session make a smaller world."""

from __future__ import annotations

import pytest

from dtsweep.session.rank_assignment import assign_ranks, members_of

EVEN, UNEVEN = ["a", "a", "b", "b", "c", "c"], ["a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("nodes", "workers", "placement", "members"),
    [
        (EVEN, 6, "pack", [0, 1, 2, 3, 4, 5]),
        (EVEN, 2, "pack", [0, 1]),
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


def test_ranks_count_anew_in_a_smaller_world_on_each_node_too() -> None:
    found = assign_ranks(EVEN, [0, 2, 3], world=7)
    assert [assignment.rank for assignment in found] == [0, None, 1, 2, None, None]
    assert [
        (assignment.local_rank, assignment.local_workers)
        for assignment in found
        if assignment.rank is not None
    ] == [
        (0, 1),
        (0, 2),
        (1, 2),
    ]
    assert {(assignment.world, assignment.workers) for assignment in found} == {(7, 3)}
    assert [assignment.node_rank for assignment in found if assignment.rank is not None] == [
        0,
        1,
        1,
    ]
    assert [
        assignment.node_rank
        for assignment in assign_ranks(EVEN, [3, 4], world=8)
        if assignment.rank is not None
    ] == [0, 1]
