"""Plan of a run, from a sweep and its results, without Ray: trials done, trials to run, order."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial

from dtsweep.errors import SweepError
from dtsweep.plan.estimate import Duration, expected_duration, session_times
from dtsweep.plan.policy import Policy, Round, WholeGrid
from dtsweep.plan.pruning import FACTS, MeasuredPeaks, MemoryOutcome, peaks_of
from dtsweep.plan.rate_search import RateSearch, asks_for_rate
from dtsweep.plan.settle import Settle
from dtsweep.plan.trial import Row, Rows, Trial, can_take_turns
from dtsweep.provenance.sources import Sources, sources_of
from dtsweep.provenance.versions import versions
from dtsweep.results.current_attempt import current_attempts
from dtsweep.results.statuses import FINAL, RETRIED
from dtsweep.secret import hidden
from dtsweep.sweep.axes import Candidate, by_world
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point, World, identity
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import trial_name

PLANNED_BY = frozenset(
    {
        "trial_id",
        "harness",
        "role",
        "status",
        "reason",
        "session",
        "workload",
        "workload_digest",
        "sources",
        "environment",
        "devices",
        "cpus_per_worker",
        "gpus_per_worker",
        "row_number",
        "window_s",
        "startup_s",
        "nodes_wait_s",
        "trial_s",
        "overhead_s",
        "dtsweep_version",
        "torch_version",
        "ray_version",
        "python_version",
        "numpy_version",
        *FACTS,
    }
)
"""Columns of the attempts that a plan and its run read, without the workloads' fields."""


def policy_of(sweep: Sweep) -> Policy:
    """Choose the policy of a sweep: a plain grid, rounds until it is decided, or a search."""
    if sweep.question is None:
        return WholeGrid(sweep=sweep)
    if asks_for_rate(sweep):
        return RateSearch(sweep=sweep, question=sweep.question)
    if sweep.search is None:
        return Settle(sweep=sweep, question=sweep.question)
    from dtsweep.plan.search_policy import SearchPolicy

    return SearchPolicy(sweep=sweep, question=sweep.question, search=sweep.search)


@dataclass(frozen=True, kw_only=True)
class InRun:
    """Place of a plan in its run: who asks for trials, and what was done before."""

    policy: Policy | None = None
    """Says which trials are asked for; None is the sweep's own."""

    rows: Rows = ()
    """Attempts that it recorded, the oldest first, with all columns."""

    over: Collection[str] = frozenset()
    """Trials that it has handed out, or found impossible."""

    stale: Mapping[str, str] | None = None
    """`Plan.stale` of the first plan; None for the first plan itself."""


_FIRST_PLAN = InRun()


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

    peaks: Sequence[MemoryOutcome] = ()
    """Peaks of memory of trials that are done, and those that ran out of it."""

    axes: Sequence[str] = ()
    """Names of the sweep's axes: what distinguishes points."""

    stale: Mapping[str, str] = field(default_factory=dict)
    """Reasons to measure trials again in spite of a result, by `trial_id`."""

    question: Question | None = None
    """None of a plain grid."""

    last_round: Round | None = None
    """Round that is under way, or the last one."""

    most_launches: int | None = None
    """Launches after those that are planned, at most; None of a plain grid."""

    points: int = 0
    """Points of the sweep that can be measured."""

    def __repr__(self) -> str:
        """Count its trials."""
        counted = ", ".join(f"{count} {name}" for name, count in counts(self).items())
        return f"<Plan: {counted}>".replace("_", " ")


