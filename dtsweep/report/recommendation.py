"""A recommendation in the terminal, in words, and as JSON values."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.candidates import way_to_measure
from dtsweep.inference.verdicts import Certainty
from dtsweep.report.alternatives import RATIOS, alternatives, too_slow
from dtsweep.report.code import point_code, settings_of
from dtsweep.report.labels import model_columns, model_label, trial_label
from dtsweep.report.program import training_code, why_no_training
from dtsweep.report.records import records_of
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


def print_all(found: Sequence[Recommendation], *, console: Console) -> None:
    """Print recommendations, each with the code to use it."""
    import pandas as pd

    for each, name in zip(found, names_of(found), strict=True):
        rows = [each.point.to_frame().T, each.others, each.alternatives]
        points = pd.concat(
            [rows[0].astype(object), *(row.astype(object) for row in rows[1:])], ignore_index=True
        )
        varying = [c for c in setting_columns(points) if points[c].nunique(dropna=False) > 1]
        first, *lines = in_words(each, varying=varying, name=name)
        say(console, first, style="bold")
        say(console, "\n".join([*lines, *_doubts(each)]))
        _print_code(each.point, console=console)


def _print_code(point: pd.Series[Any], *, console: Console) -> None:
    """Print a point as code, and its program or why there is none."""
    # Code is never wrapped: a text or a comment that goes on in the next line is another program.
    console.print(plain(f"\nTo use it: {point_code(point)}"), soft_wrap=True)
    code = training_code(point)
    if code is None:
        say(console, f"No program in plain PyTorch: {why_no_training(point)}.")
        return
    say(console, "In plain PyTorch:\n")
    console.print(plain(f"{textwrap.indent(code, '    ')}\n"), soft_wrap=True)


def names_of(found: Sequence[Recommendation]) -> list[str]:
    """Name the model and the environment of each recommendation.

    Each of both is named if there are several of it; else the name is empty.
    """
    import pandas as pd

    if not found:
        return []
    chosen = pd.DataFrame([each.point for each in found])
    models, environments = (
        chosen[name].nunique(dropna=False) > 1 for name in ("model_digest", "env_id")
    )
    telling = []
    if models:
        telling = model_columns(chosen)
    named = [
        (
            model_label(row, telling) if models else "",
            f"env_id {row['env_id']}" if environments else "",
        )
        for _, row in chosen.iterrows()
    ]
    return [" · ".join(filter(None, words)) for words in named]


def in_words(
    found: Recommendation, *, varying: Sequence[str], name: str = "", named: int = _SHOWN
) -> list[str]:
    """Say what is recommended, how sure that is and what it gives up; the first line says what for.

    Args:
        found: the recommendation.
        varying: setting columns of points that have more than one value.
        name: what tells it from other recommendations; empty where there is one.
        named: number of points to name, of those that can't be distinguished from it.
    """
    point = found.point
    doubt = ""
    if point["caution"]:
        doubt = f" Doubtful: {point['caution']}."
    lines = [
        f"Recommended for {goal_in_words(found)}{f' ({name})' if name else ''}: "
        f"{trial_label(point, varying)}",
        f"{'; '.join(_figures(point, found.objective.name))}.{doubt}",
        " ".join(filter(None, [_how_sure(found, varying, named=named), _unmeasured(found)])),
        *_left_out(found),
        *alternatives(found, varying),
    ]
    if point["semantics"] != "exact":
        lines.append(
            f"Its updates are {point['semantics']}: what that costs in samples to a loss was not "
            "measured."
        )
    return lines


def goal_in_words(found: Recommendation) -> str:
    """Name what a recommendation is best at: "the highest samples_per_s where workers<=8"."""
    goal = found.goal
    words = f"the {'highest' if found.objective.maximize else 'lowest'} {found.objective.name}"
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


def as_json(found: Recommendation) -> dict[str, Any]:
    """Give a recommendation as JSON values; unknown is None.

    Returns:
        `goal` (`maximize` or `minimize`, `where`, `allow`, `least_rate`), `point` (row of
        `over_launches`), `settings` (those that are not the default), `code` (`point`; `training`
        in plain PyTorch or null, then `no_training` names the settings that torch alone does not
        have), `sure` (one of `dtsweep.inference.verdicts.Certainty`), `others` and `alternatives`
        (rows, as `Recommendation` has them), `unknown`, `slow` and `implausible` (counts of points
        left out), `unmeasured` (what the unknown ones lack), `drift`.
    """
    code = {
        "point": point_code(found.point),
        "training": training_code(found.point),
        "no_training": why_no_training(found.point),
    }
    goal = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(found.goal).items()
    }
    return {
        "goal": goal,
        "point": records_of(found.point.to_frame().T.infer_objects())[0],
        "settings": settings_of(found.point),
        "code": code,
        "sure": found.sure,
        "others": records_of(found.others),
        "alternatives": records_of(found.alternatives),
        "unknown": found.unknown,
        "unmeasured": list(found.unmeasured),
        "slow": found.slow,
        "implausible": found.implausible,
        "drift": found.drift,
    }


def _figures(point: pd.Series[Any], objective: str) -> list[str]:
    import pandas as pd

    names = dict.fromkeys([objective, "samples_per_s", "latency_s", "memory_peak_bytes"])
    ends = {
        name: [float(point.get(f"{name}{end}", math.nan)) for end in ("_low", "_high")]
        for name in names
    }
    known = [name for name in names if pd.notna(point[name])]
    words = {"latency_s": "a step ", "memory_peak_bytes": "memory "}
    return [words.get(name, "") + quantity(name, float(point[name]), *ends[name]) for name in known]


def _how_sure(found: Recommendation, varying: Sequence[str], *, named: int) -> str:
    others, tied = found.others, found.tied
    if found.sure is Certainty.ONLY_CANDIDATE:
        if found.unknown:
            return "No other point is known to be a candidate."
        return "No other point is a candidate."
    if found.sure is Certainty.SIGNIFICANT:
        than = "the other candidate"
        if len(others) != 1:
            than = f"each of {len(others)} other candidates"
        return f"Sure: launches tell that it is better than {than}. {_runner_up(found, varying)}"
    if found.sure is Certainty.SINGLE_LAUNCH:
        return (
            f"Best by one launch each: whether launches differ by as much, {_repeats(found)} tell. "
            f"{_runner_up(found, varying)}"
        )
    if found.objective.is_exact:
        return (
            f"{count_of(len(tied), 'other candidate')} as good; of these it has the highest "
            "samples_per_s."
        )
    names = [
        f"{trial_label(row, varying)} ({_ratio(row)})" for _, row in tied.head(named).iterrows()
    ]
    more = ""
    if len(tied) > named:
        more = f" and {len(tied) - named} more"
    if found.objective.maximize:
        is_best = tied["ratio"].ge(1).all()
    else:
        is_best = tied["ratio"].le(1).all()
    why = "it holds the fewest workers, at a mean within 5 % of the best"
    if is_best:
        why = "it has the best mean"
    by = ""
    if tied["ratio_low"].isna().any():
        by = " by one launch each"
    by += " and without canaries" if by and found.drift is None else ""
    told_by = f"More launches ({_repeats(found)}) would tell."
    return f"Can't tell it{by} from {'; '.join(names)}{more}: of these {why}. {told_by}"


def _repeats(found: Recommendation) -> str:
    """Name what gives more launches; runs in one process have one launch of each point."""
    if found.point["harness"] == "in_process":
        return "repeats on Ray"
    return "repeats"


def _unmeasured(found: Recommendation) -> str:
    """Count the points that lack a value, and say how to measure it; empty if there are none."""
    if not found.unknown:
        return ""
    wanted = f"{' or '.join(found.unmeasured)} is not known{way_to_measure(found.unmeasured)}"
    return f"Left out: {count_of(found.unknown, 'point')} of which {wanted}."


def _left_out(found: Recommendation) -> list[str]:
    """Count the points that something else speaks against, a line each."""
    slow, implausible = (count_of(count, "point") for count in (found.slow, found.implausible))
    lines = []
    if found.slow:
        lines = [f"Left out: {slow} with {too_slow(found)}."]
    if not found.implausible:
        return lines
    return [*lines, f"Left out: {implausible} whose numbers contradict each other."]


def _doubts(found: Recommendation) -> list[str]:
    """Say what puts the verdict in doubt: the machine's drift, and single launches."""
    rows = (
        found.others["ratio_low"],
        *(found.alternatives[f"{name}_ratio_low"] for name in RATIOS),
    )
    is_tested = not any(low.isna().any() for low in rows)
    if found.drift is None:
        way = (
            f"one launch each tells nothing until canaries say (canary=True), or {_repeats(found)}"
        )
        if is_tested:
            return []
        return [f"How far the machine drifted is not known: {way}."]
    if is_tested and found.drift <= CANARY_DRIFT:
        return []
    told = "one launch each tells no smaller difference"
    if is_tested:
        told = "the spread of launches has that in it"
    return [
        f"As far as its canaries tell, the machine drifted by at most {percent_up(found.drift)}: "
        f"{told}."
    ]


def _runner_up(found: Recommendation, varying: Sequence[str]) -> str:
    row = found.others.iloc[0]
    name = found.objective.name
    return (
        f"Runner-up: {trial_label(row, varying)} (the recommended one has "
        f"{_ratio(row, f' its {name}')})."
    )


def _ratio(row: pd.Series[Any], of: str = "") -> str:
    """Write the ratio of the recommended point over another one: "1.07 times".

    The interval follows if the difference is tested.
    """
    known = ""
    if not math.isnan(row["ratio_low"]):
        known = f", {row['ratio_low']:.3g} to {row['ratio_high']:.3g}"
    return f"{row['ratio']:.3g} times{of}{known}"
