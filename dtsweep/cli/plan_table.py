"""Terminal and JSON renderers of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dtsweep.driver.progress import short_name
from dtsweep.plan.plan import Plan, counts, reasons
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point
from dtsweep.sweep.values import workload_fields
from dtsweep.text import count_of, duration, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

_TRIALS_LISTED = 60
"""Trials that are listed one by one; of more only the counts are shown."""


_REASONS_LISTED = 20
"""Reasons to skip points that are listed, the most frequent ones."""


def print_plan(
    plan: Plan,
    misfits: Mapping[str, str] | None,
    *,
    console: Console,
    where: str,
    axes: Iterable[str],
) -> None:
    """Print what a run would do: counts, reasons, order and expected time.

    `misfits` has the trials that don't fit on the cluster; it is None where no cluster was asked.
    """
    counted = counts(plan)
    words = [f"{count_of(counted['to_run'], 'trial')} to run"]
    words += [f"{counted[name]} {name}" for name in ("done", "skipped")]
    say(console, f"{', '.join(words)} -> {where}", style="bold")
    planned = [*plan.to_run, *plan.done]
    listed = planned[:_TRIALS_LISTED]
    if listed:
        numbers = [str(number) for number in range(1, len(plan.to_run) + 1)] + [""] * len(plan.done)
        columns = {
            "#": numbers[:_TRIALS_LISTED],
            "repeat": [str(trial.repeat) for trial in listed],
            "point": [short_name(trial.point, axes) for trial in listed],
            "state": [(misfits or {}).get(trial.trial_id, trial.why) for trial in listed],
        }
        print_table(columns, console=console)
    if more := planned[_TRIALS_LISTED:]:
        say(console, f"and {len(more)} more")
    _print_skipped(plan, console=console)
    if plan.to_run:
        sessions = count_of(plan.session_starts, "session")
        low, high = duration(plan.duration.low_s), duration(plan.duration.high_s)
        say(
            console,
            f"{low} to {high} with {sessions} to start, in the order above; {_basis(plan)}",
        )
    if plan.question is not None and plan.to_run:
        say(console, _rounds(plan, plan.question))
    elif plan.question is not None and plan.done:
        say(console, "no round follows; a run prints the answer")
    if plan.last_round is not None and plan.last_round.certificate is not None:
        say(console, plan.last_round.certificate.words)
    if misfits is None:
        say(console, "feasibility not checked: --address asks a cluster")
    else:
        say(console, f"{len(misfits)} trials don't fit")


def _print_skipped(plan: Plan, *, console: Console) -> None:
    """Print the most frequent reasons to skip points, and count the others."""
    skipped = reasons(plan).most_common()
    for reason, count in skipped[:_REASONS_LISTED]:
        say(console, f"skipped {count}: {reason}")
    if more := sum(count for _, count in skipped[_REASONS_LISTED:]):
        say(console, f"skipped {more} more for other reasons")


def _rounds(plan: Plan, question: Question) -> str:
    """Say what follows the trials that are planned so far."""
    words = (
        f"then rounds of the contenders, at most {question.max_launches} launches of a point and "
        f"{plan.most_launches} in all"
    )
    if plan.last_round is not None and plan.last_round.is_search:
        return f"{_search(plan)}; {words}"
    return words


def _search(plan: Plan) -> str:
    """Say which points a search measures now."""
    now = f"{count_of(len(plan.to_run), 'point')} of {plan.points}, then points by expected gain"
    if not plan.done:
        now = f"first {now}"
    return now


def _basis(plan: Plan) -> str:
    """Say what the expected duration rests on."""
    if measured := plan.duration.measured:
        return f"estimated from {count_of(measured, 'measured trial')}"
    return "a guess: no trial is measured yet"


def plan_json(plan: Plan, misfits: Mapping[str, str] | None) -> dict[str, Any]:
    """Give the plan as JSON values; `feasible` is None where no cluster was asked."""
    certificate = plan.last_round and plan.last_round.certificate
    return {
        **counts(plan),
        "expected_low_s": plan.duration.low_s,
        "expected_high_s": plan.duration.high_s,
        "expected_from_trials": plan.duration.measured,
        "session_starts": plan.session_starts,
        "question": plan.question and asdict(plan.question),
        "most_launches": plan.most_launches,
        "certificate": certificate and asdict(certificate),
        "trials": [
            {
                **_fields(trial.point),
                "trial_id": trial.trial_id,
                "repeat": trial.repeat,
                "state": state,
                "why": trial.why,
                "feasible": None if misfits is None else trial.trial_id not in misfits,
            }
            for state, trials in (("to_run", plan.to_run), ("done", plan.done))
            for trial in trials
        ],
        "skipped_points": [
            {**_fields(c.point), **c.overrides, "reason": c.reason} for c in plan.skipped
        ],
    }


def _fields(point: Point) -> dict[str, Any]:
    workload = {
        f"workload_{name}": value for name, value in workload_fields(point.workload).items()
    }
    return {**point.columns(), **workload, "environment": dict(point.environment)}
