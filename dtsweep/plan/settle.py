"""Settling a question: rounds of launches of the points that are still contenders."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dtsweep.plan.policy import Round
from dtsweep.plan.trial import Rows
from dtsweep.results.current_attempt import current_attempts
from dtsweep.results.statuses import FINAL
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.settings import LEAST_HALF_WIDTH, Measure, Sweep
from dtsweep.sweep.task import trial_name
from dtsweep.sweep.values import column_types

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.decision import Decision

_FIRST_HALF_WIDTH = 0.05
"""Target half-width of the windows of the first round, unless a wider one is given."""

_FIRST_SHARE = 0.5
"""Least length of a window of the first round, as a share of `Measure.min_seconds`."""

_FIRST_LONGEST = 4.0
"""Longest window of the first round, in `Measure.min_seconds`, where turns follow.

On a busy machine it has not the precision that is asked for, and turns find what is near the best.
Half of it leaves more points to the turns than it saves (docs/log/2026-11-29.md).
"""

_LEAST_SEEDS = 3
"""Launches of a point that trains to a target: how far seeds differ is not known before."""

_FAILURES = 2
"""Launches of a point that have failed, from which on it is not launched again."""

_STEPS_FACTOR = 1.5
"""Least steps for the interval of a quantile, times this: correlated steps count less."""


_OF_WINDOWS = re.compile(
    "step_p9|step_max|energy|power|share|mfu|hfu|idle|bytes_sent|compression_error|staleness|loss"
)
"""Columns that turns don't measure, by parts of their names; memory is known without them."""


