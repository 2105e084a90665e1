"""Slots that share nodes: when one may begin an attempt; no Ray runs here."""

from __future__ import annotations

import pytest

from dtsweep.driver.neighbours import may_begin


@pytest.mark.parametrize(
    ("running", "wants_alone", "slots_that_may"),
    [
        ({}, set(), {0, 1, 2}),
        ({1: False}, set(), {0, 2}),
        # What is to be measured alone waits for its neighbours, and those wait for it.
        ({}, {0}, {0}),
        ({1: False}, {0}, set()),
        ({0: True}, set(), set()),
        ({0: True}, {1}, set()),
        # Of two, either may: the other one then waits.
        ({}, {0, 2}, {0, 2}),
    ],
)
def test_what_is_measured_alone_has_no_neighbours(
    running: dict[int, bool], wants_alone: set[int], slots_that_may: set[int]
) -> None:
    slots = {0, 1, 2}
    may = {
        slot
        for slot in slots - running.keys()
        if may_begin(slot, neighbours=slots - {slot}, running=running, wants_alone=wants_alone)
    }
    assert may == slots_that_may


def test_a_slot_on_nodes_of_its_own_waits_for_nobody() -> None:
    assert may_begin(0, neighbours=(), running={1: True}, wants_alone={0, 2})
