"""A recommendation in the terminal, in words, and as JSON values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.candidates import way_to_measure
from dtsweep.analysis.launches import PER_SAMPLES
from dtsweep.analysis.settings import is_plain_training
from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.verdicts import Answer, ConditionVerdict
from dtsweep.report.alternatives import RATIOS, alternatives
from dtsweep.report.answer import evidence, headline
from dtsweep.report.code import point_arguments, point_code, shell_command
from dtsweep.report.doubts import unsound_doubts
from dtsweep.report.frontiers import CHANGED
from dtsweep.report.labels import model_columns, product_parts, trial_label, varying_columns
from dtsweep.report.records import records_of
from dtsweep.report.remarks import Remark, paragraph, remark
from dtsweep.results.schema import IMPORTED
from dtsweep.results.statuses import CANARY_DRIFT
from dtsweep.sweep.modes import PERIODS, latency_column, period_of
from dtsweep.text import (
    format_ends,
    format_number,
    format_rate,
    plain,
    say,
    usd,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from dtsweep.analysis.recommend import Recommendation
    from dtsweep.analysis.study import Study

_SHOWN = 3
"""Number of points to name, of several."""


def print_all(recommendations: Sequence[Recommendation], *, study: Study, console: Console) -> None:
    """Print recommendations, each with the code to use it.

    Args:
        recommendations: of one goal.
        study: of all trials: settings that vary among its points name a point.
        console: where to.
    """
    varying = varying_columns(study.points)
    for doubt in unsound_doubts(study):
        say(console, doubt.text, style="yellow")
    for recommendation, name in zip(recommendations, names_of(recommendations), strict=True):
        first, *lines = in_words(recommendation, varying=varying, name=name)
        say(console, paragraph(first), style="bold")
        say(console, "\n".join(map(paragraph, [*lines, *_doubts(recommendation)])))
        _print_code(recommendation.point, console=console)


def remarks_on(
    recommendations: Sequence[Recommendation], *, study: Study
) -> Iterator[tuple[Recommendation, list[Remark]]]:
    """Yield recommendations of one goal with all remarks on each, those on all results first."""
    varying, unsound = varying_columns(study.points), unsound_doubts(study)
    for one, name in zip(recommendations, names_of(recommendations), strict=True):
        paragraphs = [*in_words(one, varying=varying, name=name), *_doubts(one)]
        yield one, [*unsound, *chain.from_iterable(paragraphs)]


def _print_code(point: pd.Series[Any], *, console: Console) -> None:
    """Print a point as code; of a script its command."""
    if point["harness"] == IMPORTED:
        say(console, "\nIt was imported from a table: there is no code to use it.")
        return
    # Code is never wrapped: a text or a comment that goes on in the next line is another program.
    if (command := shell_command(point)) is not None:
        console.print(
            plain(f"\nTo use it without dtsweep:\n\n{textwrap.indent(command, '    ')}\n"),
            soft_wrap=True,
        )
        return
    console.print(plain(f"\nTo use it: {point_code(point)}"), soft_wrap=True)


def names_of(recommendations: Sequence[Recommendation]) -> list[str]:
    """Name the model and the environment of each recommendation.

    Each of both is named if there are several of it; else the name is empty.
    """
    import pandas as pd

    if not recommendations:
        return []
    chosen = pd.DataFrame([recommendation.point for recommendation in recommendations])
    differing = [
        name for name in ("model_digest", "env_id") if chosen[name].nunique(dropna=False) > 1
    ]
    model_settings = []
    if "model_digest" in differing:
        model_settings = model_columns(chosen)
    return [
        " · ".join(product_parts(row, differing, model_settings)) for _, row in chosen.iterrows()
    ]


def in_words(
    recommendation: Recommendation, *, varying: Sequence[str], name: str = "", named: int = _SHOWN
) -> list[list[Remark]]:
    """Make the remarks on a recommendation: the answer, its evidence, figures, what it gives up.

    Args:
        recommendation: of one model and environment.
        varying: setting columns of points that have more than one value.
        name: its name among several recommendations; empty where there is one.
        named: number of points to name, of several.

    Returns:
        A list for each paragraph.
    """
    point = recommendation.point
    figures = [remark("figures", figures=_figures(point, recommendation.objective.name))]
    if point["caution"]:
        figures.append(remark("caution", caution=point["caution"]))
    paragraphs = [
        headline(recommendation, varying, name=name),
        evidence(recommendation, varying, named=named),
        figures,
        _condition(recommendation, varying),
        _runner_up(recommendation, varying),
        *([one] for one in _left_out(recommendation)),
        *([one] for one in alternatives(recommendation, varying)),
    ]
    is_plain = is_plain_training({str(name): value for name, value in point.items()})
    if point["semantics"] in CHANGED and not is_plain:
        paragraphs.append([remark("other_updates", semantics=point["semantics"])])
    return [remarks for remarks in paragraphs if remarks]


def quantity(name: str, value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Write a measured value with its unit, and its interval.

    >>> quantity("step_p99_s", 0.0482), quantity("samples_per_s", 812.34, 808.24, 816.44)
    ('48.20 ms', '812.3 ± 4.1 samples/s')
    >>> quantity("memory_peak_bytes", 2.0**30)
    '1,024 MiB'
    >>> quantity("usd_per_million_samples", 0.01241)
    '$0.012 per million samples'
    """
    if name.endswith("_per_s"):
        return f"{format_rate(value, low, high)} {name.removesuffix('_per_s')}/s"
    if name.endswith("_s"):
        return f"{format_ends(value * 1e3, low * 1e3, high * 1e3)} ms"
    if name.endswith("_bytes"):
        return f"{format_number(value / 2**20, digits=3)} MiB"
    if name == PER_SAMPLES:
        return f"{usd(value)} per million samples"
    return f"{name} {value:.4g}"


