"""Groups that all-reduce, how often, and what clocks tell."""

from __future__ import annotations

from dtsweep.doctor.link_tests import GPU_SIZES, MOST_TIMES, SIZES, rank_groups, time_repeated
from dtsweep.doctor.look_around import ask_clock
from dtsweep.session.node_choice import Node


def node(name: str, **resources: float) -> Node:
    return Node(node_id=name, resources=resources)


def test_all_gpus_of_a_node_and_of_all_nodes_are_groups() -> None:
    a, b, c = node("a", GPU=4, CPU=2), node("b", GPU=1, CPU=8), node("c", CPU=8)
    assert rank_groups([a, b, c], kind="GPU") == [(a,) * 4, (*(a,) * 4, b)]
    assert rank_groups([a, c], kind="GPU") == [(a,) * 4]
    assert rank_groups([b, c], kind="GPU") == []


def test_two_cpus_of_the_first_node_and_one_of_the_first_two_are_groups() -> None:
    a, b, c = node("a", CPU=1), node("b", CPU=2), node("c", CPU=8)
    assert rank_groups([a, b, c], kind="CPU") == [(b, b), (a, b)]
    assert rank_groups([a], kind="CPU") == []


def test_connecting_in_the_first_all_reduce_takes_no_repetitions_and_gpus_send_up_to_a_gib() -> (
    None
):
    calls: list[int] = []

    def run(times: int) -> float:
        calls.append(times)
        return 1.0 if len(calls) == 1 else 1e-5

    assert time_repeated(run) == (MOST_TIMES, 1e-5)
    assert calls[-1] == MOST_TIMES
    assert (SIZES[-1], GPU_SIZES[-1]) == (2**26, 2**30)


def test_a_clock_is_believed_by_the_soonest_answer() -> None:
    # Asked at 0, 1, …; each answer takes 1 s, and the other clock is 100 s ahead.
    ours = iter(float(second) for second in range(100))
    there = iter(100.5 + 2 * second for second in range(100))
    offset = ask_clock(there.__next__, clock=ours.__next__)
    assert offset == {"clock_offset_s": 100.0, "clock_error_s": 0.5}
