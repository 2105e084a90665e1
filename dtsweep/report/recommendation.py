"""A recommendation in the terminal, in words, and as JSON values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.candidates import way_to_measure
from dtsweep.analysis.recommend import SHORTER
from dtsweep.inference.verdicts import Certainty, ConditionVerdict
from dtsweep.report.alternatives import RATIOS, alternatives, too_slow
from dtsweep.report.code import point_code, settings_of
from dtsweep.report.labels import model_columns, model_label, trial_label
from dtsweep.report.program import training_code, why_no_training
from dtsweep.report.records import records_of
from dtsweep.report.shell import shell_command
from dtsweep.results.statuses import CANARY_DRIFT
from dtsweep.text import count_of, format_ends, format_number, format_rate, percent_up, plain, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from dtsweep.analysis.recommend import Recommendation

IN_SHORT = {
    Certainty.SIGNIFICANT: "significant",
    Certainty.TIED: "not distinguishable from others",
    Certainty.SINGLE_LAUNCH: "one launch each",
    Certainty.ONLY_CANDIDATE: "the only candidate",
}
"""Words for the certainty of recommendations, in a table."""

_SHOWN = 3
"""Number of points to name, of those that can't be distinguished."""


def print_all(
    recommendations: Sequence[Recommendation], *, points: pd.DataFrame, console: Console
) -> None:
    """Print recommendations, each with the code to use it.

    Args:
        recommendations: of one goal.
        points: all that were measured: settings that vary among them name a point.
        console: where to.
    """
    counts = points[setting_columns(points)].nunique(dropna=False)
    varying = list(counts.index[counts > 1])
    for recommendation, name in zip(recommendations, names_of(recommendations), strict=True):
        first, *lines = in_words(recommendation, varying=varying, name=name)
        say(console, first, style="bold")
        say(console, "\n".join([*lines, *_doubts(recommendation)]))
        _print_code(recommendation.point, console=console)


def _print_code(point: pd.Series[Any], *, console: Console) -> None:
    """Print a point as code, and its program or why there is none; of a script its command."""
    # Code is never wrapped: a text or a comment that goes on in the next line is another program.
    if (command := shell_command(point)) is not None:
        console.print(
            plain(f"\nTo use it without dtsweep:\n\n{textwrap.indent(command, '    ')}\n"),
            soft_wrap=True,
        )
        return
    console.print(plain(f"\nTo use it: {point_code(point)}"), soft_wrap=True)
    code = training_code(point)
    if code is None:
        say(console, f"No program in plain PyTorch: {why_no_training(point)}.")
        return
    say(console, "In plain PyTorch:\n")
    console.print(plain(f"{textwrap.indent(code, '    ')}\n"), soft_wrap=True)


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
    """Put a recommendation into lines: goal and point, figures, certainty, what it gives up.

    Args:
        recommendation: of one model and environment.
        varying: setting columns of points that have more than one value.
        name: its name among several recommendations; empty where there is one.
        named: number of points to name, of those that can't be distinguished from it.
    """
    point = recommendation.point
    doubt = ""
    if point["caution"]:
        doubt = f" Doubtful: {point['caution']}."
    certainty = _certainty(recommendation, varying, named=named)
    lines = [
        f"Recommended for {goal_in_words(recommendation)}{f' ({name})' if name else ''}: "
        f"{trial_label(point, varying)}",
        f"{'; '.join(_figures(point, recommendation.objective.name))}.{doubt}",
        *_condition(recommendation, varying),
        " ".join(filter(None, [certainty, _unmeasured(recommendation)])),
        *_left_out(recommendation),
        *alternatives(recommendation, varying),
    ]
    if point["semantics"] != "exact":
        lines.append(
            f"Its updates are {point['semantics']}: what that costs in samples to a loss was not "
            "measured."
        )
    return lines


def goal_in_words(recommendation: Recommendation) -> str:
    """Name the goal of a recommendation: "the highest samples_per_s where workers<=8"."""
    goal = recommendation.goal
    objective = recommendation.objective
    words = f"the {'highest' if objective.maximize else 'lowest'} {objective.name}"
    if recommendation.has_other_semantics:
        words += f" of {' and '.join(('exact', *goal.allow))} updates"
    share = ""
    if goal.least_rate:
        share = f", with at least {goal.least_rate:.0%} of the best samples_per_s"
    return f"{words}{share}{f' where {goal.where}' if goal.where else ''}"


