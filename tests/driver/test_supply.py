"""Rounds of a run in this process: batches, time limits, what is stored and said; no Ray."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dtsweep import Goal, Measure, Resources, Sweep
from dtsweep.cluster.node_account import NodeAccount
from dtsweep.driver.attempts import Attempts
from dtsweep.driver.in_process_run import run_in_process
from dtsweep.driver.planned import Options, PlannedRun
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import BatchLayout, Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.running import Running
from dtsweep.driver.supply import Supply
from dtsweep.driver.tally import RunTally
from dtsweep.driver.tuner import Scheduler
from dtsweep.metrics.rows import task_row
from dtsweep.plan.batches import Batches
from dtsweep.plan.plan import PLANNED_BY, Plan
from dtsweep.plan.policy import Round
from dtsweep.plan.prices import Prices
from dtsweep.plan.trial import Rows, Trial
from dtsweep.results.statuses import FINAL
from dtsweep.results.store import Results
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of, trial_name
from tests.linear import Linear
from tests.outboxes import silent_outbox
from tests.rounds import BestAgain

QUICK = Measure(half_width=None, min_seconds=0, min_steps=5, max_steps=20, warmup_steps=1)


@dataclass(frozen=True)
class Failing(Linear):
    """A workload with a mistake."""

    def loss(self, model: Any, batch: Any) -> Any:
        raise ValueError("a mistake")


SWEEP = Sweep(
    workload=Linear(),
    axes={"micro_batch": [1, 4096]},
    measure=QUICK,
    resources=Resources(gpus_per_worker=0, cpus_per_worker=1),
    goal=Goal(maximize="samples_per_s"),
)


GRID = replace(QUICK, repeats=1)


@dataclass(kw_only=True)
class Run:
    """Runs of a sweep in this process, one after the other, with the same results."""

    folder: Path
    sweep: Sweep = SWEEP
    launches: int = 2
    said: str = field(default="", init=False)
    """What the last run has said."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        return Results(self.folder).attempts()

    def planned(
        self,
        out: StringIO | None = None,
        *,
        clock: Callable[[], float] = lambda: 0.0,
        **options: Any,
    ) -> PlannedRun:
        rerun = options.get("rerun")
        policy = BestAgain(sweep=self.sweep, launches=self.launches)
        settings: dict[str, Any] = {"rerun": rerun, "harness": "in_process", "policy": policy}
        batches = Batches(self.sweep, candidates(self.sweep), self.rows, **settings)
        plan = batches.next()
        console = Console(file=out or StringIO(), width=200)
        progress = Progress(axes=self.sweep.axes, console=console)
        progress.total = len(plan.to_run)
        return PlannedRun(
            sweep=self.sweep,
            plan=plan,
            batches=batches,
            outbox=silent_outbox(Results(self.folder)),
            progress=progress,
            options=Options(results=str(self.folder), in_process=True, **options),
            clock=clock,
            began=0.0,
        )

    def run(self, **options: Any) -> RunTally:
        out = StringIO()
        planned = self.planned(out, **options)
        tally = run_in_process(planned)
        planned.outbox.close()
        self.said = out.getvalue()
        return tally

    @property
    def repeats(self) -> dict[int, list[int]]:
        """The repeats of each micro-batch, as they were run."""
        found: dict[int, list[int]] = {1: [], 4096: []}
        for row in self.rows:
            found[row["micro_batch"]].append(row["repeat"])
        return found


def test_rounds_follow_each_other_until_the_policy_asks_for_no_more(tmp_path: Path) -> None:
    runs = Run(folder=tmp_path, launches=3)
    tally = runs.run()
    assert (tally.exit_code, tally.statuses) == (0, {"ok": 4})
    assert runs.repeats == {1: [1], 4096: [1, 2, 3]}
    lines = [line for line in runs.said.splitlines() if re.match(r"round|\[", line)]
    expected = [
        r"round 1: 2 points, about .+",
        r"\[1/2\] .+",
        r"\[2/2\] .+",
        r"round 2: 1 contender, about .+",
        r"\[3/3\] micro_batch=4096 repeat 2: .+",
        r"round 3: 1 contender, about .+",
        r"\[4/4\] micro_batch=4096 repeat 3: .+",
    ]
    assert len(lines) == len(expected)
    assert all(map(re.fullmatch, expected, lines))


