"""Search for the answer: few points by expected gain, then rounds of the contenders."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.plan.policy import Round
from dtsweep.plan.search_pool import (
    SearchPool,
    chances_of,
    charges_in,
    ended_in,
    live_world,
    pool_of,
)
from dtsweep.plan.search_worth import Worth, certificate_of, worth_of
from dtsweep.plan.settle import Settle, is_over, states_of
from dtsweep.plan.trial import Rows
from dtsweep.predict.choice import Charges, Pool, SearchProgress, cost_power, next_points
from dtsweep.predict.first_points import COUNT, first_points
from dtsweep.predict.setups import Numbers
from dtsweep.predict.step_time import StepTimeModel, fit_step_time
from dtsweep.results.certificate import Certificate
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point, World, identity
from dtsweep.sweep.search import Search
from dtsweep.sweep.settings import Sweep

LEAST_GAIN = 0.002
"""Expected gain below which a search ends.

On a frontier a share of its hypervolume, for a goal a share of the best value.
"""

MOST_IN_BATCH = 3
"""Points of a batch, at most: their measurements come too late for each other's choice."""


class _Choice(NamedTuple):
    """Choice of a batch."""

    points: Sequence[Point]
    """Empty where the search is over."""

    certificate: Certificate | None
    """None before a point was measured."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    """State of a search before a choice."""

    pool: SearchPool
    study: Study
    """Of the measured trials."""

    charges: Charges
    live: int | None
    """Number of the live session's world in the charges; None where no session is live."""

    chances: Numbers
    """(n,) probability that a trial ends with a measurement."""

    tried: int
    """Points of which a trial has ended: one that was skipped or refused does not count."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Judged:
    """Points as the model sees them."""

    model: StepTimeModel
    worth: Worth
    progress: SearchProgress
    certificate: Certificate


@dataclass(frozen=True, kw_only=True)
class SearchPolicy:
    """Batches of points by expected gain per accelerator-second, then rounds as `Settle` has them.

    A batch follows from the first launches of the points of the batches before it. So a run that
    goes on after a kill chooses the same points.
    """

    sweep: Sweep
    question: Question
    search: Search

    @cached_property
    def _settle(self) -> Settle:
        """Policy of the rounds that follow the search."""
        return Settle(sweep=self.sweep, question=self.question)

    _choices: dict[frozenset[str], _Choice] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Choices by the attempts that they rest on: a memory that changes no answer."""

    _certificates: dict[frozenset[str], Certificate | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Certificates after the search, by the attempts that they rest on."""

    def rounds(
        self,
        points: Sequence[Point],
        rows: Rows,
        *,
        over: Collection[str] = (),
    ) -> Sequence[Round]:
        """Replay the batches, each by the rows of those before it; then the rounds.

        Raises:
            SweepError: the goal allows the updates of no point, or no trial knows its objective.
        """
        if not points:
            return []
        states = states_of(rows)
        batches: list[Round] = []
        while True:
            choice = self._choice(points, rows, batches)
            if not choice.points:
                break
            batches.append(
                Round(
                    repeat=1,
                    points=choice.points,
                    measure=self._settle.first_measure(),
                    is_search=True,
                    certificate=choice.certificate,
                )
            )
            if not is_over(self.sweep, batches[-1], states, over):
                return batches
        chosen = [point for batch in batches for point in batch.points]
        confirming = self._settle.rounds(chosen, rows, over=over)[1:]
        rounds = [*batches, *confirming]
        if not rounds:
            semantics = sorted({point.semantics for point in points})
            raise SweepError(
                f"all points have updates that the goal does not allow: {', '.join(semantics)}; "
                f"add allow={tuple(semantics)}",
                word="goal",
            )
        rounds[-1] = replace(rounds[-1], certificate=self._renewed(points, rows, rounds))
        return rounds

    def _renewed(
        self, points: Sequence[Point], rows: Rows, rounds: Sequence[Round]
    ) -> Certificate | None:
        """Certificate by all launches of the points so far; None where nothing was measured."""
        chosen = {identity(point) for one in rounds for point in one.points}
        own = [row for row in rows if row["role"] != "canary" and row["point_id"] in chosen]
        key = frozenset(row["attempt_id"] for row in own)
        if key not in self._certificates:
            state = self._state(points, own, chosen, live=None)
            is_measured = len(state.pool.rows) > 0
            self._certificates[key] = self._judged(state).certificate if is_measured else None
        return self._certificates[key]

    def _choice(self, points: Sequence[Point], rows: Rows, batches: Sequence[Round]) -> _Choice:
        """Choose the next batch by the first launches of the points of these batches."""
        chosen = {identity(point) for batch in batches for point in batch.points}
        earlier = [
            row
            for row in rows
            if row["repeat"] == 1 and row["role"] != "canary" and row["point_id"] in chosen
        ]
        key = frozenset([*chosen, *(row["attempt_id"] for row in earlier)])
        if key not in self._choices:
            live = live_world(self.sweep, [batch.points for batch in batches])
            state = self._state(points, earlier, chosen, live=live)
            self._choices[key] = self._next(state, chosen=len(chosen))
        return self._choices[key]

    def _state(
        self, points: Sequence[Point], rows: Rows, chosen: Collection[str], *, live: World | None
    ) -> _State:
        """Take what is known by the trials of the chosen points."""
        study = Study(self._settle.frame(rows, chosen), question=self.question)
        pool = pool_of(self.sweep, points, study.trials)
        measure = self._settle.first_measure()
        charges, live_number = charges_in(self.sweep, pool, rows, measure=measure, live=live)
        return _State(
            pool=pool,
            study=study,
            charges=charges,
            live=live_number,
            chances=chances_of(self.sweep, pool, rows, chosen),
            tried=sum(row["status"] != "infeasible" for row in ended_in(rows).values()),
        )

    def _next(self, state: _State, *, chosen: int) -> _Choice:
        """Choose the next batch, after so many points."""
        count = len(state.pool.points)
        most = min(count, self.search.max_points or count) - chosen
        if not len(state.pool.rows):
            numbers = first_points(
                state.pool.setups,
                state.charges.of(np.full(count, -np.inf)),
                is_open=state.chances > 0,
                count=min(COUNT, most),
                seed=self.sweep.seed,
            )
            return _Choice([state.pool.points[number] for number in numbers], None)
        judged = self._judged(state)
        certificate = judged.certificate
        if certificate.gain < LEAST_GAIN or most <= 0:
            return _Choice([], certificate)
        # Where each trial has a session of its own, none gets cheaper by another one.
        batch = 1 if self.sweep.measure.fresh else MOST_IN_BATCH
        numbers = next_points(
            Pool(setups=state.pool.setups, charges=state.charges, gain_of=judged.worth.gain_of),
            judged.model,
            progress=judged.progress,
            power=cost_power(certificate.gain),
            most=min(batch, most),
        )
        return _Choice([state.pool.points[number] for number in numbers], certificate)

    def _judged(self, state: _State) -> _Judged:
        """Fit the model, and judge the points that were not measured."""
        pool = state.pool
        model = fit_step_time(pool.measured_setups, pool.measured)
        prediction = model.predict(pool.setups)
        worth = worth_of(self.sweep, pool, state.study, prediction)
        measured, places, counts = np.unique(pool.rows, return_inverse=True, return_counts=True)
        progress = SearchProgress(
            measured=measured,
            log_step_s=np.bincount(places, np.log(pool.measured.step_s)) / counts,
            chance=state.chances,
            live=state.live,
        )
        certificate = certificate_of(
            worth,
            progress.estimates(prediction),
            zone=self.question.indifference,
            tried=state.tried,
        )
        return _Judged(model=model, worth=worth, progress=progress, certificate=certificate)