def make_plan(
    sweep: Sweep,
    candidates: Sequence[Candidate],
    rows: Rows,
    *,
    rerun: str | None = None,
    harness: str = "ray",
    in_run: InRun = _FIRST_PLAN,
) -> Plan:
    """Compare a sweep with its results.

    Args:
        sweep: the question.
        candidates: its points, the skipped ones with their reason.
        rows: all attempts that were stored before the run, the oldest first. Of a sweep with a
            question with all columns.
        rerun: None resumes; `failed` measures again what did not end `ok`; `all` everything.
        harness: what will start the ranks; rows of another one count for nothing.
        in_run: what the run has done before this plan.

    Raises:
        SweepError: the results are of another workload, version or resources.
    """
    policy = in_run.policy or policy_of(sweep)
    stored = [row for row in rows if row["harness"] == harness]
    stale = in_run.stale
    if stale is None:
        stale = {}
        if rerun != "all":
            stale = outdated(sweep, [*_current(stored).values()])
    # A search chooses by what failed, until that was measured again.
    replaced = _replaced(stored, stale, rerun=rerun, keeps_failed=sweep.search is not None)
    counting = [row for row in stored if row["trial_id"] not in replaced]
    points = [candidate.point for candidate in candidates if candidate.reason is None]
    rows = [*stored, *in_run.rows]
    current = _current(rows)
    state = partial(_state, stale=stale, rerun=rerun, over=in_run.over)
    over = {*in_run.over}
    while True:
        rounds = policy.rounds(points, [*counting, *in_run.rows], over=over)
        to_run, done = _sorted_out(sweep, rounds, current, state)
        peaks = peaks_of(done, current)
        reasons = _beyond_memory(sweep, to_run, peaks, current)
        if reasons.keys() <= over:
            break
        # They are not measured: the policy does not wait for them.
        over |= reasons.keys()
    remaining, candidates = _without(to_run, candidates, reasons)
    return Plan(
        to_run=remaining,
        done=done,
        skipped=[candidate for candidate in candidates if candidate.reason is not None],
        duration=expected_duration(sweep, remaining, rows),
        session_starts=len(session_times(sweep, remaining, rows)),
        rows=rows,
        peaks=peaks,
        axes=tuple(sweep.axes),
        stale=stale,
        question=sweep.question,
        last_round=rounds[-1] if rounds else None,
        most_launches=_most_launches(sweep, rounds, len(points)),
        points=len(points),
    )


def _most_launches(sweep: Sweep, rounds: Sequence[Round], points: int) -> int | None:
    """Give the launches that may follow the last round: of all open points, all that are left.

    A search may choose any of the points next.
    """
    if sweep.question is None or not rounds:
        return None
    last, most = rounds[-1], sweep.question.max_launches
    if not last.is_search or sweep.search is None:
        return len(last.points) * max(0, most - last.repeat)
    planned = sum(len(one.points) for one in rounds)
    return min(points, sweep.search.max_points or points) * most - planned


def _current(rows: Rows) -> dict[str, Row]:
    """The current attempt of each trial, the oldest first."""
    indices = sorted(current_attempts(rows).values())
    return {rows[index]["trial_id"]: rows[index] for index in indices}


def _replaced(
    stored: Rows, stale: Mapping[str, str], *, rerun: str | None, keeps_failed: bool
) -> set[str]:
    """Trials whose stored rows don't count for the policy: the run measures them again."""
    if rerun == "all":
        return {row["trial_id"] for row in stored}
    if rerun == "failed" and not keeps_failed:
        failed = (trial for trial, row in _current(stored).items() if row["status"] != "ok")
        return {*stale, *failed}
    return {*stale}


def _sorted_out(
    sweep: Sweep,
    rounds: Sequence[Round],
    current: Mapping[str, Row],
    state: Callable[..., tuple[str, bool | None]],
) -> tuple[list[Trial], list[Trial]]:
    """Trials of rounds that are to run, in order, and those that are done."""
    to_run: list[Trial] = []
    done: list[Trial] = []
    # Highest memory of a worker in any launch, in bytes, by point.
    known_peaks: dict[str, int] = {}
    for row in current.values():
        if (peak := row.get("memory_peak_bytes")) is not None and row["status"] == "ok":
            known_peaks[row["point_id"]] = max(peak, known_peaks.get(row["point_id"], 0))
    for one in rounds:
        for point in _in_order(sweep, by_world(one.points), repeat=one.repeat):
            trial_id = trial_name(sweep, point, repeat=one.repeat)
            attempt = current.get(trial_id)
            why, is_done = state(trial_id, attempt)
            trial = Trial(
                point=point, repeat=one.repeat, trial_id=trial_id, why=why, measure=one.measure
            )
            # An attempt that failed in turn is made again alone.
            has_failed = attempt is not None and attempt["status"] in RETRIED
            peak_bytes = None
            if one.in_turn and can_take_turns(point) and not has_failed:
                peak_bytes = known_peaks.get(identity(point))
            if peak_bytes is not None:
                trial = replace(trial, takes_turns=True, known_peak_bytes=peak_bytes)
            if is_done:
                done.append(trial)
            elif is_done is False:
                to_run.append(trial)
    return to_run, done


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
    measured = [row for row in current if row["status"] == "ok"]
    differ = _differences(sweep, sources, measured)
    if measured and (difference := differ.get(measured[-1]["trial_id"])):
        # Under another name the old rows stay next to the new ones.
        way = "keep both with another --results"
        if not difference.startswith("with workload "):
            way = f"measure everything again with --rerun all, or {way}"
        raise SweepError(f"these results were measured {difference}; {way}")
    stale = {}
    for row in current:
        if row["status"] in FINAL - {"ok"} and (changes := sources.differ_from(row)):
            stale[row["trial_id"]] = f"was {row['status']} before {changes}"
    return stale | {trial_id: f"measured {difference}" for trial_id, difference in differ.items()}