def test_a_row_has_the_question_and_the_settings_of_its_round(tmp_path: Path) -> None:
    runs = Run(folder=tmp_path)
    runs.run()
    question = Question(goal=Goal(maximize="samples_per_s"))
    assert {row["question"] for row in runs.rows} == {question.as_json()}
    steps = {row["repeat"]: json.loads(row["measure"])["min_steps"] for row in runs.rows}
    assert steps == {1: 5, 2: 6}
    # A decided question is not asked again, unless each round is to be measured again.
    assert (runs.run().exit_code, len(runs.rows)) == (0, 3)
    assert runs.run(rerun="all").exit_code == 0
    assert runs.repeats == {1: [1, 1], 4096: [1, 2, 1, 2]}


@pytest.mark.slow
def test_after_the_time_limit_no_trial_begins_and_the_next_run_goes_on(tmp_path: Path) -> None:
    runs = Run(folder=tmp_path)
    # An hour passes with each trial; what a round would add is left, too.
    for hours, left, stored in ((0, 2, 0), (1, 1, 1), (2, 1, 2)):
        tally = runs.run(max_hours=hours, clock=lambda: 3600.0 * len(runs.rows))
        assert (tally.exit_code, tally.trials_left, len(runs.rows)) == (3, left, stored)
    assert (runs.run(max_hours=1).exit_code, len(runs.rows)) == (0, 3)
    # Nothing is left: the time does not matter.
    assert (runs.run(max_hours=0).exit_code, len(runs.rows)) == (0, 3)


def test_in_this_process_a_trial_that_runs_at_the_limit_of_money_ends_and_no_other_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = replace(SWEEP, goal=None, measure=GRID)
    out = StringIO()
    planned = Run(folder=tmp_path, sweep=grid, launches=1).planned(
        out, prices=Prices(every_node=36.0), max_cost_usd=3.0
    )
    planned.budget.first_trial_s = 0.0
    handed_out = NodeAccount.handed_out

    def spend_all(account: NodeAccount, slot: int, *, session: Any) -> None:
        handed_out(account, slot, session=session)
        planned.budget.earlier_usd = 3.0

    monkeypatch.setattr(NodeAccount, "handed_out", spend_all)
    tally = run_in_process(planned)
    planned.outbox.close()
    assert (tally.exit_code, tally.trials_left, tally.statuses) == (3, 1, {"ok": 1})
    assert re.fullmatch(r"spent \$[\d,.]+ of \$3.00", tally.limit or "")
    assert tally.next_step is not None
    assert tally.next_step.startswith("the same command with --max-cost ")
    assert "this run cost $" in out.getvalue()
    # Another run measures the other one.
    again = Run(folder=tmp_path, launches=1, sweep=grid)
    done = again.run(prices=Prices(every_node=36.0), max_cost_usd=100.0)
    assert (done.exit_code, done.statuses) == (0, {"ok": 1})
    assert [row["cost_usd"] for row in again.rows] == pytest.approx(
        [row["trial_s"] * 0.01 for row in again.rows]
    )
    assert {row["node_types"] for row in again.rows} == {"this-machine:1"}


def test_no_trial_begins_that_is_expected_to_pass_the_limit_of_money(tmp_path: Path) -> None:
    runs = Run(folder=tmp_path)
    planned = runs.planned(prices=Prices(every_node=3600.0), max_cost_usd=300.0)
    planned.budget.first_trial_s = 1000.0
    tally = run_in_process(planned)
    planned.outbox.close()
    assert (tally.exit_code, tally.trials_left, runs.rows) == (3, 2, [])
    assert "another trial, of about " in (tally.limit or "")
    # Free nodes cost nothing, which is not unknown.
    assert runs.run(prices=Prices(every_node=0.0), max_cost_usd=300.0).exit_code == 0


def test_where_every_point_fails_no_round_follows(tmp_path: Path) -> None:
    failing = replace(SWEEP, workload=Failing())
    runs = Run(folder=tmp_path, sweep=failing)
    assert (runs.run().exit_code, len(runs.rows)) == (1, 2)
    assert (runs.run(rerun="failed").exit_code, len(runs.rows)) == (1, 4)


def test_batches_that_nothing_can_run_end(tmp_path: Path) -> None:
    def refused(plan: Plan) -> BatchLayout:
        return BatchLayout(groups=(), refused=[(trial, "no room") for trial in plan.to_run])

    planned = Run(folder=tmp_path).planned()
    recorder = planned.recorder(SWEEP)
    queue = Queue(SWEEP)
    supply = Supply(planned, queue, recorder, lay_out=refused)
    assert not supply.refill()
    assert (recorder.tally.statuses, recorder.tally.exit_code) == ({"infeasible": 2}, 4)


