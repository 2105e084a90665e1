"""Policies: what to measure next, as a function of the rows so far."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from dtsweep.plan.trial import Rows
from dtsweep.results.certificate import Certificate
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Measure, Sweep


@dataclass(frozen=True, kw_only=True)
class Round:
    """Points that get one more launch, all in the same sessions."""

    repeat: int
    """Number of the round: the repeat of its trials, from 1."""
    points: Sequence[Point]
    measure: Measure
    """Settings of its windows."""
    in_turn: bool = False
    """True if the points of a session are measured in turn, where they can be."""
    is_search: bool = False
    """True if it is a batch of a search, not a round of contenders or of all points."""
    rounds_left: float | None = None
    """Rounds that decide, this one among them, as `Recommendation.rounds_to_decide`."""
    certificate: Certificate | None = None
    """Evidence for the points that a search has not measured before this round."""


class Policy(Protocol):
    """Says what to measure next. It has no state: the rows are its state.

    So a run that goes on after a kill asks for the same trials as one that was not killed.
    """

    def rounds(
        self,
        points: Sequence[Point],
        rows: Rows,
        *,
        over: Collection[str] = (),
    ) -> Sequence[Round]:
        """Rounds from the first one to the one that is under way, in order.

        Args:
            points: all of the sweep that can be measured.
            rows: all attempts so far, with all columns of `trials`, the oldest first.
            over: trials (`trial_id`) that this run won't measure again, whatever their status is.

        Returns:
            Rounds with all their trials, done ones too. Where all of them are done, the question
            is decided, or the policy gives up.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class WholeGrid:
    """Every point as often as `Measure.repeats` says: all rounds at once."""

    sweep: Sweep

    def rounds(
        self,
        points: Sequence[Point],
        rows: Rows,
        *,
        over: Collection[str] = (),
    ) -> Sequence[Round]:
        """Give all repeats of all points."""
        del rows, over  # a grid is the same whatever was measured
        measure = self.sweep.measure
        repeats = range(1, (measure.repeats or 1) + 1)
        return [Round(repeat=repeat, points=points, measure=measure) for repeat in repeats]
