"""What is done, what is to do, in which order: from a sweep and its results, without Ray."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtsweep.errors import SweepError, quoted
from dtsweep.provenance import versions, workload_digest
from dtsweep.results.statuses import FINAL
from dtsweep.sweep.axes import Candidate, worlds
from dtsweep.sweep.modes import MODE_FIELDS
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.settings import Measure, Sweep
from dtsweep.sweep.task import point_row, trial_name

Rows = Sequence[Mapping[str, Any]]

SESSION_START_S = 15.0
"""What the start of a session takes, until results say better."""

CANARY_TRIALS = 2
"""Trials of a launch from which on it has canaries: around a single one they would cost twice what they watch."""

CANARY_DRIFT = 0.02
"""A canary that differs by more from the others of its world, as a share, says that the machine has changed."""

COLUMN_TITLES = {"workload_digest": "source of the workload"}
"""What a column is called when it differs."""

TRIAL_REST_S = 0.5
"""What a trial takes beside its window, until results say better."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A point and a repeat, and what the plan says of it."""

    point: Point
    repeat: int
    trial_id: str
    why: str
    """Why it is to be run, or how it ended."""

    role: str = "trial"
    """`trial` or `canary`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All trials of a sweep."""

    to_run: Sequence[Trial]
    """In the order in which they run: repeat after repeat, in each world after world."""

    done: Sequence[Trial]
    """With final results."""

    skipped: Sequence[Candidate]
    """Each with its reason."""

    seconds: float
    """What the run is expected to take."""

    session_starts: int
    """Sessions that the run will start, if none fails."""


def make_plan(sweep: Sweep, found: Sequence[Candidate], rows: Rows, *, rerun: str | None = None) -> Plan:
    """Compare a sweep with its results.

    Args:
        sweep: the question.
        found: its candidates.
        rows: all attempts so far, the oldest first.
        rerun: None resumes; `failed` measures again what did not end `ok`; `all` everything.

    Raises:
        SweepError: the results are of another workload, version or resources.
    """
    stale = outdated(sweep, rows) if rerun != "all" else set()
    newest = {row["trial_id"]: row for row in rows}
    finished = {row["trial_id"] for row in rows if row["status"] == "ok"}
    to_run: list[Trial] = []
    done: list[Trial] = []
    points = [candidate.point for candidate in found if candidate.reason is None]
    for repeat in range(1, sweep.measure.repeats + 1):
        for point in _order(sweep, points, repeat=repeat):
            trial_id = trial_name(sweep, point, repeat=repeat)
            status = "ok" if trial_id in finished else newest.get(trial_id, {}).get("status")
            why, is_done = ("measured otherwise", False) if trial_id in stale else _state(status, rerun=rerun)
            why += _differs(sweep, newest.get(trial_id))
            trial = Trial(point=point, repeat=repeat, trial_id=trial_id, why=why)
            (done if is_done else to_run).append(trial)
    skipped = [candidate for candidate in found if candidate.reason is not None]
    return Plan(
        to_run=to_run,
        done=done,
        skipped=skipped,
        seconds=_expected_s(sweep, to_run, rows),
        session_starts=len(groups_of(to_run, fresh=sweep.measure.fresh)),
    )


def new_skips(sweep: Sweep, skipped: Sequence[Candidate], rows: Rows) -> list[dict[str, Any]]:
    """Make a row for each skipped point whose reason is not stored yet."""
    known = {(row["trial_id"], row["reason"]) for row in rows if row["status"] == "skipped"}
    made = []
    for candidate in skipped:
        trial_id = trial_name(sweep, candidate.point, repeat=1, **candidate.overrides)
        if (trial_id, candidate.reason) not in known:
            row = {**point_row(sweep, candidate.point), **candidate.overrides}
            made.append({**row, "trial_id": trial_id, "status": "skipped", "reason": candidate.reason})
    return made


def outdated(sweep: Sweep, rows: Rows) -> set[str]:
    """Refuse results that can't be compared with what this sweep would add.

    Returns:
        Trials that were measured otherwise than the newest one, which is as this sweep would measure: what is
        left of results that `--rerun all` is renewing. They are to be measured again.

    Raises:
        SweepError: the newest trial differs from what this sweep would add; names in what, and the ways out.
    """
    now: dict[str, Any] = {
        "workload": type(sweep.workload).__name__,
        "workload_digest": workload_digest(sweep.workload, folder=sweep.file.parent if sweep.file else None),
        "cpus_per_worker": sweep.resources.cpus_per_worker,
        "gpus_per_worker": sweep.resources.gpus_per_worker,
        **{name: value for name, value in versions().items() if name != "python_version"},
    }
    differ: dict[str, str] = {}
    for row in {row["trial_id"]: row for row in rows if row["status"] == "ok"}.values():
        for name, value in {**now, **_environment(sweep, row)}.items():
            if row[name] is not None and value is not None and row[name] != value:
                differ[row["trial_id"]] = f"{COLUMN_TITLES.get(name, name)} {row[name]}, this sweep has {value}"
    newest = next((row["trial_id"] for row in reversed(rows) if row["status"] == "ok"), None)
    if newest in differ:
        ways = "measure all anew with --rerun all, or keep both with another --results"
        raise SweepError(f"these results have {differ[newest]}; {ways}")
    return set(differ)