@dataclass(frozen=True)
class OneByOne:
    """Asks for one point after the other."""

    def rounds(self, points: Sequence[Point], rows: Rows, **known: Any) -> Sequence[Round]:
        over = {row["trial_id"] for row in rows if row["status"] in FINAL} | {*known["over"]}
        rounds = [Round(repeat=1, points=[point], measure=QUICK) for point in points]
        left = [trial_name(SWEEP, point, repeat=1) not in over for point in points]
        return rounds[: left.index(True) + 1] if True in left else rounds


def test_points_that_a_later_batch_skips_are_stored_with_the_reason(tmp_path: Path) -> None:
    planned = Run(folder=tmp_path).planned()
    batches = Batches(SWEEP, candidates(SWEEP), [], harness="in_process", policy=OneByOne())
    planned = replace(planned, plan=batches.next(), batches=batches)
    queue, recorder, supply = supplied(planned)
    running = _handed_out(queue)
    recorder.rows.append(measured(running.trial) | {"status": "oom_device"})
    assert not supply.refill()
    planned.outbox.close()
    (row,) = Results(tmp_path).attempts()
    assert (row["micro_batch"], row["status"]) == (4096, "skipped")
    assert row["reason"] == "micro_batch=1 ran out of memory; --try-all measures it"


def supplied(planned: PlannedRun) -> tuple[Queue, Recorder, Supply]:
    """What supplies a queue that has the first batch of a run, in one group."""
    queue, recorder = Queue(SWEEP), planned.recorder(SWEEP)
    supply = Supply(
        planned, queue, recorder, lay_out=lambda plan: BatchLayout(groups=[plan.to_run])
    )
    return queue, recorder, supply


def _handed_out(queue: Queue) -> Running:
    trial, task = queue.next(0, now=0.0)
    return Running(trial=trial, task=task, slot=0, began=0.0, started_at=datetime.now(UTC))


def test_a_canary_that_is_left_when_time_is_up_is_no_trial(tmp_path: Path) -> None:
    planned = Run(folder=tmp_path, launches=1).planned(max_hours=1, clock=lambda: 3600.0)
    queue, recorder, supply = supplied(planned)
    trials = [_handed_out(queue).trial for _ in planned.plan.to_run]
    recorder.rows += [measured(trial) for trial in trials]
    queue.extend([[replace(trials[0], role="canary")]], {})
    assert not supply.refill()
    assert (recorder.tally.trials_left, recorder.tally.exit_code) == (None, 0)


def test_a_scheduler_waits_for_what_runs_and_ends_when_time_is_up(tmp_path: Path) -> None:
    planned = Run(folder=tmp_path).planned(max_hours=1, clock=lambda: 3600.0)
    queue, recorder, supply = supplied(planned)
    attempts = Attempts(queue, [], recorder, supply=supply)
    scheduler = Scheduler(attempts)
    attempts.running["tune's name"] = _handed_out(queue)
    assert scheduler.suggest("next") is None
    assert recorder.tally.trials_left is None
    attempts.running.clear()
    assert scheduler.suggest("next") == Scheduler.FINISHED
    assert not attempts.has_more()
    assert recorder.tally.trials_left == 1


def test_a_scheduler_asks_for_a_round_only_when_nothing_runs(tmp_path: Path) -> None:
    queue, recorder, supply = supplied(Run(folder=tmp_path).planned())
    attempts = Attempts(queue, [], recorder, supply=supply)
    for name in ("one", "other"):
        attempts.running[name] = running = _handed_out(queue)
        recorder.rows.append(measured(running.trial))
    assert not attempts.has_more()
    attempts.running.clear()
    assert attempts.has_more()
    assert queue.waiting == 1


def test_what_fails_between_rounds_ends_the_run_and_is_kept(tmp_path: Path) -> None:
    queue, recorder, supply = supplied(Run(folder=tmp_path).planned())
    attempts = Attempts(queue, [], recorder, supply=supply)
    for _ in range(2):
        _handed_out(queue)
    recorder.rows.append({})  # a row that no policy can read
    assert Scheduler(attempts).suggest("next") == Scheduler.FINISHED
    assert isinstance(attempts.failure, KeyError)


def measured(trial: Trial) -> dict[str, Any]:
    """The columns of a row that a plan reads."""
    row = task_row(SWEEP, trial.point, task_of(SWEEP, trial.point, repeat=trial.repeat))
    known = {"harness": "in_process", "status": "ok", "samples_per_s": 1.0}
    return {**dict.fromkeys(PLANNED_BY), **row, **known}
