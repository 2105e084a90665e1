"""Candidates for a goal: which points may be recommended, and why others may not."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dtsweep.analysis.launches import NORMAL_95, PER_SAMPLES, has_caution, setting_columns
from dtsweep.analysis.objectives import Objective, read_objectives
from dtsweep.analysis.settings import plain_training_in
from dtsweep.analysis.study import Study
from dtsweep.analysis.where import Condition
from dtsweep.errors import SweepError
from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.verdicts import ConditionVerdict
from dtsweep.results.statuses import UNSOUND
from dtsweep.sweep.goal import TO_LOSS, Goal
from dtsweep.sweep.mode_info import SEMANTICS, UNASKED
from dtsweep.sweep.modes import AS_WRITTEN, CLOSED_LOOP, OPEN_LOOP
from dtsweep.sweep.settings import P99_FROM

if TYPE_CHECKING:
    import pandas as pd


def read_goal(points: pd.DataFrame, goal: Goal) -> Objective:
    """Look the objective of a goal up.

    Raises:
        SweepError: it has none, two, or one that is not a column of numbers; its semantics are
            unknown.
    """
    objectives = [name for name in (goal.minimize, goal.maximize) if name is not None]
    if len(objectives) != 1:
        raise SweepError("a recommendation needs one objective: minimize or maximize one column")
    if unknown := sorted({*goal.allow} - {*SEMANTICS}):
        raise SweepError(
            f"semantics {unknown[0]!r} is unknown; allow some of {', '.join(SEMANTICS[1:])}"
        )
    minimize, maximize = ([name] if name else [] for name in (goal.minimize, goal.maximize))
    return read_objectives(points, minimize=minimize, maximize=maximize)[0]


def with_candidates(
    study: Study, goal: Goal, objective: Objective, condition: Condition
) -> pd.DataFrame:
    """Mark which points of a study are candidates, and why others are not.

    Returns:
        The points with `is_allowed`, by semantics; `is_implausible`, whether their numbers
        contradict each other or count samples twice; `is_unknown`, whether what is asked for was
        not measured; `condition_verdict`, one of `ConditionVerdict`; `is_at_limit`, whether they
        meet the condition only because the zone loosens its limits; `is_met`, whether they meet it
        by that verdict or by their means; `is_candidate`. A point that misses the condition by its
        interval is not a candidate; one that may meet it is.
    """
    points = study.points
    met = condition.holds(points)
    is_known = met.notna() & points[objective.name].notna()
    noisy = _with_launch_noise(points, condition, level=study.level)
    verdicts = condition.verdicts(noisy, zone=study.zone)
    is_meeting = verdicts == ConditionVerdict.MEETS
    is_open = is_meeting | (verdicts == ConditionVerdict.UNDECIDED)
    is_met = is_known & is_open & (is_meeting | met.fillna(value=False).astype("bool"))
    # In a closed loop no request waits, so it promises nothing where they arrive at a rate.
    trials = study.frame
    at_a_rate = trials.loc[trials["sync"] == OPEN_LOOP, "workload"].unique()
    is_beside = (points["sync"] == CLOSED_LOOP) & points["workload"].isin(at_a_rate)
    is_allowed = points["semantics"].isin([*UNASKED, *goal.allow]) & ~is_beside
    is_implausible = has_caution(points, UNSOUND)
    return points.assign(
        is_allowed=is_allowed,
        is_implausible=is_implausible,
        is_unknown=~is_known,
        is_met=is_met,
        condition_verdict=verdicts,
        is_at_limit=is_meeting & (condition.verdicts(noisy) != ConditionVerdict.MEETS),
        is_candidate=is_allowed & ~is_implausible & is_known & is_open,
    )


def _with_launch_noise(points: pd.DataFrame, condition: Condition, *, level: float) -> pd.DataFrame:
    """Widen the intervals of a condition's columns to the level of a look.

    The interval of a single launch says nothing of another launch: the assumed noise between
    launches is added.
    """
    from scipy.special import ndtri

    widening = float(-ndtri(level / 2)) / NORMAL_95
    sigma = (points["interval"] == "launch").map({True: ASSUMED_SIGMA, False: 0.0})
    widened = points.copy()
    for name in condition.columns:
        if f"{name}_low" not in points:
            continue
        noise = NORMAL_95 * sigma * points[name].abs()
        for end, sign in (("low", -1), ("high", 1)):
            half_width = (points[f"{name}_{end}"] - points[name]).abs()
            wide = widening * (half_width**2 + noise**2) ** 0.5
            widened[f"{name}_{end}"] = points[name] + sign * wide
    return widened


def narrowed(points: pd.DataFrame, goal: Goal) -> pd.DataFrame:
    """Narrow the candidates of one model and environment, as `with_candidates` gives them.

    Returns:
        The points with `is_slow`, whether their rate is below the goal's share of the candidates'
        best one; `is_alone`, whether one worker, which exchanges with nobody and trains like plain
        PyTorch, does without exact updates; `is_candidate`, where neither is so. Points with
        `is_alone` stay if there are no others.
    """
    is_candidate = points["is_candidate"]
    rates = points["samples_per_s"]
    is_slow = rates < goal.least_rate * rates[is_candidate].max()
    is_alone = plain_training_in(points) & ~points["semantics"].isin(UNASKED)
    is_kept = is_candidate & ~is_slow
    return points.assign(
        is_slow=is_slow,
        is_alone=is_alone,
        is_candidate=is_kept & ~is_alone if (is_kept & ~is_alone).any() else is_kept,
    )


def unmeasured_of(
    points: pd.DataFrame, objective: Objective, condition: Condition
) -> tuple[str, ...]:
    """Name the given columns that are null in allowed but unknown points.

    Only settings are named for which no other point has a value.
    """
    columns = dict.fromkeys([objective.name, *condition.columns])
    unknown = points[points["is_unknown"] & points["is_allowed"]]
    settings = setting_columns(points)
    lacking = [name for name in columns if unknown[name].isna().any()]
    return tuple(name for name in lacking if name not in settings) or tuple(lacking)


def way_to_measure(names: Collection[str]) -> str:
    """Say how to measure what windows are too short for, to be put behind a sentence.

    Empty if there are none.
    """
    way = f" (step_p99_s needs windows of {P99_FROM} steps: Measure(min_steps={P99_FROM}))"
    if "step_p99_s" not in names:
        return ""
    return way


def why_none(points: pd.DataFrame, objective: Objective, condition: Condition) -> str:
    """Say why no point is a candidate, and what to do; `points` as `with_candidates` gives them."""
    if points.empty:
        return "no trial ended ok, so there is nothing to recommend; the report says why"
    if not points["is_allowed"].any():
        semantics = ",".join(sorted(set(points["semantics"]), key=SEMANTICS.index))
        return f"no point has exact updates; --allow {semantics} takes those there are"
    allowed = points[points["is_allowed"]]
    if allowed[objective.name].isna().all():
        return _why_unknown(allowed, objective)
    unknown, implausible = (int(allowed[name].sum()) for name in ("is_unknown", "is_implausible"))
    parts = []
    requirement = "can be trusted"
    if condition.text:
        requirement = f"meets {condition.text!r}"
        parts.append(f"{len(allowed) - unknown - implausible} fail it")
    if unknown:
        way = way_to_measure(unmeasured_of(points, objective, condition))
        parts.append(f"of {unknown} it is unknown{way}")
    if implausible:
        parts.append(f"{implausible} are implausible")
    return f"none of {len(allowed)} points {requirement}: {', '.join(parts)}"


def _why_unknown(points: pd.DataFrame, objective: Objective) -> str:
    """Say why no point has a value of the objective, and how to get one."""
    reason = f"{objective.name} was not measured on any point"
    if objective.name == "samples_per_s" and (points["sync"] == AS_WRITTEN).all():
        return (
            f"{reason}: the number of samples in a step is not known. Give samples_per_step "
            "(--samples-per-step), or take another objective: --minimize latency_s"
        )
    has_target = points["time_to_loss_s"].notna().any()
    if objective.name in TO_LOSS and points["target_loss"].notna().any() and not has_target:
        return "no training has reached its target; raise longest_s, or take a higher loss"
    is_price = objective.name in (PER_SAMPLES, "usd_per_hour", "cost_usd")
    if is_price or (objective.name == "usd_to_loss" and has_target):
        return f"{objective.name} is unknown: nodes have no price; --prices FILE gives them one"
    if objective.name in TO_LOSS:
        return (
            f"{reason}: run the sweep with --goal time-to-loss --target LOSS, which trains its "
            "points to that loss"
        )
    return f"{reason}, so none can be recommended by it"
