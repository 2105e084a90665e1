"""Groups that all-reduce, and repetitions that the first connection doesn't reduce."""

from __future__ import annotations

from dtsweep.doctor.link_tests import GPU_SIZES, MOST_TIMES, SIZES, groups_of, time_repeated
from dtsweep.session.node_choice import Node


def node(name: str, **resources: float) -> Node:
    return Node(node_id=name, resources=resources)


def test_all_gpus_of_a_node_and_of_all_nodes_are_groups() -> None:
    a, b, c = node("a", GPU=4, CPU=2), node("b", GPU=1, CPU=8), node("c", CPU=8)
    assert groups_of([a, b, c], kind="GPU") == [(a,) * 4, (*(a,) * 4, b)]
    assert groups_of([a, c], kind="GPU") == [(a,) * 4]
    assert groups_of([b, c], kind="GPU") == []


def test_two_cpus_of_the_first_node_and_one_of_the_first_two_are_groups() -> None:
    a, b, c = node("a", CPU=1), node("b", CPU=2), node("c", CPU=8)
    assert groups_of([a, b, c], kind="CPU") == [(b, b), (a, b)]
    assert groups_of([a], kind="CPU") == []


def test_gpus_exchange_up_to_a_gibibyte() -> None:
    assert SIZES[-1] == 2**26
    assert GPU_SIZES[-1] == 2**30


def test_connecting_in_the_first_all_reduce_takes_no_repetitions() -> None:
    calls: list[int] = []

    def run(times: int) -> float:
        calls.append(times)
        if len(calls) == 1:
            return 1.0
        return 1e-5

    assert time_repeated(run) == (MOST_TIMES, 1e-5)
    assert calls[-1] == MOST_TIMES
