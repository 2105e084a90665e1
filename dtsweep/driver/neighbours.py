"""Slots that share nodes: when one may begin an attempt, and how many attempts ran at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def neighbours_of(nodes: Sequence[Sequence[str] | None]) -> list[frozenset[int]]:
    """The other slots that use a node of each slot.

    Args:
        nodes: ids of each slot's nodes; None is all.

    >>> neighbours_of([("a", "b"), ("c",), ("b",)])
    [frozenset({2}), frozenset(), frozenset({0})]
    >>> neighbours_of([None])
    [frozenset()]
    """
    return [
        frozenset(
            other
            for other, theirs in enumerate(nodes)
            if other != slot and (own is None or theirs is None or not {*own}.isdisjoint(theirs))
        )
        for slot, own in enumerate(nodes)
    ]


def may_begin(
    slot: int,
    *,
    neighbours: Collection[int],
    running: Mapping[int, bool],
    wants_alone: Collection[int],
) -> bool:
    """True if a free slot may begin its next attempt now.

    An attempt that is measured alone waits for its neighbours, and they for it.

    Args:
        slot: its index.
        neighbours: of this slot.
        running: slots that run an attempt; True where it is measured alone.
        wants_alone: free slots whose next attempt is to be measured alone.
    """
    running_neighbours = [running[other] for other in neighbours if other in running]
    if any(running_neighbours):
        return False
    if slot in wants_alone:
        return not running_neighbours
    return not any(other in wants_alone for other in neighbours)
