"""Plan of a run, from a sweep and its results, without Ray: trials done, trials to run, order."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache, partial
from typing import Any

from dtsweep.errors import SweepError, quoted
from dtsweep.plan.estimate import Duration, expected_duration, starts
from dtsweep.plan.pruning import FittingPoints, out_of_memory
from dtsweep.plan.trial import Trial
from dtsweep.provenance.sources import sources_of
from dtsweep.provenance.versions import versions
from dtsweep.results.current_attempt import current_attempts
from dtsweep.results.statuses import FINAL
from dtsweep.sweep.axes import Candidate, by_world
from dtsweep.sweep.point import DEFAULTS, Point, World, identity
from dtsweep.sweep.secret import hidden
from dtsweep.sweep.settings import Measure, Sweep
from dtsweep.sweep.task import trial_name

Rows = Sequence[Mapping[str, Any]]

PLANNED_BY = frozenset(
    {
        *(
            "trial_id",
            "harness",
            "role",
            "status",
            "reason",
            "session",
            "workload",
            "workload_digest",
            "sources",
        ),
        *("environment", "measure", "devices", "cpus_per_worker", "gpus_per_worker"),
        "row_number",
        *("window_s", "startup_s", "nodes_wait_s", "trial_s", "overhead_s"),
        *("dtsweep_version", "torch_version", "ray_version", "python_version", "numpy_version"),
    }
)
"""Columns of the attempts that a plan and its run read, without the workloads' fields."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All trials of a sweep."""

    to_run: Sequence[Trial]
    """In the planned order: repeat after repeat, in each world after world.

    `driver.prepare` may join sessions.
    """

    done: Sequence[Trial]
    """With final results."""

    skipped: Sequence[Candidate]
    """Each with its reason."""

    duration: Duration
    """Expected duration of the run."""

    session_starts: int
    """Sessions that the run will start, if none fails."""

    rows: Rows
    """All attempts so far of the harness that it was made for, the oldest first."""

    fine: Sequence[Point] = ()
    """Points that are done and `ok`."""


def make_plan(
    sweep: Sweep,
    candidates: Sequence[Candidate],
    rows: Rows,
    *,
    rerun: str | None = None,
    harness: str = "ray",
) -> Plan:
    """Compare a sweep with its results.

    Args:
        sweep: the question.
        candidates: its points, the skipped ones with their reason.
        rows: all attempts so far, the oldest first.
        rerun: None resumes; `failed` measures again what did not end `ok`; `all` everything.
        harness: what will start the ranks; rows of another one count for nothing.

    Raises:
        SweepError: the results are of another workload, version or resources.
    """
    rows = [row for row in rows if row["harness"] == harness]
    indices = sorted(current_attempts(rows).values())
    current = {rows[index]["trial_id"]: rows[index] for index in indices}
    stale = {}
    if rerun != "all":
        stale = outdated(sweep, list(current.values()))
    differs = cache(partial(_differs, sweep.measure))
    to_run: list[Trial] = []
    done: list[Trial] = []
    inside = by_world(candidate.point for candidate in candidates if candidate.reason is None)
    for repeat in range(1, sweep.measure.repeats + 1):
        for point in _in_order(sweep, inside, repeat=repeat):
            trial_id = trial_name(sweep, point, repeat=repeat)
            row = current.get(trial_id)
            if trial_id in stale:
                why, is_done = (stale[trial_id], False)
            else:
                why, is_done = _state(row, rerun=rerun)
            if row is not None and row["status"] == "ok" and row["measure"]:
                why += differs(row["measure"])
            trial = Trial(point=point, repeat=repeat, trial_id=trial_id, why=why)
            (done if is_done else to_run).append(trial)
    full, fine = (
        [t.point for t in done if current[t.trial_id]["status"] == status]
        for status in ("oom_device", "ok")
    )
    to_run, candidates = _pruned(sweep, to_run, candidates, full=full, fine=fine)
    skipped = [candidate for candidate in candidates if candidate.reason is not None]
    return Plan(
        to_run=to_run,
        done=done,
        skipped=skipped,
        duration=expected_duration(sweep, to_run, rows),
        session_starts=starts(sweep, to_run),
        rows=rows,
        fine=fine,
    )