def as_json(recommendation: Recommendation, remarks: Iterable[Remark]) -> dict[str, Any]:
    """Give a recommendation as JSON values; unknown is None.

    Args:
        recommendation: of one model and environment.
        remarks: on it and its results.

    Returns:
        `goal` (`maximize` or `minimize`, `where`, `allow`, `least_rate`), `point` (row of
        `over_launches`), `settings` (those that are not the default), `code` (`point`; `command`
        that starts a script of the user in a shell, else null; both null of an imported point),
        `answer` (one of `dtsweep.inference.verdicts.Answer`), `is_decided`,
        `is_futile`, `not_measured` (asked points without a number, with status and reason),
        `not_begun` (count), `zone`, `confidence`, `others` and
        `alternatives` (rows, as `Recommendation` has them), `unknown`, `slow` and `implausible`
        (counts of points left out), `undecided` (rows of points at a limit of the condition),
        `unmeasured` (what the unknown ones lack), `drift`, and `remarks` (`code`, `severity`,
        `numbers` and `text` of each).
    """
    code: dict[str, str | None] = {"point": None, "command": None}
    if recommendation.point["harness"] != IMPORTED:
        code = {
            "point": point_code(recommendation.point),
            "command": shell_command(recommendation.point),
        }
    goal = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(recommendation.goal).items()
    }
    return {
        "goal": goal,
        "point": records_of(recommendation.point.to_frame().T.infer_objects())[0],
        "settings": point_arguments(recommendation.point),
        "code": code,
        "answer": recommendation.answer,
        "is_decided": recommendation.is_decided,
        "is_futile": recommendation.is_futile,
        "not_measured": records_of(recommendation.not_measured[["point_id", "status", "reason"]]),
        "not_begun": recommendation.not_begun,
        "zone": recommendation.zone,
        "confidence": recommendation.confidence,
        "others": records_of(recommendation.others),
        "alternatives": records_of(recommendation.alternatives),
        "unknown": recommendation.unknown,
        "unmeasured": list(recommendation.unmeasured),
        "slow": recommendation.slow,
        "implausible": recommendation.implausible,
        "undecided": records_of(recommendation.undecided),
        "drift": recommendation.drift,
        "remarks": [one.as_json() for one in remarks],
    }