@dataclass(frozen=True, kw_only=True)
class Settle:
    """One launch of every point, then rounds of the contenders."""

    sweep: Sweep
    question: Question
    _decisions: dict[frozenset[str], Decision] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Decisions by the attempts that they rest on: a memory that changes no answer."""

    def rounds(
        self,
        points: Sequence[Point],
        rows: Rows,
        *,
        over: Collection[str] = (),
    ) -> Sequence[Round]:
        """Replay the rounds by the rows of the rounds before each of them.

        So a round goes on as it was begun, whatever its own rows show by then.
        """
        if not points:
            return []
        rounds = [Round(repeat=1, points=points, measure=self.first_measure())]
        states = states_of(rows)
        names = {identity(point): point for point in points}
        furthest = max((row["repeat"] for row in rows if row["point_id"] in names), default=1)
        while is_over(self.sweep, rounds[-1], states, over):
            last = rounds[-1].repeat
            decision = self._decide(rows, names, last=last)
            if not decision.open_points and furthest > last and not self.sweep.training_goal:
                # A grid, or another question, has launched more: all of it counts.
                last = furthest
                decision = self._decide(rows, names, last=last)
            open_points = decision.open_points
            if self.sweep.training_goal and last < _LEAST_SEEDS:
                open_points = _reached([row for row in rows if row["repeat"] <= last], names)
            launched_again = self._launched_again(rows, open_points, names, last=last)
            contenders = [point for name, point in names.items() if name in launched_again]
            if not contenders or last >= self.question.max_launches:
                break
            in_turn = self._takes_turns and len(contenders) > 1
            measure = self._measure(in_turn=in_turn)
            rounds.append(
                Round(
                    repeat=last + 1,
                    points=contenders,
                    measure=measure,
                    in_turn=in_turn,
                    rounds_left=decision.rounds or None,
                )
            )
        return rounds

    def _launched_again(
        self, rows: Rows, open_points: Collection[str], names: Collection[str], *, last: int
    ) -> set[str]:
        """Open points, and those that have only timed out: a busy machine may be the reason.

        Not those that have failed so often that another launch is not worth its time.
        """
        earlier = [
            row
            for row in rows
            # A canary may be one of the points.
            if row["repeat"] <= last and row["point_id"] in names and row["role"] != "canary"
        ]
        current = (earlier[index] for index in current_attempts(earlier).values())
        ends = defaultdict[str, list[str]](list)
        for row in current:
            ends[row["point_id"]].append(row["status"])
        again = set(open_points)
        for point, statuses in ends.items():
            if set(statuses) == {"timeout"}:
                again.add(point)
            # A timeout says little of a point that was measured in other launches.
            failures = [status for status in statuses if status not in ("ok", "timeout")]
            if "ok" not in statuses:
                failures = statuses
            if len(failures) >= _FAILURES:
                again.discard(point)
        return again

    def _decide(self, rows: Rows, names: Collection[str], *, last: int) -> Decision:
        """Decide by the rounds up to the last one of these."""
        # Its imports take longer than a plan without results.
        from dtsweep.analysis.decision import decide
        from dtsweep.analysis.study import Study

        earlier = [row for row in rows if row["repeat"] <= last]
        attempts = frozenset(row["attempt_id"] for row in earlier)
        if attempts not in self._decisions:
            study = Study(self.frame(earlier, names), question=self.question)
            self._decisions[attempts] = decide(study, self.question.goal)
        return self._decisions[attempts]

    def frame(self, rows: Rows, names: Collection[str]) -> pd.DataFrame:
        """Rows of the sweep's own points, and the canaries."""
        from dtsweep.results.frames import trials_of_rows

        kept = [row for row in rows if row["point_id"] in names or row["role"] == "canary"]
        types = column_types(self.sweep.workload)
        own = {"workload_digest", *(f"workload_{name}" for name in types)}
        # Imported rows of the same results have settings of their own, which are null in these.
        others = {name for row in kept[:1] for name in row if name.startswith("workload_")} - own
        if others:
            kept = [
                {name: value for name, value in row.items() if name not in others} for row in kept
            ]
        return trials_of_rows(kept, workload_types=types)

    @property
    def _takes_turns(self) -> bool:
        """True if turns measure what is asked for."""
        measure, goal = self.sweep.measure, self.question.goal
        if not measure.turns or measure.fresh or measure.energy or self.sweep.training_goal:
            return False
        return goal is None or _OF_WINDOWS.search(goal.columns_text) is None

    def first_measure(self) -> Measure:
        """Settings of the first round: short windows, which show what is far from the best."""
        measure = self._with_least_steps(self.sweep.measure)
        half_width = measure.half_width
        if half_width is not None:
            half_width = max(half_width, _FIRST_HALF_WIDTH)
        exchange = measure.exchange
        if exchange == "precise":
            exchange = "quick"
        max_seconds = measure.max_seconds
        if self._takes_turns and measure.min_seconds > 0:
            max_seconds = min(max_seconds, _FIRST_LONGEST * measure.min_seconds)
        return replace(
            measure,
            half_width=half_width,
            min_seconds=_FIRST_SHARE * measure.min_seconds,
            max_seconds=max_seconds,
            exchange=exchange,
        )

    def _measure(self, *, in_turn: bool) -> Measure:
        """Settings of a later round: turns until half of the indifference zone is known."""
        measure = self._with_least_steps(self.sweep.measure)
        if measure.half_width is None or not in_turn:
            return measure
        half_of_zone = max(LEAST_HALF_WIDTH, self.question.indifference / 2)
        return replace(measure, half_width=min(measure.half_width, half_of_zone))

    def _with_least_steps(self, measure: Measure) -> Measure:
        """Settings whose windows give an interval of each quantile that the goal asks for."""
        goal = self.question.goal
        if goal is None:
            return measure
        quantiles = re.findall(r"\bstep_p\d+_s\b", goal.columns_text)
        if not quantiles:
            return measure
        from dtsweep.metrics.summary import least_steps

        least = math.ceil(_STEPS_FACTOR * least_steps(quantiles))
        if least <= measure.min_steps:
            return measure
        return replace(measure, min_steps=least, max_steps=max(least, measure.max_steps))


def states_of(rows: Rows) -> dict[str, str]:
    """Status of each trial."""
    # An interrupted `--rerun all` leaves a cancelled attempt after an `ok` one, which counts.
    current = (rows[index] for index in current_attempts(rows).values())
    return {row["trial_id"]: row["status"] for row in current}


def is_over(sweep: Sweep, last: Round, states: Mapping[str, str], over: Collection[str]) -> bool:
    """True if every trial of a round has its final result, or is not measured again."""
    names = (trial_name(sweep, point, repeat=last.repeat) for point in last.points)
    return all(name in over or states.get(name) in FINAL for name in names)


def _reached(rows: Rows, names: Collection[str]) -> frozenset[str]:
    """Points, among these, whose trainings have reached the target in each launch so far."""
    measured = [row for row in rows if row["status"] == "ok" and row["point_id"] in names]
    censored = {row["point_id"] for row in measured if row["is_censored"]}
    trained = (row["point_id"] for row in measured if row["trained_samples"])
    return frozenset(trained) - censored
