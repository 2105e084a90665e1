"""Answer of a recommendation in remarks: what to take, the evidence, and the next step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.verdicts import Answer, ConditionVerdict
from dtsweep.report.labels import BATCH_SHAPE, argument_columns, trial_label, trial_labels
from dtsweep.report.next_step import run_that_decides
from dtsweep.report.remarks import Remark, remark
from dtsweep.results.statuses import ABOVE_LINEAR
from dtsweep.text import in_percent, percent

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.recommend import Recommendation

_IN_SHORT = {
    Answer.BEST: "best",
    Answer.EQUAL: "equal within {zone}",
    Answer.UNDECIDED: "undecided",
    Answer.SINGLE_LAUNCH: "one launch each",
    Answer.ONLY_CANDIDATE: "the only candidate",
}

_GO_ON = "run the sweep again, it goes on"

_LARGEST_GAIN = 10.0
"""Largest upper limit of a gain that is written, as a share; a greater one says nothing."""

_NOISY_DRIFT = 0.1
"""Drift of a machine, as a share, from which on a quieter machine is the first next step."""

_LARGEST_ZONE = 0.99
"""Largest indifference zone that is proposed, as a share; `Question` refuses 1 and more."""


def in_short(recommendation: Recommendation) -> str:
    """Name the answer in a few words, for a table."""
    return _IN_SHORT[recommendation.answer].format(zone=percent(recommendation.zone))


def goal_in_words(recommendation: Recommendation) -> str:
    """Name the goal of a recommendation: "the highest samples_per_s where workers<=8"."""
    goal = recommendation.goal
    objective = recommendation.objective
    words = f"the {'highest' if objective.maximize else 'lowest'} {objective.name}"
    if recommendation.has_other_semantics:
        words += f" of {' and '.join(('exact', *goal.allow))} updates"
    if goal.least_rate:
        words += f", with at least {in_percent(goal.least_rate)} of the best samples_per_s"
    if goal.where:
        words += f" where {goal.where}"
    return words


def headline(recommendation: Recommendation, varying: Sequence[str], *, name: str) -> list[Remark]:
    """Say what to take and for what, or that it is undecided, and which points have no number."""
    code = recommendation.answer.value
    if recommendation.objective.is_exact and recommendation.answer is Answer.EQUAL:
        code = "same_value"
    lacking = len(recommendation.not_measured) + recommendation.not_begun
    if recommendation.answer is Answer.ONLY_CANDIDATE:
        varying = [*varying, *BATCH_SHAPE, *argument_columns(list(recommendation.point.index))]
        if lacking and recommendation.measured == 1:
            code = "no_answer"
    first = remark(
        code,
        name=f"{name}: " if name else "",
        point=trial_label(recommendation.point, list(dict.fromkeys(varying))),
        asked=lacking + 1,
        candidates=len(recommendation.others) + 1,
        goal=goal_in_words(recommendation),
        zone=recommendation.zone,
        launches=_launches(recommendation),
    )
    remarks = [first, *_not_measured(recommendation, varying)]
    if ABOVE_LINEAR in recommendation.point["caution"].split():
        remarks.append(remark("answer_above_linear"))
    return remarks


def _not_measured(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Name the asked points that have no number, with the reason."""
    failed, remarks = recommendation.not_measured, []
    if len(failed):
        names = [
            name
            for name in (*BATCH_SHAPE, *argument_columns(list(failed.columns)))
            if set(failed[name].map(str)) != {str(recommendation.point.get(name))}
        ]
        differing = list(dict.fromkeys([*varying, *names]))
        points = [
            f"{trial_label(row, differing)} ({row['status']})" for _, row in failed.iterrows()
        ]
        remarks.append(remark("not_measured", count=len(failed), points=points))
    if recommendation.not_begun:
        remarks.append(remark("not_begun", count=recommendation.not_begun))
    return remarks


def evidence(recommendation: Recommendation, varying: Sequence[str], *, named: int) -> list[Remark]:
    """Say what launches show, and what to do where it is not decided.

    Args:
        recommendation: of one model and environment.
        varying: setting columns of points that have more than one value.
        named: number of points to name, of several.
    """
    match recommendation.answer:
        case Answer.BEST:
            remarks = [_on_best(recommendation)]
        case Answer.EQUAL:
            remarks = _on_equal(recommendation, varying)
        case Answer.UNDECIDED:
            remarks = _on_undecided(recommendation, varying, named=named)
        case Answer.SINGLE_LAUNCH:
            remarks = [_on_single_launches(recommendation)]
        case _:
            remarks = _on_only_candidate(recommendation)
    return [*remarks, *_what_next(recommendation)]


