"""Search for the highest rate of requests that meets a condition, then rounds of the contenders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dtsweep.plan.policy import Round
from dtsweep.plan.settle import Settle, is_over, states_of
from dtsweep.plan.trial import Rows
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.settings import Sweep


def asks_for_rate(sweep: Sweep) -> bool:
    """True if a sweep of inference asks for the highest rate that meets a condition."""
    goal = sweep.question and sweep.question.goal
    is_asked = goal and goal.maximize in ("samples_per_s", "rate") and goal.where
    return bool(is_asked) and "rate" in sweep.axes


@dataclass(frozen=True, kw_only=True)
class RateSearch:
    """Bisects the rates of each setting by their first launches, then rounds as `Settle` has them.

    A higher rate is taken not to meet a condition that a lower one misses.
    """

    sweep: Sweep
    question: Question

    @cached_property
    def _settle(self) -> Settle:
        """Policy of the rounds that follow the search."""
        return Settle(sweep=self.sweep, question=self.question)

    _met: dict[frozenset[str], Mapping[str, bool]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Points that meet the condition, by points and their attempts: it changes no answer."""

    def rounds(
        self, points: Sequence[Point], rows: Rows, *, over: Collection[str] = ()
    ) -> Sequence[Round]:
        """Replay the batches, each by the rows of those before it; then the rounds."""
        states = states_of(rows)
        batches: list[Round] = []
        chosen: list[Point] = []
        while batch := self._next(points, rows, chosen):
            measure = self._settle.first_measure()
            batches.append(Round(repeat=1, points=batch, measure=measure, is_search=True))
            chosen += batch
            if not is_over(self.sweep, batches[-1], states, over):
                return batches
        return [*batches, *self._settle.rounds(chosen, rows, over=over)[1:]]

    def _next(self, points: Sequence[Point], rows: Rows, chosen: Sequence[Point]) -> list[Point]:
        """Of each setting the rate between the highest that is met and the lowest that is not.

        In the first batch also the points without a rate.
        """
        families: dict[Any, list[Point]] = {}
        for point in points:
            if point.rate is not None:
                others = {name: value for name, value in vars(point).items() if name != "rate"}
                families.setdefault(repr(others), []).append(point)
        batch = [point for point in points if point.rate is None and not chosen]
        is_met = self._is_met(rows, chosen)
        for family in families.values():
            family.sort(key=lambda point: point.rate or 0.0)
            known = [is_met.get(identity(point)) for point in family]
            missed = known.index(False) if False in known else len(family)
            met = max((place for place in range(missed) if known[place]), default=-1)
            if missed - met > 1:
                batch.append(family[(met + missed) // 2])
        return batch

    def _is_met(self, rows: Rows, chosen: Sequence[Point]) -> Mapping[str, bool]:
        """Find out which chosen points meet the condition at first; failed ones don't."""
        if not chosen:
            return {}
        names = {identity(point) for point in chosen}
        first = [row for row in rows if row["repeat"] == 1 and row["point_id"] in names]
        key = frozenset([*names, *(row["attempt_id"] for row in first)])
        if key not in self._met:
            found = {}
            if any(row["status"] == "ok" for row in first):
                found = self._measured(first, names)
            self._met[key] = dict.fromkeys(names, False) | found
        return self._met[key]

    def _measured(self, first: Rows, names: Collection[str]) -> dict[str, bool]:
        """Find out which measured points meet it; one without what it asks for does not."""
        # Its imports take longer than a plan without results.
        from dtsweep.analysis.study import Study
        from dtsweep.analysis.where import parse_condition

        measured = Study(self._settle.frame(first, names), question=self.question).points
        assert self.question.goal is not None, "asks_for_rate has seen it"
        holds = parse_condition(self.question.goal.where, measured).holds(measured)
        return dict(zip(measured["point_id"], holds.fillna(value=False), strict=True))
