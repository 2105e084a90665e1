"""Answer of a recommendation in six lines.

What to take, its lead, how sure that is, what limits it, what to do next, and its figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import PER_SAMPLES
from dtsweep.inference.forecast import MOST_ROUNDS
from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.verdicts import Answer
from dtsweep.report.labels import trial_label
from dtsweep.report.lead import lead, rivals
from dtsweep.report.limits import limit_of
from dtsweep.report.next_step import run_that_decides
from dtsweep.report.remarks import (
    LONGEST_LINE,
    Remark,
    first_that_fits,
    one_line_remark,
    remark,
)
from dtsweep.sweep.goal import FINAL_LOSS, TO_LOSS
from dtsweep.sweep.modes import PERIODS, latency_column, period_of
from dtsweep.text import (
    WIDE_MARK,
    duration,
    format_ends,
    format_number,
    format_rate,
    in_percent,
    percent,
    percent_up,
    usd,
)

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

_LARGEST_LOSS = 0.5
"""Largest upper limit of a loss that is written, as a share; a greater one says nothing."""


_TENTHS_BELOW = 0.1
"""Gain, as a share, from which on an upper limit is written in whole percent."""


def in_short(recommendation: Recommendation) -> str:
    """Name the answer in a few words, for a table."""
    return _IN_SHORT[recommendation.answer].format(zone=percent(recommendation.zone))


def goal_in_words(recommendation: Recommendation) -> str:
    """Name the goal of a recommendation: " by samples_per_s where workers<=8"."""
    return "".join(_goal_parts(recommendation))


def _goal_parts(recommendation: Recommendation) -> list[str]:
    """Words of the goal, the least important last."""
    goal = recommendation.goal
    parts = [f" by {recommendation.objective.name}"]
    if not recommendation.objective.maximize:
        parts = [f" by lowest {recommendation.objective.name}"]
    if goal.where:
        parts.append(f" where {goal.where}")
    if goal.least_rate:
        parts.append(f" with at least {in_percent(goal.least_rate)} of the best samples_per_s")
    serves = recommendation.point["semantics"] == "inference"
    if recommendation.has_other_semantics and not serves:
        parts.append(f" of {' and '.join(('exact', *goal.allow))} updates")
    return parts


def answer_of(
    recommendation: Recommendation,
    varying: Sequence[str],
    *,
    name: str = "",
    bounds: pd.DataFrame | None = None,
) -> list[Remark]:
    """Make the lines of an answer, six at most.

    Args:
        recommendation: of one model and environment.
        varying: setting columns of points that have more than one value.
        name: its name among several recommendations; empty where there is one.
        bounds: rows of `dtsweep.analysis.bottleneck`; None says nothing of limits.
    """
    leading = lead
    if recommendation.answer is Answer.UNDECIDED:
        leading = rivals
    limit = []
    if bounds is not None:
        limit = limit_of(recommendation.point, bounds)
    return [
        _headline(recommendation, varying, name=name),
        *leading(recommendation, varying),
        *_how_sure(recommendation),
        *limit,
        *_what_next(recommendation),
        _figures(recommendation),
    ]


def _headline(recommendation: Recommendation, varying: Sequence[str], *, name: str) -> Remark:
    """Say what to take and for what: as much of the goal as there is room for."""
    code = recommendation.answer.value
    if recommendation.objective.is_exact and recommendation.answer is Answer.EQUAL:
        code = "same_value"
    lacking = len(recommendation.not_measured) + recommendation.not_begun
    if code == Answer.ONLY_CANDIDATE and lacking and recommendation.measured == 1:
        code = "no_answer"
    numbers = {
        "name": f"{name}: " if name else "",
        "point": trial_label(recommendation.point, varying),
        "asked": lacking + 1,
        "candidates": len(recommendation.others) + 1,
        "zone": recommendation.zone,
    }
    parts = _goal_parts(recommendation)
    if recommendation.answer is Answer.ONLY_CANDIDATE:
        del parts[0]
    lines = [
        remark(code, goal="".join(parts[:count]), **numbers) for count in range(len(parts), -1, -1)
    ]
    if len(lines[-1].text) > LONGEST_LINE:
        return one_line_remark(code, shorten=("name", "point"), goal="", **numbers)
    return first_that_fits(lines)


def _how_sure(recommendation: Recommendation) -> list[Remark]:
    """Say how sure the answer is, with one number."""
    match recommendation.answer:
        case Answer.BEST:
            return [_on_best(recommendation)]
        case Answer.EQUAL:
            return [_on_equal(recommendation)]
        case Answer.UNDECIDED:
            return [_on_undecided(recommendation)]
        case Answer.SINGLE_LAUNCH:
            near = len(recommendation.contenders)
            code = "one_launch_open" if near else "better_assumed"
            return [remark(code, count=near, sigma=ASSUMED_SIGMA)]
        case _:
            return _on_only_candidate(recommendation)


def _on_only_candidate(recommendation: Recommendation) -> list[Remark]:
    """Say why there is no other candidate."""
    if recommendation.not_begun:
        return []
    if len(recommendation.not_measured):
        return [remark("others_failed")]
    return [remark("no_other")]


def _on_best(recommendation: Recommendation) -> Remark:
    """Say by how much every other point is worse, at least."""
    objective = recommendation.objective
    if objective.is_exact:
        return remark("others_lower" if objective.maximize else "others_higher")
    # Those that were left after one launch give no limit.
    is_tested = recommendation.others["launches"] > 1
    least = float(_least_leads(recommendation)[is_tested].min())
    if math.isnan(least):
        return remark("better_assumed", sigma=ASSUMED_SIGMA)
    words = _gain(least, recommendation, is_lower_limit=True)
    if words:
        words = f", by at least {words}"
    others = "all others"
    if len(recommendation.not_measured) or recommendation.not_begun:
        others = "all that were measured"
    sure = _confidence(recommendation)
    return first_that_fits(
        [
            remark("better", others=others, least=least_words, lead=least, **sure)
            for least_words in (words, "")
        ]
    )


def _confidence(recommendation: Recommendation) -> dict[str, Any]:
    """Give the probability of a right answer, and what it assumes beside the launches."""
    assumed, sigma = "", recommendation.assumed_sigma
    if sigma is not None:
        between = "sessions" if recommendation.noise.has_turns else "launches"
        assumed = f", if {between} differ by {percent(sigma)}"
    return {"confidence": recommendation.confidence, "assumed": assumed}


def _least_leads(recommendation: Recommendation) -> pd.Series[float]:
    """Lower limit of how much better the point is than each other one, as `possible_gain`."""
    objective, others = recommendation.objective, recommendation.others
    low, high = (others[name].astype("float64") for name in ("ratio_low", "ratio_high"))
    if objective.is_relative:
        return (low if objective.maximize else 1 / high) - 1
    return low if objective.maximize else -high


def _on_equal(recommendation: Recommendation) -> Remark:
    """Say how much better others may be, and why this one of equal points is taken."""
    others = recommendation.others
    equal = others[others["is_equal"]]
    if recommendation.objective.is_exact:
        return remark("others_equal", count=len(equal))
    why = ""
    if len(equal):
        why = f"; it has the {_why_this_one(recommendation.point, equal)}"
    gain = float(others["possible_gain"].max())
    most = _gain(gain, recommendation)
    code = "others_at_most" if most else "none_better"
    return one_line_remark(
        code, shorten=("why",), most=most, gain=gain, why=why, **_confidence(recommendation)
    )


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


def _on_undecided(recommendation: Recommendation) -> Remark:
    """Say how much the point loses at most to the best one, or that this is not known."""
    contenders = recommendation.contenders
    if contenders.empty:
        return remark("better_assumed", sigma=ASSUMED_SIGMA)
    gain = float(contenders["possible_gain"].max())
    launches = _launches(recommendation)
    if gain <= 0:
        return remark("none_better", why="", **_confidence(recommendation))
    if math.isnan(gain) or (recommendation.objective.is_relative and gain > _LARGEST_LOSS):
        reason = f": {launches} launches of a point differ too much"
        if launches == 1:
            reason = ": each was launched once"
        return remark("loss_unknown", reason=reason, possible_gain=gain, launches=launches)
    return remark(
        "loses_at_most",
        most=_gain(gain, recommendation),
        possible_gain=gain,
        launches=launches,
        **_confidence(recommendation),
    )


def _launches(recommendation: Recommendation) -> int:
    """Launches of the recommended point and of those that may be better, the most."""
    contenders = recommendation.contenders["launches"]
    return int(max([recommendation.point["launches"], *contenders]))


def _what_next(recommendation: Recommendation) -> list[Remark]:
    """Name the one run that would decide, with its time; empty where nothing is open."""
    answer, noise = recommendation.answer, recommendation.noise
    is_alone = answer is Answer.ONLY_CANDIDATE and not recommendation.not_begun
    if is_alone or recommendation.is_decided or recommendation.objective.is_exact:
        return []
    question, rounds = recommendation.question, recommendation.rounds_to_decide
    if recommendation.is_futile:
        return [_futile(recommendation, why="more rounds would not pay")]
    # Turns are as many as pay.
    trains = recommendation.objective.name in (*TO_LOSS, FINAL_LOSS)
    has_short_windows = noise.is_mostly_imprecise and not noise.has_turns and not trains
    is_asked = question is not None and question.goal == recommendation.goal
    if rounds == math.inf and is_asked and not has_short_windows:
        return [_futile(recommendation, why=f"over {MOST_ROUNDS} more launches may be needed")]
    run = run_that_decides(
        recommendation.goal,
        question,
        harness=recommendation.point["harness"],
        launches=_launches(recommendation),
        rounds=rounds,
    )
    if has_short_windows:
        return [remark("longer_windows", run=run, setting=noise.limit)]
    time = ""
    if rounds is None and answer is Answer.UNDECIDED and question:
        time = " (how many launches it takes is not known)"
    if recommendation.seconds_to_decide:
        time = f" (about {duration(recommendation.seconds_to_decide)})"
    return [remark("run", run=run, time=time)]


def _futile(recommendation: Recommendation, *, why: str) -> Remark:
    """Say what settles the question without further rounds."""
    most = float(recommendation.contenders["possible_gain"].max())
    way = "measure on a quiet machine"
    if recommendation.objective.is_relative and 0 < most <= _LARGEST_LOSS:
        loss = f"{math.ceil(most * 100)}"
        way = f"accept {loss} % less with `--indifference {loss}%`"
    return remark("futile", way=way, why=why)


def _gain(gain: float, recommendation: Recommendation, *, is_lower_limit: bool = False) -> str:
    """Write how much better a point is; empty if that is not above 0."""
    if gain <= 0:
        return ""
    if not recommendation.objective.is_relative:
        return f"{gain:.3g} {recommendation.objective.name}"
    words = percent(gain, is_lower_limit=is_lower_limit)
    if gain > _TENTHS_BELOW and not is_lower_limit:
        words = percent_up(gain)
    return words if words != "0 %" else ""


def quantity(name: str, value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Write a measured value with its unit, and its interval.

    >>> quantity("step_p99_s", 0.0482), quantity("samples_per_s", 812.34, 808.24, 816.44)
    ('48.20 ms', '812.3 ± 4.1 samples/s')
    >>> quantity("memory_peak_bytes", 2.0**30)
    '1,024 MiB'
    >>> quantity("usd_per_million_samples", 0.01241)
    '$0.012 per million samples'
    """
    if name in TO_LOSS:
        return f"{_to_loss(name, value, low, high)} to the target"
    if name.endswith("_per_s"):
        return f"{format_rate(value, low, high)} {name.removesuffix('_per_s')}/s"
    if name.endswith("_s"):
        return f"{format_ends(value * 1e3, low * 1e3, high * 1e3)} ms"
    if name.endswith("_bytes"):
        return f"{format_number(value / 2**20, digits=3)} MiB"
    if name == PER_SAMPLES:
        return f"{usd(value)} per million samples"
    return f"{name} {value:.4g}"