def _condition(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Say whether the point meets the condition at 95 %, and name the points at its limits."""
    names = recommendation.condition_columns
    if not names:
        return []
    point, code = recommendation.point, "meets"
    if point["condition_verdict"] == ConditionVerdict.UNDECIDED:
        code = "limit_open"
    elif point["is_at_limit"]:
        code = "at_limit"
    figures = [_with_interval(point, name) for name in names]
    where, zone = recommendation.goal.where, recommendation.zone
    remarks = [remark(code, where=where, zone=zone, figures=figures)]
    if point["interval"] == "launch":
        remarks.append(remark("limit_assumed", sigma=ASSUMED_SIGMA))
    points = [
        f"{trial_label(row, varying)} ({', '.join(_with_interval(row, name) for name in names)})"
        for _, row in recommendation.undecided.iterrows()
    ]
    if points:
        remarks.append(remark("also_open", points=points))
    return remarks


def _with_interval(point: pd.Series[Any], name: str) -> str:
    """Write a column's name, value and interval."""
    ends = [float(point.get(f"{name}{end}", math.nan)) for end in ("_low", "_high")]
    words = quantity(name, float(point[name]), *ends)
    if words.startswith(name):
        return words
    return f"{name} {words}"


def _figures(point: pd.Series[Any], objective: str) -> list[str]:
    import pandas as pd

    names = dict.fromkeys([objective, "samples_per_s", "latency_s", "memory_peak_bytes"])
    ends = {
        name: [float(point.get(f"{name}{end}", math.nan)) for end in ("_low", "_high")]
        for name in names
    }
    measured = [name for name in names if pd.notna(point[name])]
    step = "a median step "
    periods = {name: point[name] for name in PERIODS if pd.notna(point.get(name))}
    latency = latency_column(point["semantics"], period=period_of(periods))
    if latency == "step_mean_s" or pd.isna(point["step_p50_s"]):
        step = "a mean step "
    words = {"latency_s": step, "memory_peak_bytes": "memory "}
    return [
        words.get(name, "") + quantity(name, float(point[name]), *ends[name]) for name in measured
    ]


def _left_out(recommendation: Recommendation) -> list[Remark]:
    """Count the points that are unknown, too slow or implausible."""
    columns = list(recommendation.unmeasured)
    remarks = []
    if count := recommendation.unknown:
        way = way_to_measure(columns)
        remarks.append(remark("left_out_unknown", count=count, columns=columns, way=way))
    if count := recommendation.slow:
        share = recommendation.goal.least_rate
        remarks.append(remark("left_out_slow", count=count, share=share))
    if count := recommendation.implausible:
        remarks.append(remark("left_out_implausible", count=count))
    return remarks


def _doubts(recommendation: Recommendation) -> list[list[Remark]]:
    """Say what puts the answer in doubt: the machine's drift, and single launches."""
    lows = (
        recommendation.others["ratio_low"],
        *(recommendation.alternatives[f"{name}_ratio_low"] for name in RATIOS),
    )
    is_tested = not any(low.isna().any() for low in lows)
    drift = recommendation.drift
    if is_tested:
        if drift is None or drift <= CANARY_DRIFT:
            return []
        return [[remark("answer_drift_tested", drift=drift)]]
    if drift is not None:
        return [[remark("answer_drift", drift=drift)]]
    imported = recommendation.point["harness"] == IMPORTED
    return [[remark("answer_drift_imported" if imported else "answer_drift_unknown")]]


def _runner_up(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Name the best one of the others, where the recommended point is the best."""
    if recommendation.answer not in (Answer.BEST, Answer.SINGLE_LAUNCH):
        return []
    row, name = recommendation.others.iloc[0], recommendation.objective.name
    low, high = float(row["ratio_low"]), float(row["ratio_high"])
    interval = ""
    if not math.isnan(low):
        interval = f", {low:.4g} to {high:.4g}"
    first = remark(
        "runner_up",
        point=trial_label(row, varying),
        ratio=float(row["ratio"]),
        objective=name,
        interval=interval,
    )
    point = recommendation.point
    own_low, own_high = (float(point.get(f"{name}{end}", math.nan)) for end in ("_low", "_high"))
    own_width = (own_high - own_low) / abs(float(point[name]))
    # The reader would otherwise take the wider ± of the figures for the comparison's error.
    if own_width > (high - low) / row["ratio"]:
        return [first, remark("runner_up_pooled")]
    return [first]
