"""Answer of a recommendation in words: what to take, the evidence, and the next step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.verdicts import Answer, ConditionVerdict
from dtsweep.report.labels import BATCH_SHAPE, argument_columns, trial_label
from dtsweep.report.next_step import run_that_decides
from dtsweep.text import count_of, in_percent, percent, percent_up

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

_HEADLINES = {
    Answer.BEST: "Take {label}: the best of {candidates} for {goal}.",
    Answer.EQUAL: "Take {label}: equal within {zone} to the best of {candidates} for {goal}.",
    Answer.UNDECIDED: "Undecided after {launches}: of {candidates}, {label} leads for {goal}.",
    Answer.SINGLE_LAUNCH: "Best of one launch each: {label}, of {candidates} for {goal}.",
    Answer.ONLY_CANDIDATE: "Take {label}: the only candidate for {goal}.",
}

_GO_ON = "Next: run the sweep again, it goes on."

_NO_ANSWER = "No answer yet: 1 of {asked} planned points has a number, {label}, for {goal}."
"""Headline where several points were asked for, and one was measured."""

_SAME_VALUE = "Take {label}: one of the best of {candidates} for {goal}."
"""Headline where points have the same setting."""


_LARGEST_GAIN = 10.0
"""Largest upper limit of a gain that is written, as a share; a greater one says nothing."""

_MOST_NAMED = 3
"""Largest number of further points that are all named."""

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
    share = ""
    if goal.least_rate:
        share = f", with at least {in_percent(goal.least_rate)} of the best samples_per_s"
    return f"{words}{share}{f' where {goal.where}' if goal.where else ''}"


def headline(recommendation: Recommendation, varying: Sequence[str]) -> str:
    """Say what to take and for what, or that it is undecided, in one sentence."""
    template = _HEADLINES[recommendation.answer]
    if recommendation.objective.is_exact and recommendation.answer is Answer.EQUAL:
        template = _SAME_VALUE
    lacking = len(recommendation.not_measured) + recommendation.not_begun
    if recommendation.answer is Answer.ONLY_CANDIDATE:
        varying = [*varying, *BATCH_SHAPE, *argument_columns(list(recommendation.point.index))]
        if lacking and recommendation.measured == 1:
            template = _NO_ANSWER
    sentence = template.format(
        label=trial_label(recommendation.point, list(dict.fromkeys(varying))),
        asked=lacking + 1,
        candidates=count_of(len(recommendation.others) + 1, "configuration"),
        goal=goal_in_words(recommendation),
        zone=percent(recommendation.zone),
        launches=count_of(_launches(recommendation), "launch"),
    )
    parts = [sentence.removesuffix("."), *_not_measured(recommendation, varying)]
    return f"{'; '.join(parts)}."


def _not_measured(recommendation: Recommendation, varying: Sequence[str]) -> list[str]:
    """Name the asked points that have no number, with the reason."""
    failed, not_begun = recommendation.not_measured, recommendation.not_begun
    parts = []
    if len(failed):
        rows = [row for _, row in failed.iterrows()]
        names = [
            name
            for name in (*BATCH_SHAPE, *argument_columns(list(failed.columns)))
            if {str(row[name]) for row in rows} != {str(recommendation.point.get(name))}
        ]
        differing = list(dict.fromkeys([*varying, *names]))
        labels = [f"{trial_label(row, differing)} ({row['status']})" for row in rows[:_MOST_NAMED]]
        was = "was" if len(rows) == 1 else "were"
        listed = _joined(labels, len(rows), mark=", ")
        parts.append(f"{len(rows)} {was} not measured: {listed}")
    if not_begun:
        parts.append(f"{not_begun} {'was' if not_begun == 1 else 'were'} not run yet")
    return parts


def evidence(recommendation: Recommendation, varying: Sequence[str], *, named: int) -> str:
    """Say what launches show, and what to do where it is not decided.

    Args:
        recommendation: of one model and environment.
        varying: setting columns of points that have more than one value.
        named: number of points to name, of several.
    """
    match recommendation.answer:
        case Answer.BEST:
            return _on_best(recommendation)
        case Answer.EQUAL:
            return _on_equal(recommendation, varying, named=named)
        case Answer.UNDECIDED:
            return _on_undecided(recommendation, varying, named=named)
        case Answer.SINGLE_LAUNCH:
            return _on_single_launches(recommendation)
    return _on_only_candidate(recommendation)


def _on_only_candidate(recommendation: Recommendation) -> str:
    """Say why there is no other candidate."""
    if recommendation.not_begun:
        return _GO_ON
    if len(recommendation.not_measured):
        return "The report says why the others have no number."
    if recommendation.unknown:
        return "No other point is known to be a candidate."
    return "No other point is a candidate."


def _launches(recommendation: Recommendation) -> int:
    """Launches of the recommended point and of those that may be better, the most."""
    contenders = recommendation.contenders["launches"]
    return int(max([recommendation.point["launches"], *contenders]))


def _confidence(recommendation: Recommendation) -> str:
    return f"({percent(recommendation.confidence)} confidence)"


def _on_best(recommendation: Recommendation) -> str:
    """Say by how much every other point is worse, at least."""
    objective = recommendation.objective
    if objective.is_exact:
        return f"Every other one has a {'lower' if objective.maximize else 'higher'} value."
    confidence = _confidence(recommendation)
    # An untested pair is compared with an assumed noise, which gives no limit.
    lead = float(_least_leads(recommendation).min(skipna=False))
    least = ""
    if not math.isnan(lead):
        least = _gain(lead, recommendation, is_lower_limit=True)
    if math.isnan(lead):
        return (
            "It is better than every other one, if launches of points that were launched once "
            f"differ by at most an assumed {percent(ASSUMED_SIGMA)}."
        )
    if not least:
        return f"It is better than every other one {confidence}."
    return f"It is at least {least} better than every other one {confidence}."


def _least_leads(recommendation: Recommendation) -> pd.Series[float]:
    """Lower limit of how much better the point is than each other one, as `possible_gain`."""
    objective, rivals = recommendation.objective, recommendation.others
    low, high = (rivals[name].astype("float64") for name in ("ratio_low", "ratio_high"))
    if objective.is_relative:
        return (low if objective.maximize else 1 / high) - 1
    return low if objective.maximize else -high


def _on_equal(recommendation: Recommendation, varying: Sequence[str], *, named: int) -> str:
    """Say how much better others may be, why this one of equal points, and what is open."""
    rivals = recommendation.others
    equal = rivals[rivals["is_equal"]]
    if recommendation.objective.is_exact:
        return (
            f"{count_of(len(equal), 'other configuration')} with the same value. It has the "
            "highest samples_per_s of these."
        )
    most = _gain(rivals["possible_gain"].max(), recommendation)
    limit = f"more than {most} better" if most else "better"
    sentences = [f"No other one is {limit} {_confidence(recommendation)}."]
    if len(equal):
        labels = [trial_label(row, varying) for _, row in equal.head(named).iterrows()]
        sentences.append(f"Equal to it: {_joined(labels, len(equal), mark=', ')}.")
        sentences.append(_why_this_one(recommendation.point, equal))
    if not recommendation.is_decided:
        sentences.append(_on_cheaper(recommendation, varying))
    return " ".join(sentences)


def _why_this_one(point: pd.Series[Any], equal: pd.DataFrame) -> str:
    """Say why a point is taken of equal ones: by workers, then by memory, then by its mean."""
    as_few = equal[equal["workers"] == point["workers"]]
    has_fewer = len(as_few) < len(equal)
    if as_few.empty:
        return "It needs the fewest workers of these."
    has_less_memory = (as_few["memory_peak_bytes"] > point["memory_peak_bytes"]).all()
    if has_fewer and has_less_memory:
        return "It needs the fewest workers of these, then the least memory."
    if has_less_memory:
        return "It needs the least memory of these."
    if has_fewer:
        return "It needs the fewest workers of these, and has the best mean of those."
    return "It has the best mean of these."


def _on_cheaper(recommendation: Recommendation, varying: Sequence[str]) -> str:
    """Name the point with fewer workers that may be equal, too."""
    contenders = recommendation.contenders
    cheaper = contenders[
        (contenders["workers"] < recommendation.point["workers"]) & ~contenders["is_equal"]
    ]
    words = "Open: a point with fewer workers may be equal, too."
    if len(cheaper):
        label = trial_label(cheaper.iloc[0], varying)
        words = f"Open: {label} needs fewer workers, and may be equal, too."
    return f"{words} {_what_decides(recommendation, cheaper)}"


def _on_undecided(recommendation: Recommendation, varying: Sequence[str], *, named: int) -> str:
    """Name the points that may be better, and the launches that would decide."""
    sentences = []
    if recommendation.point["condition_verdict"] != ConditionVerdict.MEETS:
        sentences.append("It is open whether it meets the condition.")
    contenders = recommendation.contenders.sort_values(
        "possible_gain", ascending=False, kind="stable"
    )
    better = contenders[contenders["possible_gain"] > 0]
    if len(better):
        rows = [row for _, row in better.iterrows()]
        words = [_may_be_better(row, recommendation, varying) for row in rows[:named]]
        if others := rows[named:]:
            labels = [trial_label(row, varying) for row in others]
            words.append(f"{_with_and(labels)} may be better, too")
        sentences.append(f"{'; '.join(words)}.")
    if not recommendation.is_futile:
        sentences.append(_limit(recommendation))
    sentences.append(what_next(recommendation))
    return " ".join(filter(None, sentences))


def _with_and(labels: Sequence[str]) -> str:
    """Name up to three points; of more the first two, and count the others."""
    names = list(labels)
    if len(names) > _MOST_NAMED:
        names = [*names[:2], f"{len(names) - 2} others"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _limit(recommendation: Recommendation) -> str:
    """Say whether launches or windows limit the answer; empty if nothing shows it."""
    variances = recommendation.variances
    if variances is None:
        return ""
    between, within = (percent(variance**0.5) for variance in (variances.between, variances.within))
    if variances.is_by_launches:
        return "Launches limit the answer: longer windows would not help."
    longer = " Longer windows (`Measure(half_width=…)`) would help."
    if recommendation.noise.is_mostly_imprecise:
        # These windows ended before `half_width`: `_quieter` names the setting.
        longer = ""
    return (
        f"Windows of {variances.window_s:.2g} s are known to {within}, which limits the answer; "
        f"launches differ by {between}.{longer}"
    )


def _may_be_better(
    row: pd.Series[Any], recommendation: Recommendation, varying: Sequence[str]
) -> str:
    condition = ""
    if row["condition_verdict"] != ConditionVerdict.MEETS:
        condition = ", if it meets the condition"
    label = trial_label(row, varying)
    if recommendation.objective.is_relative and row["possible_gain"] > _LARGEST_GAIN:
        return f"{label} may be better: its launches differ too much to say by how much{condition}"
    gain = _gain(row["possible_gain"], recommendation)
    return f"{label} may be up to {gain} better{condition}"


def _on_single_launches(recommendation: Recommendation) -> str:
    """Say that nothing is decided, and how many points are near."""
    near = len(recommendation.contenders)
    assumed = f"if launches of one point differ by an assumed {percent(ASSUMED_SIGMA)}"
    others = (
        f"One launch of each decides nothing: {count_of(near, 'other configuration')} may be as "
        f"good, {assumed}."
    )
    if not near:
        others = f"One launch of each: it is better than every other one, {assumed}."
    return f"{others} {what_next(recommendation)}"


def _what_decides(recommendation: Recommendation, open_points: pd.DataFrame) -> str:
    """Say how many more launches would decide about some points, and how to get them."""
    needed = open_points["more_launches"]
    if recommendation.is_futile:
        return _why_futile(recommendation, needed)
    if needed.isna().any():
        most = recommendation.contenders["possible_gain"].max()
        wider = ""
        if recommendation.objective.is_relative and most <= _LARGEST_ZONE:
            zone = _gain(most, recommendation).replace(" ", "")
            wider = f" A wider indifference zone decides sooner: `--indifference {zone}`."
        return f"Over 100 more launches of each would be needed.{wider}"
    if not needed.gt(0).any():
        return _next_step(recommendation)
    more = int(needed.max())
    step = _next_step(recommendation, more_launches=more)
    return f"At least {count_of(more, 'more launch')} of each would be needed. {step}"


def _why_futile(recommendation: Recommendation, needed: pd.Series[int]) -> str:
    """Say why launches were not gone on with, and what it would take."""
    zone = percent(recommendation.zone)
    sigma = recommendation.launch_sigma
    reason = "launches differ too much"
    if sigma is not None:
        reason = f"launches of a point differ by {percent(sigma)}"
    most = recommendation.contenders["possible_gain"].max()
    wider = ""
    if recommendation.objective.is_relative and recommendation.zone < most <= _LARGEST_ZONE:
        wider = f", or ask for less: `--indifference {math.ceil(most * 100)}%`"
    many = "over 100 more launches"
    if needed.notna().all() and len(needed):
        many = f"at least {count_of(int(needed.max()), 'more launch')}"
    return (
        f"A difference of {zone} can't be decided here: {reason}. It would take {many} "
        f"of each. Next: use a quieter machine{wider}."
    )


def what_next(recommendation: Recommendation) -> str:
    """Say what would decide, less noise first, as `evidence` does; empty where it does not."""
    match recommendation.answer:
        case Answer.UNDECIDED:
            contenders = recommendation.contenders
            step = _what_decides(recommendation, contenders[contenders["possible_gain"] > 0])
        case Answer.SINGLE_LAUNCH:
            step = _next_step(recommendation)
        case _ if recommendation.not_begun:
            return _GO_ON
        case _:
            return ""
    if recommendation.is_futile:
        # It names a quieter machine itself.
        return step
    return " ".join(filter(None, [_quieter(recommendation), step]))


def _quieter(recommendation: Recommendation) -> str:
    """Name what lowers the noise, where it is large; empty where it is not."""
    noise, variances = recommendation.noise, recommendation.variances
    ways = []
    if noise.drift > _NOISY_DRIFT:
        ways.append(f"use a quieter machine (drift: {percent_up(noise.drift)})")
    is_by_launches = variances is not None and variances.is_by_launches
    if noise.is_mostly_imprecise and not is_by_launches:
        ways.append(
            f"allow longer windows, `Measure({noise.limit}=…)` ({noise.imprecise} of "
            f"{count_of(noise.trials, 'trial')} are imprecise)"
        )
    if not ways:
        return ""
    return f"First {' and '.join(ways)}."


def _next_step(recommendation: Recommendation, *, more_launches: int | None = None) -> str:
    step = run_that_decides(
        recommendation.goal,
        recommendation.question,
        harness=recommendation.point["harness"],
        launches=_launches(recommendation),
        more_launches=more_launches,
    )
    return f"Next: {step}."


def _gain(gain: float, recommendation: Recommendation, *, is_lower_limit: bool = False) -> str:
    """Write how much better a point is; empty if that is not above 0."""
    if gain <= 0:
        return ""
    if not recommendation.objective.is_relative:
        return f"{gain:.3g} {recommendation.objective.name}"
    words = percent(gain, is_lower_limit=is_lower_limit)
    return words if words != "0 %" else ""


def _joined(words: Sequence[str], count: int, *, mark: str) -> str:
    """Join the first words of several, and count the others."""
    others = ""
    if count > len(words):
        others = f" and {count - len(words)} more"
    return mark.join(words) + others