def _environment(sweep: Sweep, row: Mapping[str, Any]) -> dict[str, str]:
    """The environment that this row would have now: variables that an axis sets are the point's own."""
    stored: dict[str, str] = json.loads(row["environment"] or "{}")
    swept = {name.removeprefix("env.") for name in sweep.axes if name.startswith("env.")}
    points_own = {name: value for name, value in stored.items() if name in swept}
    return {"environment": json.dumps({**sweep.resources.environment, **points_own}, sort_keys=True)}


def canaries(trials: Sequence[Trial]) -> dict[Any, Trial]:
    """For each world the fixed point that its launches measure at both ends, to show whether the machine has changed.

    The trial with the middle micro-batch as plain `ddp`: never larger than what the world runs itself.

    Args:
        trials: all of the plan, done ones too, so that a resumed run has the same canaries.
    """
    found = {}
    plain: dict[str, Any] = {"sync": "ddp", **dict.fromkeys(MODE_FIELDS), "accumulation": 1}
    for world in worlds([trial.point for trial in trials]):
        inside = [trial for trial in trials if trial.point.world == world]
        inside.sort(key=lambda trial: (trial.point.micro_batch, identity(trial.point)))
        middle = inside[len(inside) // 2]
        found[world] = replace(middle, point=replace(middle.point, **plain), role="canary", why="canary")
    return found


def _order(sweep: Sweep, points: Sequence[Point], *, repeat: int) -> list[Point]:
    """World after world, shuffled inside: slow drift of the machine falls on no point in particular."""
    ordered = []
    for world in worlds(points):
        inside = [point for point in points if point.world == world]
        random.Random(f"{sweep.seed}/{repeat}/{world}").shuffle(inside)
        ordered += inside
    return ordered


def _state(status: str | None, *, rerun: str | None) -> tuple[str, bool]:
    if rerun == "all":
        return "--rerun all", False
    if status is None or status == "skipped":
        return "new", False
    if status in FINAL and (status == "ok" or rerun != "failed"):
        return status if status == "ok" else f"{status} (--rerun failed measures it again)", True
    return f"was {status}", False


def _differs(sweep: Sweep, row: Mapping[str, Any] | None) -> str:
    """Say where a done trial was measured under other limits than the sweep's now."""
    if row is None or row["status"] != "ok" or not row["measure"]:
        return ""
    then = json.loads(row["measure"])
    now = {name: getattr(sweep.measure, name) for name in then if name not in ("repeats", "canary")}
    other = [f"{name}={quoted(then[name])}" for name in now if then[name] != now[name]]
    return f", measured with {', '.join(other)}" if other else ""


def _expected_s(sweep: Sweep, trials: Sequence[Trial], rows: Rows) -> float:
    """Expect what finished trials took; without them a window between the shortest and the longest."""
    measured = [row for row in rows if row["status"] == "ok" and row["window_s"]]
    known = [row["startup_s"] for row in measured if row["startup_s"]]
    each = (
        sum((row["trial_s"] or row["window_s"]) + (row["overhead_s"] or 0) for row in measured) / len(measured)
        if measured
        else _window_s(sweep.measure) + TRIAL_REST_S
    )
    start = sum(known) / len(known) if known else SESSION_START_S
    groups = groups_of(trials, fresh=sweep.measure.fresh)
    windows = len(trials) + 2 * sum(len(group) >= CANARY_TRIALS for group in groups) * sweep.measure.canary
    return (windows * each + len(groups) * start) / sweep.resources.concurrent


def _window_s(measure: Measure) -> float:
    shortest = min(measure.min_seconds, measure.max_seconds)
    return shortest if measure.half_width is None else math.sqrt(max(shortest, TRIAL_REST_S) * measure.max_seconds)


def counts(plan: Plan) -> dict[str, int]:
    """How many trials are to run, done and skipped."""
    return {"to_run": len(plan.to_run), "done": len(plan.done), "skipped": len(plan.skipped)}


def reasons(plan: Plan) -> Counter[str]:
    """How many points are skipped for each reason."""
    return Counter(str(candidate.reason) for candidate in plan.skipped)


def groups_of(trials: Sequence[Trial], *, fresh: bool) -> list[list[Trial]]:
    """Split a plan's trials into those that share a launch, in its order."""
    groups: dict[Any, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.trial_id if fresh else (trial.repeat, trial.point.world), []).append(trial)
    return list(groups.values())