def _differences(sweep: Sweep, sources: Sources, measured: Rows) -> dict[str, str]:
    """Say of the trials that differ from what the sweep would add in what, by their ids."""
    settings = {
        "workload": type(sweep.workload).__name__,
        "cpus_per_worker": sweep.resources.cpus_per_worker,
        "gpus_per_worker": sweep.resources.gpus_per_worker,
        **{name: value for name, value in versions().items() if name != "python_version"},
    }
    differ = {}
    for row in measured:
        now = {**settings, **_environment(sweep, row)}
        # What one of the two does not know is not a difference.
        others = [
            f"with {name} {row[name]}, this sweep has {value}"
            for name, value in now.items()
            if None not in (row[name], value) and row[name] != value
        ]
        if others:
            differ[row["trial_id"]] = others[0]
        elif changes := sources.differ_from(row):
            differ[row["trial_id"]] = f"before {changes}"
    return differ


def _environment(sweep: Sweep, row: Row) -> dict[str, str]:
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


def _state(
    trial_id: str,
    row: Row | None,
    *,
    stale: Mapping[str, str],
    rerun: str | None,
    over: Collection[str],
) -> tuple[str, bool | None]:
    """Reason to run a trial that has this attempt; or its outcome.

    The second value is True if the trial is done. It is None if the trial has no final result, and
    this run won't measure it again.
    """
    if trial_id in over:
        why, is_done = _outcome(row, rerun=None)
        return why, is_done or None
    if trial_id in stale:
        return stale[trial_id], False
    return _outcome(row, rerun=rerun)


def _outcome(row: Row | None, *, rerun: str | None) -> tuple[str, bool]:
    if rerun == "all":
        return "--rerun all", False
    status = "skipped"
    if row:
        status = row["status"]
    if status == "skipped":
        return "new", False
    if status in FINAL and (status == "ok" or rerun != "failed"):
        return status if status == "ok" else f"{status} (--rerun failed measures it again)", True
    return f"was {status}", False


def _beyond_memory(
    sweep: Sweep,
    to_run: Sequence[Trial],
    peaks: Sequence[MemoryOutcome],
    current: Mapping[str, Row],
) -> dict[str, str]:
    """Find the trials that would run out of device memory, by those that did and by the peaks."""
    if not sweep.measure.prune:
        return {}
    # One that is measured again was asked for.
    states = {trial.trial_id: current.get(trial.trial_id, {}) for trial in to_run}
    is_new = {name for name, row in states.items() if row.get("status") in (None, "skipped")}
    return MeasuredPeaks(peaks).out_of_memory(to_run, new=is_new)


def _without(
    to_run: Sequence[Trial], candidates: Sequence[Candidate], reasons: Mapping[str, str]
) -> tuple[Sequence[Trial], Sequence[Candidate]]:
    """Skip the points of trials, in all their repeats, for these reasons by trial."""
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


def counts(plan: Plan) -> dict[str, int]:
    """Numbers of trials to run, done and skipped."""
    return {"to_run": len(plan.to_run), "done": len(plan.done), "skipped": len(plan.skipped)}


def reasons(plan: Plan) -> Counter[str]:
    """Number of skipped points for each reason."""
    return Counter(str(candidate.reason) for candidate in plan.skipped)
