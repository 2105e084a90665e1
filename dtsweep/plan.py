"""What is done, what is to do, in which order: from a sweep and its results, without Ray."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtsweep.axes import Candidate, worlds
from dtsweep.digest import workload_digest
from dtsweep.errors import SweepError
from dtsweep.order import point_row, trial_name
from dtsweep.point import Point
from dtsweep.schema import FINAL
from dtsweep.sweep import Sweep
from dtsweep.versions import versions

Rows = Sequence[Mapping[str, Any]]

SESSION_START_S = 15.0
"""What the start of a session takes, until results say better."""

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

    def launches(self) -> int:
        """Sessions that the run will start, if none fails."""
        return len({(trial.repeat, trial.point.world) for trial in self.to_run})


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
    if rerun != "all":
        refuse_mixing(sweep, rows)
    newest = {row["trial_id"]: row for row in rows}
    finished = {row["trial_id"] for row in rows if row["status"] == "ok"}
    to_run: list[Trial] = []
    done: list[Trial] = []
    points = [candidate.point for candidate in found if candidate.reason is None]
    for repeat in range(1, sweep.measure.repeats + 1):
        for point in _order(sweep, points, repeat=repeat):
            trial_id = trial_name(sweep, point, repeat=repeat)
            status = "ok" if trial_id in finished else newest.get(trial_id, {}).get("status")
            why, is_done = _state(status, rerun=rerun)
            why += _differs(sweep, newest.get(trial_id))
            trial = Trial(point=point, repeat=repeat, trial_id=trial_id, why=why)
            (done if is_done else to_run).append(trial)
    skipped = [candidate for candidate in found if candidate.reason is not None]
    return Plan(to_run=to_run, done=done, skipped=skipped, seconds=_expected_s(sweep, to_run, rows))


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


def refuse_mixing(sweep: Sweep, rows: Rows) -> None:
    """Refuse results that can't be compared with what this sweep would add.

    Raises:
        SweepError: names what differs, and the ways out.
    """
    folder = sweep.file.parent if sweep.file else None
    now: dict[str, Any] = {
        "workload": type(sweep.workload).__name__,
        "workload_digest": workload_digest(sweep.workload, folder=folder),
        "cpus_per_worker": sweep.resources.cpus_per_worker,
        **{name: value for name, value in versions().items() if name != "python_version"},
    }
    if sweep.resources.gpus_per_worker is not None:
        now["gpus_per_worker"] = sweep.resources.gpus_per_worker
    words = {"workload_digest": "source of the workload"}
    for row in rows:
        if row["status"] != "ok":
            continue
        for name, value in {**now, **_environment(sweep, row)}.items():
            if row[name] is not None and row[name] != value:
                raise SweepError(
                    f"these results have {words.get(name, name)} {row[name]}, this sweep has {value}; "
                    "measure all anew with --rerun all, or keep both with another --results"
                )


def _environment(sweep: Sweep, row: Mapping[str, Any]) -> dict[str, str]:
    """The environment that this row would have now: variables that an axis sets are the point's own."""
    stored: dict[str, str] = json.loads(row["environment"] or "{}")
    swept = {name.removeprefix("env.") for name in sweep.axes if name.startswith("env.")}
    now = {**{n: v for n, v in stored.items() if n in swept}, **sweep.resources.environment}
    return {"environment": json.dumps({**now, **{n: v for n, v in stored.items() if n in swept}}, sort_keys=True)}


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
    now = {name: getattr(sweep.measure, name) for name in then if name != "repeats"}
    other = [f"{name}={then[name]:g}" for name in now if then[name] != now[name]]
    return f", measured with {', '.join(other)}" if other else ""


def _expected_s(sweep: Sweep, trials: Sequence[Trial], rows: Rows) -> float:
    """Expect what finished trials took; without them the shortest window."""
    measured = [row for row in rows if row["status"] == "ok" and row["window_s"]]
    starts = [row["startup_s"] for row in measured if row["startup_s"]]
    each = (
        sum(row["window_s"] + (row["overhead_s"] or 0) for row in measured) / len(measured)
        if measured
        else (min(sweep.measure.min_seconds, sweep.measure.max_seconds) + TRIAL_REST_S)
    )
    start = sum(starts) / len(starts) if starts else SESSION_START_S
    sessions = len({(t.repeat, t.point.world, t.trial_id if sweep.measure.fresh else "") for t in trials})
    return (len(trials) * each + sessions * start) / sweep.resources.concurrent


def counts(plan: Plan) -> dict[str, int]:
    """How many trials are to run, done and skipped."""
    return {"to_run": len(plan.to_run), "done": len(plan.done), "skipped": len(plan.skipped)}


def reasons(plan: Plan) -> Counter[str]:
    """How many points are skipped for each reason."""
    return Counter(str(candidate.reason) for candidate in plan.skipped)