def quantity(name: str, value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Write a measured value with its unit, and its interval.

    >>> quantity("step_p99_s", 0.0482), quantity("samples_per_s", 812.34, 808.24, 816.44)
    ('48.20 ms', '812.3 ± 4.1 samples/s')
    >>> quantity("memory_peak_bytes", 2.0**30)
    '1,024 MiB'
    """
    if name.endswith("_per_s"):
        return f"{format_rate(value, low, high)} {name.removesuffix('_per_s')}/s"
    if name.endswith("_s"):
        return f"{format_ends(value * 1e3, low * 1e3, high * 1e3)} ms"
    if name.endswith("_bytes"):
        return f"{format_number(value / 2**20, digits=3)} MiB"
    return f"{name} {value:.4g}"


def as_json(recommendation: Recommendation) -> dict[str, Any]:
    """Give a recommendation as JSON values; unknown is None.

    Returns:
        `goal` (`maximize` or `minimize`, `where`, `allow`, `least_rate`), `point` (row of
        `over_launches`), `settings` (those that are not the default), `code` (`point`; `training`
        in plain PyTorch or null, then `no_training` names the settings that torch alone does not
        have; `command` that starts a script of the user in a shell, else null), `sure` (one of
        `dtsweep.inference.verdicts.Certainty`), `others` and `alternatives` (rows, as
        `Recommendation` has them), `unknown`, `slow` and `implausible` (counts of points left out),
        `undecided` (rows of points at a limit of the condition), `unmeasured` (what the unknown
        ones lack), `drift`.
    """
    code = {
        "point": point_code(recommendation.point),
        "training": training_code(recommendation.point),
        "no_training": why_no_training(recommendation.point),
        "command": shell_command(recommendation.point),
    }
    goal = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(recommendation.goal).items()
    }
    return {
        "goal": goal,
        "point": records_of(recommendation.point.to_frame().T.infer_objects())[0],
        "settings": settings_of(recommendation.point),
        "code": code,
        "sure": recommendation.sure,
        "others": records_of(recommendation.others),
        "alternatives": records_of(recommendation.alternatives),
        "unknown": recommendation.unknown,
        "unmeasured": list(recommendation.unmeasured),
        "slow": recommendation.slow,
        "implausible": recommendation.implausible,
        "undecided": records_of(recommendation.undecided),
        "drift": recommendation.drift,
    }


def _condition(recommendation: Recommendation, varying: Sequence[str]) -> list[str]:
    """Say whether the point meets the condition at 95 %, and name the points at its limits."""
    names = recommendation.condition_columns
    if not names:
        return []
    point = recommendation.point
    figures = ", ".join(_with_interval(point, name) for name in names)
    verdict = "It meets"
    if point["condition_verdict"] == ConditionVerdict.UNDECIDED:
        verdict = "Undecided at 95 % whether it meets"
    lines = [f"{verdict} {recommendation.goal.where}: {figures}."]
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
        lines.append(f"Also undecided: {'; '.join(listed)}{more}.")
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
    if point["semantics"] == "local":
        step = "a mean step "
    words = {"latency_s": step, "memory_peak_bytes": "memory "}
    return [
        words.get(name, "") + quantity(name, float(point[name]), *ends[name]) for name in measured
    ]


def _certainty(recommendation: Recommendation, varying: Sequence[str], *, named: int) -> str:
    rivals, tied = recommendation.others, recommendation.tied
    if recommendation.sure is Certainty.ONLY_CANDIDATE:
        if recommendation.unknown:
            return "No other point is known to be a candidate."
        return "No other point is a candidate."
    if recommendation.sure is Certainty.SIGNIFICANT:
        than = "the other candidate"
        if len(rivals) != 1:
            than = f"each of {len(rivals)} other candidates"
        runner_up = _runner_up(recommendation, varying)
        return f"Sure: significantly better than {than}. {runner_up}{_kinds(recommendation)}"
    if recommendation.sure is Certainty.SINGLE_LAUNCH:
        return (
            "Best of one launch each. Launches of one point may differ by as much: "
            f"{_repeats(recommendation)} would show it. {_runner_up(recommendation, varying)}"
        )
    if recommendation.objective.is_exact:
        return (
            f"{count_of(len(tied), 'other candidate')} with the same value. It has the highest "
            "samples_per_s of these."
        )
    of = f" its {recommendation.objective.name}"
    names = [
        f"{trial_label(row, varying)} ({_ratio(row, of)})" for _, row in tied.head(named).iterrows()
    ]
    unnamed = ""
    if len(tied) > named:
        unnamed = f" and {len(tied) - named} more"
    by = ""
    if tied["ratio_low"].isna().any():
        by = " by one launch each"
    if by and recommendation.drift is None:
        by += " without canaries"
    return (
        f"Not distinguishable{by} from {'; '.join(names)}{unnamed}. {_why(recommendation)} "
        f"{_way_to_separate(recommendation, varying)}"
    )


def _why(recommendation: Recommendation) -> str:
    """Say why the recommended point is taken of those that are not distinguishable."""
    tied, point = recommendation.tied, recommendation.point
    name = recommendation.objective.name
    if recommendation.objective.maximize:
        better = tied[tied[name] > point[name]]
    else:
        better = tied[tied[name] < point[name]]
    if better.empty:
        return "It has the best mean of these."
    reasons = []
    if (better["workers"] > point["workers"]).any():
        reasons.append("it needs fewer workers")
    alike = better[better["workers"] == point["workers"]]
    if (alike["latency_s"] * SHORTER >= point["latency_s"]).any():
        reasons.append("its steps are at most half as long")
    if not reasons:
        return "Points of better means are left out: another candidate significantly beats them."
    return f"It is taken because {' and '.join(reasons)}; its mean is within 5 % of the best."


def _way_to_separate(recommendation: Recommendation, varying: Sequence[str]) -> str:
    """Say how many more launches would separate the recommended point from the nearest one."""
    import pandas as pd

    tied = recommendation.tied
    if tied["ratio_low"].isna().any():
        return f"{_repeats(recommendation)} would test the difference."
    # The largest difference needs the fewest launches.
    nearest = tied.iloc[0]
    label = trial_label(nearest, varying)
    if pd.isna(nearest["more_launches"]):
        return f"It is practically equal to {label}: over 100 more launches would be needed."
    more = count_of(int(nearest["more_launches"]), "more launch")
    return f"About {more} of each would separate it from {label}."


def _kinds(recommendation: Recommendation) -> str:
    """Explain a ± that is wider than the comparison; empty where it is not."""
    point, objective = recommendation.point, recommendation.objective.name
    runner_up = recommendation.others.iloc[0]
    low, high = (float(point.get(f"{objective}{end}", math.nan)) for end in ("_low", "_high"))
    own_width = (high - low) / abs(float(point[objective]))
    compared_width = (runner_up["ratio_high"] - runner_up["ratio_low"]) / runner_up["ratio"]
    if math.isnan(own_width) or own_width <= compared_width:
        return ""
    return (
        " The comparison is more precise than ± above: it pools the launches of all points, and "
        "what a launch does to all its points cancels."
    )


def _repeats(recommendation: Recommendation) -> str:
    """Name what gives more launches; runs in one process have one launch of each point."""
    if recommendation.point["harness"] == "in_process":
        return "A run on Ray with `Measure(repeats=3)`"
    return "`Measure(repeats=3)`"


def _unmeasured(recommendation: Recommendation) -> str:
    """Count the points that lack a value, and say how to measure it; empty if there are none."""
    if not recommendation.unknown:
        return ""
    columns = recommendation.unmeasured
    return (
        f"Left out: {count_of(recommendation.unknown, 'point')} of which {' or '.join(columns)} is "
        f"not known{way_to_measure(columns)}."
    )


def _left_out(recommendation: Recommendation) -> list[str]:
    """Count the points that are too slow or implausible, a line each."""
    lines = []
    if recommendation.slow:
        count = count_of(recommendation.slow, "point")
        lines.append(f"Left out: {count} with {too_slow(recommendation)}.")
    if recommendation.implausible:
        count = count_of(recommendation.implausible, "point")
        lines.append(f"Left out: {count} whose numbers contradict each other.")
    return lines


def _doubts(recommendation: Recommendation) -> list[str]:
    """Say what puts the verdict in doubt: the machine's drift, and single launches."""
    lows = (
        recommendation.others["ratio_low"],
        *(recommendation.alternatives[f"{name}_ratio_low"] for name in RATIOS),
    )
    is_tested = not any(low.isna().any() for low in lows)
    drift = recommendation.drift
    if drift is None:
        if is_tested:
            return []
        return [
            "The drift of the machine is not known, so one launch each shows no difference. "
            "Canaries (`Measure(canary=True)`) would show the drift."
        ]
    if is_tested and drift <= CANARY_DRIFT:
        return []
    consequence = "ignore smaller differences of single launches"
    if is_tested:
        consequence = "the spread of launches contains it"
    return [f"The machine drifted by at most {percent_up(drift)}: {consequence}."]


def _runner_up(recommendation: Recommendation, varying: Sequence[str]) -> str:
    row = recommendation.others.iloc[0]
    name = recommendation.objective.name
    return (
        f"Runner-up: {trial_label(row, varying)} (the recommended one has "
        f"{_ratio(row, f' its {name}')})."
    )


def _ratio(row: pd.Series[Any], of: str = "") -> str:
    """Write the ratio of the recommended point over another one: "1.072 times".

    The interval follows if the difference is tested.
    """
    interval = ""
    if not math.isnan(row["ratio_low"]):
        interval = f", {row['ratio_low']:.4g} to {row['ratio_high']:.4g}"
    return f"{row['ratio']:.4g} times{of}{interval}"
