"""Settling a question: rounds of launches of the points that are still contenders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dtsweep.plan.policy import NOTHING_SPENT, Grid, Policy, Round, Rows, Spent
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep


def policy_of(sweep: Sweep) -> Policy:
    """Choose the policy of a sweep: a plain grid, or rounds until its question is decided."""
    if sweep.question is None:
        return Grid(sweep=sweep)
    return Settle(sweep=sweep)


@dataclass(frozen=True, kw_only=True)
class Settle:
    """One launch of every point, then rounds of the contenders."""

    sweep: Sweep

    following: Callable[[Sequence[Round], Rows, Collection[str]], Sequence[Round]] | None = None
    """Rounds after these, by the rows and the trials that are over; None asks for no more."""

    def rounds(
        self,
        points: Sequence[Point],
        rows: Rows,
        *,
        over: Collection[str] = (),
        spent: Spent = NOTHING_SPENT,
    ) -> Sequence[Round]:
        """Give the rounds so far and the one that is under way."""
        del spent
        first = Round(repeat=1, points=points, measure=self.sweep.measure)
        if self.following is None:
            return [first]
        return [first, *self.following([first], rows, over)]