def _on_only_candidate(recommendation: Recommendation) -> list[Remark]:
    """Say why there is no other candidate."""
    if recommendation.not_begun:
        return []
    if len(recommendation.not_measured):
        return [remark("others_failed")]
    if recommendation.unknown:
        return [remark("others_unknown")]
    return [remark("no_other")]


def _launches(recommendation: Recommendation) -> int:
    """Launches of the recommended point and of those that may be better, the most."""
    contenders = recommendation.contenders["launches"]
    return int(max([recommendation.point["launches"], *contenders]))


def _on_best(recommendation: Recommendation) -> Remark:
    """Say by how much every other point is worse, at least."""
    objective = recommendation.objective
    if objective.is_exact:
        return remark("others_lower" if objective.maximize else "others_higher")
    # An untested pair is compared with an assumed noise, which gives no limit.
    lead = float(_least_leads(recommendation).min(skipna=False))
    if math.isnan(lead):
        return remark("better_assumed", sigma=ASSUMED_SIGMA)
    least = _gain(lead, recommendation, is_lower_limit=True)
    if not least:
        return remark("better", confidence=recommendation.confidence)
    return remark("better_by", least=least, lead=lead, confidence=recommendation.confidence)


def _least_leads(recommendation: Recommendation) -> pd.Series[float]:
    """Lower limit of how much better the point is than each other one, as `possible_gain`."""
    objective, rivals = recommendation.objective, recommendation.others
    low, high = (rivals[name].astype("float64") for name in ("ratio_low", "ratio_high"))
    if objective.is_relative:
        return (low if objective.maximize else 1 / high) - 1
    return low if objective.maximize else -high


