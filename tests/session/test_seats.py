"""Which ranks of a session make a smaller world."""

from __future__ import annotations

import pytest

from dtsweep.session.seats import members_of, seats

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
    found = seats(EVEN, [0, 2, 3], world=7)
    assert [seat.rank for seat in found] == [0, None, 1, 2, None, None]
    assert [(seat.local_rank, seat.local_workers) for seat in found if seat.rank is not None] == [
        (0, 1),
        (0, 2),
        (1, 2),
    ]
    assert {(seat.world, seat.workers) for seat in found} == {(7, 3)}
    assert [seat.node_rank for seat in found if seat.rank is not None] == [0, 1, 1]
    assert [seat.node_rank for seat in seats(EVEN, [3, 4], world=8) if seat.rank is not None] == [0, 1]
