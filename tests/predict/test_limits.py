"""Tests of what a model refuses to predict."""

from __future__ import annotations

from dtsweep.predict.limits import reasons_of
from tests.setups import setups_of


def test_more_than_four_times_the_largest_size_is_unsupported() -> None:
    measured = setups_of(workers=[1, 4, 16], nodes=[1, 2, 4], micro_batch=[8, 8, 32])
    candidates = setups_of(workers=[64, 65], nodes=[16, 16], micro_batch=[128, 8])
    assert reasons_of(candidates, measured) == (
        None,
        "unsupported: measured up to 16 workers; predictions reach 64",
    )
    deep = setups_of(workers=[4], nodes=2, micro_batch=32, accumulation=8)
    (reason,) = reasons_of(deep, measured)
    assert reason == (
        "unsupported: measured up to 32 samples per worker and step; predictions reach 128"
    )


def test_several_nodes_need_two_configurations_on_several_nodes_or_to_be_measured() -> None:
    candidates = setups_of(workers=[2, 3], nodes=[1, 2])
    one = setups_of(workers=[2, 4, 4], nodes=[1, 2, 2])
    two = setups_of(workers=[2, 4, 8], nodes=[1, 2, 2])
    assert reasons_of(candidates, one) == (
        None,
        "unsupported: measured 1 configuration on several nodes; predictions need 2",
    )
    assert reasons_of(candidates, two) == (None, None)
    again = setups_of(workers=[4, 3], nodes=2)
    assert [reason is None for reason in reasons_of(again, one)] == [True, False]


def test_a_value_that_was_not_measured_is_unsupported() -> None:
    measured = setups_of(workers=[1, 2], categories={"mode": ["ddp", "zero1"]})
    candidates = setups_of(workers=[1, 2], categories={"mode": ["ddp", "fsdp"]})
    assert reasons_of(candidates, measured) == (None, "unsupported: measured mode: ddp, zero1")