def _on_equal(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Say how much better others may be, why this one of equal points, and what is open."""
    rivals = recommendation.others
    equal = rivals[rivals["is_equal"]]
    if recommendation.objective.is_exact:
        return [remark("others_equal", count=len(equal))]
    gain = float(rivals["possible_gain"].max())
    confidence = recommendation.confidence
    most = _gain(gain, recommendation)
    remarks = [remark("none_better", confidence=confidence)]
    if most:
        remarks = [remark("others_at_most", most=most, gain=gain, confidence=confidence)]
    if len(equal):
        points = trial_labels(equal, varying)
        remarks.append(
            remark("equal_points", points=points, why=_why_this_one(recommendation.point, equal))
        )
    if not recommendation.is_decided:
        points = trial_labels(_cheaper(recommendation), varying) or ["a point"]
        remarks.append(remark("cheaper_open", points=points[:1]))
    return remarks


def _why_this_one(point: pd.Series[Any], equal: pd.DataFrame) -> str:
    """Say why a point is taken of equal ones: by workers, then by memory, then by its mean."""
    as_few = equal[equal["workers"] == point["workers"]]
    reasons = []
    if len(as_few) < len(equal):
        reasons.append("fewest workers")
    if len(as_few) and (as_few["memory_peak_bytes"] > point["memory_peak_bytes"]).all():
        reasons.append("least memory")
    elif len(as_few):
        reasons.append("best mean")
    return ", then the ".join(reasons)


def _cheaper(recommendation: Recommendation) -> pd.DataFrame:
    """Select the points with fewer workers that may be equal, too."""
    contenders = recommendation.contenders
    has_fewer = contenders["workers"] < recommendation.point["workers"]
    cheaper: pd.DataFrame = contenders[has_fewer & ~contenders["is_equal"]]
    return cheaper


def _on_undecided(
    recommendation: Recommendation, varying: Sequence[str], *, named: int
) -> list[Remark]:
    """Name the points that may be better, and what limits the answer."""
    remarks = []
    if recommendation.point["condition_verdict"] != ConditionVerdict.MEETS:
        remarks.append(remark("condition_open"))
    contenders = recommendation.contenders.sort_values(
        "possible_gain", ascending=False, kind="stable"
    )
    better = contenders[contenders["possible_gain"] > 0]
    rows = [row for _, row in better.head(named).iterrows()]
    remarks += [_may_be_better(row, recommendation, varying) for row in rows]
    if others := trial_labels(better.iloc[named:], varying):
        remarks.append(remark("others_may_be_better", points=others))
    if not recommendation.is_futile:
        remarks += _limit(recommendation)
    return remarks


def _limit(recommendation: Recommendation) -> list[Remark]:
    """Say whether launches or windows limit the answer; empty if nothing shows it."""
    variances = recommendation.variances
    if variances is None:
        return []
    if variances.is_by_launches:
        return [remark("launches_limit")]
    between, within = (variance**0.5 for variance in (variances.between, variances.within))
    remarks = [remark("windows_limit", window_s=variances.window_s, within=within, between=between)]
    # Windows that are mostly imprecise ended before `half_width`: `longer_limit` names the setting.
    if not recommendation.noise.is_mostly_imprecise:
        remarks.append(remark("longer_windows"))
    return remarks


def _may_be_better(
    row: pd.Series[Any], recommendation: Recommendation, varying: Sequence[str]
) -> Remark:
    condition = ""
    if row["condition_verdict"] != ConditionVerdict.MEETS:
        condition = ", if it meets the condition"
    code, gain = "may_be_better", float(row["possible_gain"])
    if recommendation.objective.is_relative and gain > _LARGEST_GAIN:
        code = "may_be_better_loud"
    return remark(
        code,
        point=trial_label(row, varying),
        gain=_gain(gain, recommendation),
        possible_gain=gain,
        condition=condition,
    )


def _on_single_launches(recommendation: Recommendation) -> Remark:
    """Say that nothing is decided, and how many points are near."""
    near = len(recommendation.contenders)
    if near:
        return remark("one_launch_open", count=near, sigma=ASSUMED_SIGMA)
    return remark("one_launch_best", sigma=ASSUMED_SIGMA)


def _what_next(recommendation: Recommendation) -> list[Remark]:
    """Say what would decide, less noise first; empty where it is decided."""
    contenders = recommendation.contenders
    match recommendation.answer:
        case Answer.UNDECIDED:
            open_points = contenders[contenders["possible_gain"] > 0]
        case Answer.EQUAL if (
            not recommendation.is_decided and not recommendation.objective.is_exact
        ):
            return _what_decides(recommendation, _cheaper(recommendation))
        case Answer.SINGLE_LAUNCH:
            return [*_quieter(recommendation), _next_step(recommendation)]
        case Answer.ONLY_CANDIDATE if recommendation.not_begun:
            return [remark("run", run=_GO_ON)]
        case _:
            return []
    step = _what_decides(recommendation, open_points)
    if recommendation.is_futile:
        # It names a quieter machine itself.
        return step
    return [*_quieter(recommendation), *step]


def _what_decides(recommendation: Recommendation, open_points: pd.DataFrame) -> list[Remark]:
    """Say how many more launches would decide about some points, and how to get them."""
    rounds = recommendation.rounds_to_decide
    most = float(recommendation.contenders["possible_gain"].max())
    remarks = []
    if recommendation.is_futile:
        remarks.append(_futile(recommendation))
        is_wider = recommendation.zone < most <= _LARGEST_ZONE
    elif rounds is None and len(open_points):
        remarks.append(remark("over_20_launches"))
        is_wider = most <= _LARGEST_ZONE
    else:
        if rounds:
            remarks.append(remark("more_launches", count=rounds))
        return [*remarks, _next_step(recommendation, more_launches=rounds or None)]
    if is_wider and recommendation.objective.is_relative:
        remarks.append(remark("wider_zone", zone=f"{math.ceil(most * 100)}%"))
    return remarks


def _futile(recommendation: Recommendation) -> Remark:
    """Say why launches were not gone on with, and what it would take."""
    launches, sigma = "over 20", "too much"
    if recommendation.launch_sigma is not None:
        sigma = percent(recommendation.launch_sigma)
    if recommendation.rounds_to_decide is not None:
        launches = f"about {recommendation.rounds_to_decide}"
    return remark("futile", zone=recommendation.zone, sigma=sigma, launches=launches)


def _quieter(recommendation: Recommendation) -> list[Remark]:
    """Name what lowers the noise, where it is large; empty where it is not."""
    noise, variances = recommendation.noise, recommendation.variances
    remarks = []
    if noise.drift > _NOISY_DRIFT:
        remarks.append(remark("quieter", drift=noise.drift))
    is_by_launches = variances is not None and variances.is_by_launches
    if noise.is_mostly_imprecise and not is_by_launches:
        remarks.append(
            remark(
                "longer_limit", setting=noise.limit, imprecise=noise.imprecise, trials=noise.trials
            )
        )
    return remarks


def _next_step(recommendation: Recommendation, *, more_launches: int | None = None) -> Remark:
    run = run_that_decides(
        recommendation.goal,
        recommendation.question,
        harness=recommendation.point["harness"],
        launches=_launches(recommendation),
        more_launches=more_launches,
    )
    return remark("run", run=run)


def _gain(gain: float, recommendation: Recommendation, *, is_lower_limit: bool = False) -> str:
    """Write how much better a point is; empty if that is not above 0."""
    if gain <= 0:
        return ""
    if not recommendation.objective.is_relative:
        return f"{gain:.3g} {recommendation.objective.name}"
    words = percent(gain, is_lower_limit=is_lower_limit)
    return words if words != "0 %" else ""