def outdated(sweep: Sweep, current: Rows) -> dict[str, str]:
    """Refuse results that can't be compared with what this sweep would add.

    Args:
        sweep: the question.
        current: the current attempt of each trial, the oldest first.

    Returns:
        Why trials are to be measured again, by their ids: `ok` ones with another workload source,
        data, versions or resources than the newest, which agrees (an interrupted `--rerun all`
        leaves them), and those that failed by another source.

    Raises:
        SweepError: the newest trial differs from what this sweep would add; names in what, and the
            ways out.
    """
    sources = sources_of(sweep.workload, file=sweep.file)
    settings = {
        "workload": type(sweep.workload).__name__,
        "cpus_per_worker": sweep.resources.cpus_per_worker,
        "gpus_per_worker": sweep.resources.gpus_per_worker,
        **{name: value for name, value in versions().items() if name != "python_version"},
    }
    differ: dict[str, str] = {}
    measured = [row for row in current if row["status"] == "ok"]
    for row in measured:
        now = {**settings, **_environment(sweep, row)}
        changes = sources.differ_from(row)
        if setting := _other_setting(row, now):
            differ[row["trial_id"]] = f"with {setting}"
        elif changes:
            differ[row["trial_id"]] = f"before {changes}"
    newest = None
    if measured:
        newest = measured[-1]["trial_id"]
    if newest in differ:
        # Under another name the old rows stay next to the new ones.
        keep = "keep both with another --results"
        again = "measure everything again with --rerun all, or "
        if differ[newest].startswith("with workload "):
            ways = keep
        else:
            ways = again + keep
        raise SweepError(f"these results were measured {differ[newest]}; {ways}")
    failed = [row for row in current if row["status"] in FINAL - {"ok"}]
    mended = {row["trial_id"]: (row["status"], sources.differ_from(row)) for row in failed}
    return {
        **{
            trial_id: f"was {status} before {changes}"
            for trial_id, (status, changes) in mended.items()
            if changes
        },
        **{trial_id: f"measured {difference}" for trial_id, difference in differ.items()},
    }


def _other_setting(row: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Say which setting of a row is another than now.

    What one of the two does not know is not a difference.
    """
    for name, value in now.items():
        if row[name] is not None and value is not None and row[name] != value:
            return f"{name} {row[name]}, this sweep has {value}"
    return None


def _environment(sweep: Sweep, row: Mapping[str, Any]) -> dict[str, str]:
    """Environment that this row would have now; variables of an axis belong to the point."""
    stored: dict[str, str] = json.loads(row["environment"] or "{}")
    swept = {name.removeprefix("env.") for name in sweep.axes if name.startswith("env.")}
    points_own = {name: value for name, value in stored.items() if name in swept}
    return {
        "environment": json.dumps(
            hidden({**sweep.resources.environment, **points_own}), sort_keys=True
        )
    }


def _in_order(
    sweep: Sweep, inside: Mapping[World, Sequence[Point]], *, repeat: int
) -> Iterator[Point]:
    """Shuffle points within each world, so that slow drift of the machine hits no point more."""
    for world, points in inside.items():
        shuffled = [*points]
        random.Random(f"{sweep.seed}/{repeat}/{astuple(world)}").shuffle(shuffled)
        yield from shuffled


def _state(row: Mapping[str, Any] | None, *, rerun: str | None) -> tuple[str, bool]:
    """Reason to run a trial that has this attempt; or its outcome."""
    if rerun == "all":
        return "--rerun all", False
    status = None
    if row:
        status = row["status"]
    if status is None or status == "skipped":
        return "new", False
    if status in FINAL and (status == "ok" or rerun != "failed"):
        return status if status == "ok" else f"{status} (--rerun failed measures it again)", True
    return f"was {status}", False


def _pruned(
    sweep: Sweep,
    to_run: list[Trial],
    candidates: Sequence[Candidate],
    *,
    full: Sequence[Point],
    fine: Sequence[Point],
) -> tuple[list[Trial], Sequence[Candidate]]:
    """Skip points that would run out of device memory as others did, in all their repeats."""
    reasons = {}
    if sweep.measure.prune and full:
        reasons = out_of_memory(to_run, full, fine=FittingPoints(fine))
    if not reasons:
        return to_run, candidates
    points = {
        identity(trial.point): reasons[trial.trial_id]
        for trial in to_run
        if trial.trial_id in reasons
    }
    remaining = [trial for trial in to_run if trial.trial_id not in reasons]
    return remaining, [
        replace(candidate, reason=candidate.reason or points.get(identity(candidate.point)))
        for candidate in candidates
    ]


def _differs(measure: Measure, stored: str) -> str:
    """Name the limits of a done trial that differ from the present ones.

    `stored` is the trial's settings as JSON.
    """
    then = json.loads(stored)
    # Another version may have had other settings: what only one of the two knows is no difference.
    now = {
        name: value
        for name, value in asdict(measure).items()
        if name not in ("repeats", "canary", "prune")
    }
    changed = [
        f"{name}={quoted(then[name])}" for name in now if name in then and then[name] != now[name]
    ]
    if not changed:
        return ""
    return f", measured with {', '.join(changed)}"


def counts(plan: Plan) -> dict[str, int]:
    """Numbers of trials to run, done and skipped."""
    return {"to_run": len(plan.to_run), "done": len(plan.done), "skipped": len(plan.skipped)}


def reasons(plan: Plan) -> Counter[str]:
    """Number of skipped points for each reason."""
    return Counter(str(candidate.reason) for candidate in plan.skipped)


def unread_everywhere(plan: Plan) -> dict[str, Any]:
    """Axes whose every value is skipped by points that don't read it, with the default to add."""
    planned = [
        *(trial.point for trial in (*plan.to_run, *plan.done)),
        *(skipped.point for skipped in plan.skipped),
    ]
    unread = dict.fromkeys(
        point.unread_field for point in planned if point.unread_field is not None
    )
    return {
        name: DEFAULTS[name]
        for name in unread
        if all(getattr(point, name) != DEFAULTS[name] for point in planned)
    }
