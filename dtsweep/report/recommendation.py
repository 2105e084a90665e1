"""A recommendation in the terminal, in words, and as JSON values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.candidates import way_to_measure
from dtsweep.analysis.launches import PER_SAMPLES
from dtsweep.analysis.settings import is_plain_training
from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.verdicts import Answer, ConditionVerdict
from dtsweep.report.alternatives import RATIOS, alternatives, too_slow
from dtsweep.report.answer import evidence, headline
from dtsweep.report.code import point_code, settings_of
from dtsweep.report.doubts import unsound_doubts
from dtsweep.report.frontiers import CHANGED, INEXACT
from dtsweep.report.labels import model_columns, model_label, trial_label, varying_columns
from dtsweep.report.records import records_of
from dtsweep.report.shell import shell_command
from dtsweep.results.schema import IMPORTED
from dtsweep.results.statuses import ABOVE_LINEAR, CANARY_DRIFT
from dtsweep.sweep.modes import PERIODS, latency_column, period_of
from dtsweep.text import (
    count_of,
    format_ends,
    format_number,
    format_rate,
    percent,
    percent_up,
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
        say(console, doubt, style="yellow")
    for recommendation, name in zip(recommendations, names_of(recommendations), strict=True):
        first, *lines = in_words(recommendation, varying=varying, name=name)
        say(console, first, style="bold")
        say(console, "\n".join([*lines, *_doubts(recommendation)]))
        _print_code(recommendation.point, console=console)


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


def _code_of(point: pd.Series[Any]) -> dict[str, Any]:
    """Give a point as code; all null of an imported one, most of whose settings are not known."""
    if point["harness"] == IMPORTED:
        return {"point": None, "command": None}
    return {"point": point_code(point), "command": shell_command(point)}


def names_of(recommendations: Sequence[Recommendation]) -> list[str]:
    """Name the model and the environment of each recommendation.

    Each of both is named if there are several of it; else the name is empty.
    """
    import pandas as pd

    if not recommendations:
        return []
    chosen = pd.DataFrame([recommendation.point for recommendation in recommendations])
    models, environments = (
        chosen[name].nunique(dropna=False) > 1 for name in ("model_digest", "env_id")
    )
    model_settings = []
    if models:
        model_settings = model_columns(chosen)
    parts = [
        (
            model_label(row, model_settings) if models else "",
            f"env_id {row['env_id']}" if environments else "",
        )
        for _, row in chosen.iterrows()
    ]
    return [" · ".join(filter(None, words)) for words in parts]


def in_words(
    recommendation: Recommendation, *, varying: Sequence[str], name: str = "", named: int = _SHOWN
) -> list[str]:
    """Put a recommendation into lines: the answer, its evidence, figures, and what it gives up.

    Args:
        recommendation: of one model and environment.
        varying: setting columns of points that have more than one value.
        name: its name among several recommendations; empty where there is one.
        named: number of points to name, of several.
    """
    point = recommendation.point
    doubt = ""
    if point["caution"]:
        doubt = f" Doubtful: {point['caution']}."
    figures = "; ".join(_figures(point, recommendation.objective.name))
    first = headline(recommendation, varying)
    if ABOVE_LINEAR in point["caution"].split():
        first = f"Doubtful, its rate is far above linear: {first[:1].lower()}{first[1:]}"
    if name:
        first = f"{name}: {first}"
    lines = [
        first,
        evidence(recommendation, varying, named=named),
        f"{figures[:1].upper()}{figures[1:]}.{doubt}",
        *_condition(recommendation, varying),
        *_runner_up(recommendation, varying),
        *_left_out(recommendation),
        *alternatives(recommendation, varying),
    ]
    is_plain = is_plain_training({str(name): value for name, value in point.items()})
    if point["semantics"] in CHANGED and not is_plain:
        lines.append(f"Its updates are {point['semantics']}. {INEXACT}")
    return lines


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


def as_json(recommendation: Recommendation, *, unsound: Sequence[str] = ()) -> dict[str, Any]:
    """Give a recommendation as JSON values; unknown is None.

    Args:
        recommendation: of one model and environment.
        unsound: sentences of `unsound_doubts` on the same results.

    Returns:
        `goal` (`maximize` or `minimize`, `where`, `allow`, `least_rate`), `point` (row of
        `over_launches`), `settings` (those that are not the default), `code` (`point`; `command`
        that starts a script of the user in a shell, else null; both null of an imported point),
        `answer` (one of `dtsweep.inference.verdicts.Answer`), `is_decided`,
        `is_futile`, `not_measured` (asked points without a number, with status and reason),
        `not_begun` (count), `zone`, `confidence`, `others` and
        `alternatives` (rows, as `Recommendation` has them), `unknown`, `slow` and `implausible`
        (counts of points left out), `undecided` (rows of points at a limit of the condition),
        `unmeasured` (what the unknown ones lack), `drift`, and `unsound`: texts on the points of
        the results that are not recommended as sound.
    """
    code = _code_of(recommendation.point)
    goal = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(recommendation.goal).items()
    }
    return {
        "goal": goal,
        "point": records_of(recommendation.point.to_frame().T.infer_objects())[0],
        "settings": settings_of(recommendation.point),
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
        "unsound": list(unsound),
    }


def _condition(recommendation: Recommendation, varying: Sequence[str]) -> list[str]:
    """Say whether the point meets the condition at 95 %, and name the points at its limits."""
    names = recommendation.condition_columns
    if not names:
        return []
    point = recommendation.point
    figures = ", ".join(_with_interval(point, name) for name in names)
    verdict, margin = "It meets", ""
    if point["condition_verdict"] == ConditionVerdict.UNDECIDED:
        verdict = "It is open at 95 % whether it meets"
    elif point["is_at_limit"]:
        margin = f" (within {percent(recommendation.zone)} of the limit)"
    if point["interval"] == "launch":
        margin = f"{margin} (one launch; if launches differ by {percent(ASSUMED_SIGMA)})"
    lines = [f"{verdict} {recommendation.goal.where}{margin}: {figures}."]
    at_limit = recommendation.undecided
    if len(at_limit):
        listed = [
            f"{trial_label(row, varying)} ("
            f"{', '.join(_with_interval(row, name) for name in names)})"
            for _, row in at_limit.head(_SHOWN).iterrows()
        ]
        more = ""
        if len(at_limit) > _SHOWN:
            more = f"; and {len(at_limit) - _SHOWN} more"
        lines.append(f"Also open: {'; '.join(listed)}{more}.")
    return lines


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


def _kinds(recommendation: Recommendation) -> str:
    """Explain a ± that is wider than the comparison; empty where it is not."""
    point, objective = recommendation.point, recommendation.objective.name
    runner_up = recommendation.others.iloc[0]
    low, high = (float(point.get(f"{objective}{end}", math.nan)) for end in ("_low", "_high"))
    own_width = (high - low) / abs(float(point[objective]))
    compared_width = (runner_up["ratio_high"] - runner_up["ratio_low"]) / runner_up["ratio"]
    if not own_width > compared_width:
        return ""
    return (
        " The comparison is more precise than ± above: it pools the launches of all points, and "
        "what a launch does to all its points cancels."
    )


def _left_out(recommendation: Recommendation) -> list[str]:
    """Count the points that are unknown, too slow or implausible, a line each."""
    lines = []
    if recommendation.unknown:
        columns = recommendation.unmeasured
        count = count_of(recommendation.unknown, "point")
        lines.append(
            f"Left out: {count} of which {' or '.join(columns)} is not known"
            f"{way_to_measure(columns)}."
        )
    if recommendation.slow:
        count = count_of(recommendation.slow, "point")
        lines.append(f"Left out: {count} with {too_slow(recommendation)}.")
    if recommendation.implausible:
        count = count_of(recommendation.implausible, "point")
        lines.append(f"Left out: {count} whose numbers can't be trusted.")
    return lines


def _doubts(recommendation: Recommendation) -> list[str]:
    """Say what puts the answer in doubt: the machine's drift, and single launches."""
    lows = (
        recommendation.others["ratio_low"],
        *(recommendation.alternatives[f"{name}_ratio_low"] for name in RATIOS),
    )
    is_tested = not any(low.isna().any() for low in lows)
    drift = recommendation.drift
    if drift is None:
        if is_tested:
            return []
        if recommendation.point["harness"] == IMPORTED:
            return ["The drift of the machine is not known, and single rows have it."]
        return [
            "The drift of the machine is not known, and single launches have it. Canaries "
            "(`Measure(canary=True)`) would show it."
        ]
    if is_tested and drift <= CANARY_DRIFT:
        return []
    consequence = "ignore smaller differences of single launches"
    if is_tested:
        consequence = "the spread of launches contains it"
    return [f"The machine drifted by at most {percent_up(drift)}: {consequence}."]


def _runner_up(recommendation: Recommendation, varying: Sequence[str]) -> list[str]:
    """Name the best one of the others, where the recommended point is the best."""
    if recommendation.answer not in (Answer.BEST, Answer.SINGLE_LAUNCH):
        return []
    row = recommendation.others.iloc[0]
    name = recommendation.objective.name
    return [
        f"Runner-up: {trial_label(row, varying)} (the recommended one has "
        f"{_ratio(row, f' its {name}')}).{_kinds(recommendation)}"
    ]


def _ratio(row: pd.Series[Any], of: str = "") -> str:
    """Write the ratio of the recommended point over another one: "1.072 times".

    The interval follows if the difference is tested.
    """
    interval = ""
    if not math.isnan(row["ratio_low"]):
        interval = f", {row['ratio_low']:.4g} to {row['ratio_high']:.4g}"
    return f"{row['ratio']:.4g} times{of}{interval}"
