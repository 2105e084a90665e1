"""Rounds ahead: the range of what follows the planned trials, by simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dtsweep.errors import SweepError
from dtsweep.plan.estimate import duration_of_rounds
from dtsweep.plan.plan import Plan, RoundsRange
from dtsweep.plan.settle import FIRST_HALF_WIDTH, Settle
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import identity
from dtsweep.sweep.settings import Sweep

if TYPE_CHECKING:
    from dtsweep.analysis.study import Study
    from dtsweep.inference.rehearsal import Windows

ENDS = (0.05, 0.95)
"""Quantiles of simulated runs that the range spans."""

SEARCHED = (10, 60)
"""Points that a search measures, at least and at most, as far as searches so far show."""

BATCH = 3
"""Points of a session of a search, about."""


def with_rounds_ahead(sweep: Sweep, plan: Plan) -> Plan:
    """Add to a plan what the rounds after its trials will take, as soon as rows show it.

    A goal is simulated from the launches so far. On a frontier the open points get one more launch
    at least, and all that are left at most. Of a search only its further points are expected.
    """
    if sweep.search is not None and plan.last_round is not None and plan.last_round.is_search:
        return replace(plan, rounds=_search_ahead(sweep, plan))
    measured = [row for row in plan.rows if row["status"] == "ok" and row["role"] != "canary"]
    if plan.question is None or not measured or plan.last_round is None:
        return plan
    points = {identity(trial.point) for trial in (*plan.to_run, *plan.done)}
    try:
        runs = _trials_and_rounds(sweep, plan, plan.question, points)
    except SweepError:
        # Nothing meets the goal so far.
        return plan
    if not runs:
        # Objectives that are set, or that are compared by difference, are not simulated.
        return plan
    # The trials of the plan are the first ones of these.
    further = sorted((max(0, trials - len(plan.to_run)), rounds) for trials, rounds in runs)
    low, high = (further[int(end * (len(further) - 1))] for end in ENDS)
    low_s, high_s = (
        duration_of_rounds(sweep, plan.rows, trials=trials, rounds=rounds if trials else 0)
        for trials, rounds in (low, high)
    )
    return replace(plan, rounds=RoundsRange(low[0], high[0], low_s, high_s))


def _search_ahead(sweep: Sweep, plan: Plan) -> RoundsRange:
    """Range of the points that a search will measure after those that are planned."""
    ends, most = SEARCHED, plan.points
    search = sweep.search
    if search is not None and search.max_points is not None:
        most = min(most, search.max_points)
    if search is not None and search.searcher is not None:
        ends = (most, most)
    planned = len(plan.to_run) + len(plan.done)
    low, high = (max(0, min(end, most) - planned) for end in ends)
    low_s, high_s = (
        duration_of_rounds(sweep, plan.rows, trials=trials, rounds=rounds)
        for trials, rounds in ((low, 0), (high, math.ceil(high / BATCH)))
    )
    return RoundsRange(low, high, low_s, high_s)


def _trials_and_rounds(
    sweep: Sweep, plan: Plan, question: Question, points: set[str]
) -> list[tuple[int, int]]:
    """Trials and rounds from now on, of simulated runs; the trials of the plan are among them."""
    from dtsweep.analysis.decision import decide
    from dtsweep.analysis.forecast import forecast
    from dtsweep.analysis.study import Study

    frame = Settle(sweep=sweep, question=question).frame(plan.rows, points)
    study = Study(frame, question=question)
    if question.goal is None:
        count = len(decide(study, None).open_points)
        left = question.max_launches - (plan.last_round.repeat if plan.last_round else 1)
        return [(len(plan.to_run) + count, 1), (len(plan.to_run) + left * count, left)]
    runs = forecast(
        study, question.goal, _windows(sweep, study), max_launches=question.max_launches
    )
    return [(sum(run.trials), len(run.trials)) for run in runs]


def _windows(sweep: Sweep, study: Study) -> Windows:
    """Windows of rounds like the present ones."""
    from dtsweep.inference.rehearsal import Windows
    from dtsweep.inference.windows import NORMAL_95

    trials = study.trials
    window_s = trials["window_s"].astype("float64")
    relative = trials["samples_per_s_error"] / trials["samples_per_s"]
    half_width = sweep.measure.half_width
    if half_width is None:
        half_width = NORMAL_95 * float(relative.median())
    rest_s = (trials["trial_s"] - window_s).astype("float64").median()
    return Windows(
        first_half_width=max(half_width, FIRST_HALF_WIDTH),
        half_width=half_width,
        second_s=float((relative * window_s**0.5).median()),
        longest_s=sweep.measure.max_seconds,
        launch_s=max(0.1, float(rest_s)),
    )