def _to_loss(name: str, value: float, low: float, high: float) -> str:
    """Write what a training to a target takes.

    >>> _to_loss("time_to_loss_s", 12.0, 11.0, 13.0), _to_loss("usd_to_loss", 0.52, 0.5, 0.54)
    ('12.0 ± 1.0 s', '$0.52')
    """
    if name == "usd_to_loss":
        return usd(value)
    unit = {"time_to_loss_s": "s", "worker_s_to_loss": "s of workers"}.get(name, "samples")
    return f"{format_ends(value, low, high)} {unit}"


def quantity_of(point: pd.Series[Any], name: str) -> str:
    """Write a column's value of a point with its interval, where that is known."""
    ends = [float(point.get(f"{name}{end}", math.nan)) for end in ("_low", "_high")]
    return quantity(name, float(point[name]), *ends)


def _figures(recommendation: Recommendation) -> Remark:
    """Give what the goal asks for, then rate, step and memory: as many as there is room for."""
    import pandas as pd

    point = recommendation.point
    asked = [recommendation.objective.name, *recommendation.condition_columns]
    names = dict.fromkeys([*asked, "samples_per_s", "latency_s", "memory_peak_bytes"])
    known = [name for name in names if pd.notna(point[name])]
    # A condition on the column that is the latency needs it once.
    values = {quantity_of(point, name): _figure(point, name) for name in reversed(known)}
    figures = list(reversed(values.values()))
    notes = [" (±: 95 %)", ""]
    if any("~" in figure for figure in figures):
        notes = [f" ({WIDE_MARK})"]
    elif not any("±" in figure for figure in figures):
        notes = [""]
    return first_that_fits(
        [
            remark("figures", figures=figures[:count], note=note)
            for count in range(len(figures), 0, -1)
            for note in notes
        ]
    )


def _figure(point: pd.Series[Any], name: str) -> str:
    """Name a column, where its unit does not, and write its value."""
    import pandas as pd

    words = quantity_of(point, name)
    if name.endswith("_per_s") or name == PER_SAMPLES or words.startswith(name) or name in TO_LOSS:
        return words
    if name == "memory_peak_bytes":
        return f"memory {words}"
    if name != "latency_s":
        return f"{name} {words}"
    periods = {name: point[name] for name in PERIODS if pd.notna(point.get(name))}
    latency = latency_column(point["semantics"], period=period_of(periods))
    if latency == "step_mean_s" or pd.isna(point["step_p50_s"]):
        return f"a mean step {words}"
    return f"a median step {words}"
