"""Columns of points as functions of their step times, and the step times that conditions allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.errors import SweepError
from dtsweep.plan.search_pool import SearchPool
from dtsweep.sweep.search import PER_SAMPLE, RATES, TIMES
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.values import column_types

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.study import Study
    from dtsweep.model.setups import Numbers, Prediction

SHIFTS = np.linspace(-5.0, 5.0, 21)
"""Step times at which conditions are asked for, in standard deviations from the predicted one."""

HALVINGS = 8
"""Bisections between the last step time that meets a condition and the next one."""

WAYS = {
    "tokens_per_s": "give the workload `tokens_per_sample`",
    "energy_j_per_sample": "search on devices that report their energy",
    "usd_per_million_samples": "give the prices of the nodes",
}
"""Next steps where an objective is unknown, by its column."""


def known_objective(pool: SearchPool, name: str) -> str:
    """Refuse an objective that no measured trial knows; else give its name.

    Raises:
        SweepError: it names the objective and the next step.
    """
    if pool.trials[name].notna().any():
        return name
    way = WAYS.get(name, "look at the reasons of the trials")
    raise SweepError(
        f"the search has no {name} of any measured trial: {way}, or choose another goal",
        word="goal",
    )


def at_one_second(pool: SearchPool, name: str) -> Numbers:
    """(n,) value of a column at a step time of one second."""
    setups = pool.setups
    if name in RATES:
        return setups.samples_per_step * ratio_to_step(pool, name, power=-1)
    if name in PER_SAMPLE:
        held = setups.nodes if name == "usd_per_million_samples" else setups.workers
        return held / setups.samples_per_step * ratio_to_step(pool, name, held=held)
    return ratio_to_step(pool, name)


def ratio_to_step(
    pool: SearchPool, name: str, *, power: int = 1, held: Numbers | None = None
) -> Numbers:
    """(n,) ratio of a column to what follows from the step time alone.

    The measured one of each trial; of other points the median of those with the same mode.
    """
    log_step = np.log(pool.measured.step_s)
    expected = power * log_step
    samples = np.log(pool.measured_setups.samples_per_step)
    if power < 0:
        expected = expected + samples
    if held is not None:
        expected = expected + np.log(held[pool.rows]) - samples
    values = pool.trials[name].to_numpy("float64")
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values) - expected
    is_known = np.isfinite(logs)
    ratios = np.full(len(pool.points), np.median(logs[is_known]) if is_known.any() else 0.0)
    modes = np.array([point.sync for point in pool.points])
    for mode in np.unique(modes[pool.rows[is_known]]):
        of_mode = is_known & (modes[pool.rows] == mode)
        ratios[modes == mode] = np.median(logs[of_mode])
    ratios[pool.rows[is_known]] = logs[is_known]
    result: Numbers = np.exp(ratios)
    return result


def longest_steps(
    sweep: Sweep, where: str, *, pool: SearchPool, study: Study, prediction: Prediction
) -> Numbers:
    """(n,) logarithm of the longest step time with which a point meets a condition.

    Minus infinity where it meets it with none, infinity where any longer one meets it. What the
    step time says nothing of counts as met, until it was measured.

    Args:
        sweep: whose points they are.
        where: the condition.
        pool: of the points.
        study: of the measured trials.
        prediction: of the step times of all points.
    """
    condition = study.condition(where)
    frame = _frame(sweep, pool, study)
    columns = _columns(pool, frame)

    def is_met_at(shifts: Numbers | float) -> Any:
        step_s = np.exp(prediction.log_step_s + shifts * prediction.error)
        predicted = {name: one * step_s**power for name, (one, power) in columns.items()}
        is_met = condition.holds(frame.assign(**predicted))
        return is_met.fillna(value=True).to_numpy("bool")

    last = np.full(len(pool.points), -np.inf)
    for shift in SHIFTS:
        last[is_met_at(shift)] = shift
    is_inside = np.isfinite(last) & (last < SHIFTS[-1])
    low = np.where(is_inside, last, SHIFTS[0])
    high = low + SHIFTS[1] - SHIFTS[0]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_met = is_met_at(middle)
        low, high = np.where(is_met, middle, low), np.where(is_met, high, middle)
    longest = np.where(last == SHIFTS[-1], np.inf, -np.inf)
    longest[is_inside] = (prediction.log_step_s + (low + high) / 2 * prediction.error)[is_inside]
    meets = condition.holds(study.points).fillna(value=True)
    for name, is_in in zip(study.points["point_id"], meets, strict=True):
        longest[pool.names[name]] = np.inf if is_in else -np.inf
    return longest


def _frame(sweep: Sweep, pool: SearchPool, study: Study) -> pd.DataFrame:
    """Settings of points as rows of `over_launches` have them, with its other columns null."""
    from dtsweep.metrics.rows import point_row
    from dtsweep.results.schema import TRIALS
    from dtsweep.results.store import trials_of_rows

    empty: dict[str, Any] = {column.name: None for column in TRIALS}
    rows = [
        {**empty, **point_row(sweep, point), "trial_id": name, "attempt_id": name}
        for point, name in zip(pool.points, pool.names, strict=True)
    ]
    frame = trials_of_rows(rows, workload_types=column_types(sweep.workload))
    return frame.reindex(columns=study.points.columns)


def _columns(pool: SearchPool, frame: pd.DataFrame) -> dict[str, tuple[Numbers, float]]:
    """Columns of a frame that follow from the step times: value at one second, and power.

    None that was not measured.
    """
    columns = {}
    for name in pool.trials.columns[pool.trials.notna().any()].intersection(frame.columns):
        if name in RATES:
            columns[name] = (at_one_second(pool, name), -1.0)
        elif name in PER_SAMPLE or name in TIMES:
            columns[name] = (at_one_second(pool, name), 1.0)
    return columns
