"""Which session begins next, and on which nodes: reservations, backfill, placements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scheduling import ROOM, SimulatedSession, sessions, simulate
from dtsweep.plan.allotment import Begin, NodePool, RunningSession, WaitingSession

FOUR = NodePool(rooms={"a": 2, "b": 2, "c": 2, "d": 2})


def waiting(workers: int, expected_s: float = 10.0, placement: str = "pack") -> WaitingSession:
    return WaitingSession(workers=workers, placement=placement, expected_s=expected_s)


def running(*nodes: str, until: float = 100.0) -> RunningSession:
    return RunningSession(places=dict.fromkeys(nodes, 2), ends_at=until)


def test_a_session_takes_whole_nodes_although_it_needs_less() -> None:
    begin = FOUR.next_to_begin([waiting(1), waiting(1)], [], now=0.0)
    assert begin == Begin(index=0, places={"d": 1})
    others = FOUR.next_to_begin([waiting(7)], [running("a")], now=0.0)
    assert others is None
    shared = NodePool(rooms={"a": 2}, shares_nodes=True)
    one = RunningSession(places={"a": 1}, ends_at=9.0)
    assert shared.next_to_begin([waiting(1)], [one], now=0.0) == Begin(index=0, places={"a": 1})


def test_a_small_session_begins_before_a_large_one_only_if_it_does_not_delay_it() -> None:
    # Three nodes are free from 50 s on, all four from 100 s on.
    busy = [running("a", until=50.0), running("b", until=100.0)]
    large = waiting(6)
    short, long = waiting(2, expected_s=50.0), waiting(2, expected_s=51.0)
    assert FOUR.next_to_begin([large, short], busy, now=0.0) == Begin(index=1, places={"d": 2})
    # All of a, c and d are reserved, and b is in use.
    assert FOUR.next_to_begin([large, long], busy, now=0.0) is None
    # Of two nodes that are reserved, the third is left.
    begin = FOUR.next_to_begin([waiting(8), long], [running("a", until=200.0)], now=0.0)
    assert begin == Begin(index=1, places={"d": 2})
    five = NodePool(rooms={**FOUR.rooms, "e": 2})
    begin = five.next_to_begin([large, long], [running("a", "b", "c", until=50.0)], now=0.0)
    assert begin is not None
    assert begin.index == 1


def test_nothing_begins_on_reserved_nodes_while_sessions_last_longer_than_expected() -> None:
    late = [running("a", until=10.0)]
    assert FOUR.next_to_begin([waiting(8), waiting(1, expected_s=1.0)], late, now=20.0) is None


def test_a_large_world_waits_only_for_what_runs_however_wrong_expected_times_are() -> None:
    small = [
        SimulatedSession(waiting=waiting(1, expected_s=10.0), arrives_at=0.0, lasts_s=25.0)
        for _ in range(200)
    ]
    large = SimulatedSession(waiting=waiting(80), arrives_at=1.0, lasts_s=10.0)
    later = [replace(session, arrives_at=2.0) for session in small[40:]]
    pool = NodePool(rooms={f"n{index}": 2 for index in range(40)})
    simulated = simulate([*small[:40], large, *later], pool, backfills=True)
    assert simulated.longest_wait_s <= 25.0


def test_the_first_session_that_waits_is_never_passed_over_once_it_fits() -> None:
    begin = FOUR.next_to_begin([waiting(8), waiting(1)], [], now=0.0)
    assert begin is not None
    assert begin.index == 0


def test_a_session_that_the_nodes_can_not_hold_holds_up_no_other() -> None:
    begin = FOUR.next_to_begin([waiting(9), waiting(8)], [], now=0.0)
    assert begin is not None
    assert begin.index == 1
    assert not FOUR.holds(waiting(9))
    assert not FOUR.holds(waiting(3, placement="strict_pack"))


@pytest.mark.parametrize(
    ("placement", "workers", "places"),
    [
        ("pack", 3, {"c": 3}),
        ("pack", 5, {"d": 4, "a": 1}),
        ("pack", 7, {"d": 4, "c": 3}),
        ("strict_pack", 2, {"b": 2}),
        ("strict_spread", 3, {"a": 1, "b": 1, "c": 1}),
        ("spread", 2, {"c": 1, "d": 1}),
        ("spread", 6, {"a": 1, "b": 2, "c": 2, "d": 1}),
    ],
)
def test_each_placement_has_its_nodes(placement: str, workers: int, places: dict[str, int]) -> None:
    pool = NodePool(rooms={"a": 1, "b": 2, "c": 3, "d": 4})
    begin = pool.next_to_begin([waiting(workers, placement=placement)], [], now=0.0)
    assert begin is not None
    assert dict(begin.places) == places


def test_where_nodes_are_shared_the_emptiest_is_taken_first() -> None:
    pool = NodePool(rooms={"a": 4, "b": 4}, shares_nodes=True)
    one = RunningSession(places={"a": 1}, ends_at=9.0)
    assert pool.next_to_begin([waiting(1)], [one], now=0.0) == Begin(index=0, places={"b": 1})


rooms = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 4), min_size=1)
placements = st.sampled_from(["pack", "spread", "strict_pack", "strict_spread"])
shapes = st.lists(st.tuples(st.integers(1, 12), placements, st.floats(1, 99)), max_size=8)


@given(rooms=rooms, shapes=shapes, shares_nodes=st.booleans())
def test_no_place_is_given_twice_and_each_worker_has_one(
    rooms: dict[str, int], shapes: list[tuple[int, str, float]], shares_nodes: bool
) -> None:
    pool = NodePool(rooms=rooms, shares_nodes=shares_nodes)
    left = [waiting(workers, seconds, placement) for workers, placement, seconds in shapes]
    begun: list[RunningSession] = []
    while (begin := pool.next_to_begin(left, begun, now=0.0)) is not None:
        session = left.pop(begin.index)
        assert sum(begin.places.values()) == session.workers
        begun.append(RunningSession(places=begin.places, ends_at=session.expected_s))
    for node, room in rooms.items():
        users = [session.places[node] for session in begun if node in session.places]
        assert sum(users) <= room
        assert shares_nodes or len(users) <= 1
    # Nothing runs: whatever fits at all is not left waiting for ever.
    if not begun:
        assert not any(pool.holds(session) for session in left)


@pytest.mark.parametrize(("load", "error"), [(None, 0.0), (None, 0.5), (0.9, 0.5)])
def test_backfill_uses_more_of_a_cluster_than_first_come_first_served_and_starves_nobody(
    load: float | None, error: float
) -> None:
    pool = NodePool(rooms={f"n{index}": ROOM for index in range(40)})
    rng = np.random.default_rng(1)
    drawn = sessions(400, nodes=40, load=load, error=error, rng=rng)
    first = simulate(drawn, pool, backfills=False)
    filled = simulate(drawn, pool, backfills=True)
    assert filled.utilisation >= first.utilisation + 0.10
    assert filled.longest_wait_s <= 2 * first.longest_wait_s
