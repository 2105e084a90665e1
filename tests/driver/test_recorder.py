"""Rows of a run, kept even if results can't be written, and exit codes of the command."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtsweep import Measure, Resources, StorageError, Sweep, load, workloads
from dtsweep.driver.progress import Progress
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.tally import RunTally
from dtsweep.driver.unmeasured import INTERRUPTED, Unmeasured, skipped_points
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.plan.plan import make_plan
from dtsweep.plan.trial import Trial, choose_canaries
from dtsweep.results import outbox
from dtsweep.results.outbox import Outbox
from dtsweep.results.statuses import is_retried
from dtsweep.results.store import Results
from dtsweep.sweep.axes import Candidate, candidates
from dtsweep.sweep.task import task_of
from tests.outcomes import Sent, Tokens, by_rank, facts, outcome

SWEEP = Sweep(workload=workloads.Gpt(), axes={"workers": [1]}, measure=Measure(repeats=1))

TWO_WORLDS = Sweep(
    workload=Tokens(),
    axes={"workers": [1, 2], "micro_batch": [2, 4], "sync": ["ddp", "local_sgd"]},
    measure=Measure(repeats=2),
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def trials_of(**fields: Any) -> list[Trial]:
    """The trials of `TWO_WORLDS` with these fields, of the first repeat where none is said."""
    wanted = {"repeat": 1, **fields}
    return [
        trial
        for trial in make_plan(TWO_WORLDS, candidates(TWO_WORLDS), []).to_run
        if wanted.items() <= {**trial.point.scalars(), "repeat": trial.repeat}.items()
    ]


ONE, TWO = (trials_of(workers=workers, sync="ddp")[0] for workers in (1, 2))
"""A trial of each world."""


def canary_of(workers: int) -> Trial:
    (watch,) = choose_canaries(trials_of(workers=workers)).values()
    return watch


def recorder_of(sweep: Sweep, results: Results, **settings: Any) -> Recorder:
    progress = Progress(axes=sweep.axes)
    return Recorder(sweep, Outbox(results, progress.say), progress, **settings)


def cancelled(sweep: Sweep, trial: Trial) -> Unmeasured:
    """A trial whose first attempt was interrupted."""
    task = task_of(sweep, trial.point, repeat=trial.repeat, role=trial.role)
    begun = {"trial": trial, "task": task, "started_at": START}
    return Unmeasured(status="cancelled", reason=INTERRUPTED, **begun)


def refused(trials: Sequence[Trial], reason: str) -> list[Unmeasured]:
    """Trials that the cluster can't hold."""
    return [Unmeasured(trial=trial, status="infeasible", reason=reason) for trial in trials]


def store_skipped(sweep: Sweep, results: Results, skipped: Sequence[Candidate]) -> None:
    unmeasured = skipped_points(sweep, skipped, results.attempts())
    recorder = recorder_of(sweep, results)
    recorder.store_unmeasured(unmeasured, is_counted=False)
    # It is no trial.
    assert not recorder.tally.statuses


class Kept:
    """A recorder of `TWO_WORLDS`, and attempts that end one after the other."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.results = folder, Results(folder)
        self.recorder = recorder_of(TWO_WORLDS, self.results, **settings)
        self._count = 0

    def end(
        self, trial: Trial, step_s: float = 1.0, *, status: str = "ok", **report: Any
    ) -> dict[str, Any]:
        """End an attempt whose ranks took so long for each step; return its row."""
        self._count += 1
        where = facts(node="a")
        usual = [outcome([step_s] * 20, where=where) for _ in range(trial.point.workers)]
        ranks = report.pop("ranks", usual)
        task = task_of(TWO_WORLDS, trial.point, repeat=trial.repeat, role=trial.role)
        known, results = by_rank(ranks if status == "ok" else [Sent(facts(), None)])
        reason = None if status == "ok" else "why"
        ended = AttemptResult(
            status=status, reason=reason, facts=known, results=results, session="launch", **report
        )
        started_at = START + timedelta(seconds=self._count)
        assert self.recorder.store(trial, task, ended, started_at=started_at) == status
        (row,) = [row for row in self.results.attempts() if row["attempt_id"] == task.attempt_id]
        return row


@pytest.fixture(autouse=True)
def _stored_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy disk may take longer than a run waits for it."""
    monkeypatch.setattr(outbox, "_PATIENCE_S", 60.0)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def statuses(kept: Kept) -> dict[str, int]:
    return dict(kept.recorder.tally.statuses)


def test_an_attempt_is_a_row_with_its_ranks_steps_and_log(kept: Kept) -> None:
    ranks = [outcome([0.5] * 20, where=facts(log=f"/tmp/ray/{rank}.log")) for rank in range(2)]
    logs = {"launch/1": "all went well"}
    row = kept.end(TWO, ranks=ranks, explained_by=1, shard_nodes=[1, 1], logs=logs)
    ended = (row["status"], row["role"], row["repeat"], row["session"])
    assert ended == ("ok", "trial", 1, "launch")
    assert row["log"] == "logs/launch/1.log"
    assert row["samples_per_s"] == 2 * TWO.point.micro_batch / 0.5
    ranks_table = kept.results.table("ranks")
    assert ranks_table["log"].to_pylist() == ["logs/launch/0.log", "logs/launch/1.log"]
    assert ranks_table["shards_hosted"].to_pylist() == [0, 2]
    assert kept.results.table("steps").num_rows == 2 * 22
    assert (kept.folder / "logs/launch/1.log").read_text() == "all went well"


def test_neither_a_reason_nor_a_log_has_a_secret_of_the_workers(tmp_path: Path) -> None:
    environment = {"HF_TOKEN": "hf_hunter2", "OMP_NUM_THREADS": "12345678"}
    sweep = replace(TWO_WORLDS, resources=Resources(environment=environment))
    said = "401 for hf_hunter2 at http://me:hunter2@proxy with 12345678"
    ended = AttemptResult(status="user_error", reason=said, logs={"launch/0": said})
    recorder = recorder_of(sweep, Results(tmp_path))
    recorder.store(TWO, task_of(sweep, TWO.point), ended, started_at=START)
    (row,) = Results(tmp_path).attempts()
    for text in (row["reason"], (tmp_path / "logs/launch/0.log").read_text()):
        assert re.fullmatch("401 for hidden:[0-9a-f]{4} at http://proxy with 12345678", text)
    assert (tmp_path / "logs/launch/0.log").stat().st_mode & 0o077 == 0


def test_a_failed_attempt_points_to_the_log_that_is_its_own(kept: Kept) -> None:
    task = task_of(TWO_WORLDS, TWO.point)
    own = f"launch/{task.log_of(1)}"
    ended = AttemptResult(
        status="user_error",
        reason="why",
        facts={rank: facts(log=f"/tmp/{rank}.log") for rank in range(2)},
        session="launch",
        explained_by=1,
        logs={own: "ValueError: of this trial", "launch/1": "of all"},
    )
    kept.recorder.store(TWO, task, ended, started_at=START)
    (row,) = kept.results.attempts()
    assert row["log"] == f"logs/{own}.log"
    assert (kept.folder / row["log"]).read_text() == "ValueError: of this trial"
    assert kept.results.table("ranks")["log"].to_pylist() == ["logs/launch/0.log", row["log"]]


def test_no_reason_of_a_row_and_no_line_has_a_secret_of_the_drivers_environment(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "of-no-known-form")
    said = "401 for of-no-known-form"
    ranks = [outcome([0.5] * 20, samples_reason=said, gradients_reason=said)]
    row = kept.end(ONE, ranks=ranks, notes=[said])
    kept.recorder.store_unmeasured([replace(cancelled(TWO_WORLDS, ONE), reason=said)])
    reasons = [row["gradients_reason"], kept.results.attempts()[-1]["reason"]]
    for text in (*reasons, *re.findall("401 for .*", capfd.readouterr().err)):
        assert re.search("401 for hidden:[0-9a-f]{4}", text), text


def test_half_a_surrogate_in_a_reason_a_setting_or_a_log_is_stored_as_an_escape(
    kept: Kept, capfd: pytest.CaptureFixture[str]
) -> None:
    task = task_of(TWO_WORLDS, ONE.point)
    said = "no file caf\udce9"
    ended = AttemptResult(status="user_error", reason=said, session=said, logs={"launch/0": said})
    kept.recorder.store(ONE, task, ended, started_at=START)
    (row,) = kept.results.attempts()
    assert row["status"] == "user_error"
    assert row["reason"] == row["session"] == "no file caf\\udce9"
    assert (kept.folder / "logs/launch/0.log").read_text() == "no file caf\\udce9"
    assert "Traceback" not in capfd.readouterr().err


def test_the_flags_of_a_row_come_from_its_figures_its_session_and_the_run(tmp_path: Path) -> None:
    kept = Kept(tmp_path, flags=("adjacent_launches",))
    row = kept.end(ONE, ranks=[outcome([1.0] * 80, flags=["throttled"])], flags=["memory_left"])
    assert row["flags"] == ["throttled", "memory_left", "adjacent_launches"]
    # So do those of trials that share the fate of an attempt.
    one, other = refused([ONE, TWO], "no room")
    kept.recorder.store_unmeasured([one, replace(other, flags=["memory_left"])])
    flags = {row["trial_id"]: row["flags"] for row in kept.results.attempts()[1:]}
    assert flags == {ONE.trial_id: None, TWO.trial_id: ["memory_left", "adjacent_launches"]}


@dataclass(frozen=True)
class Many(Tokens):
    depth: int | None = None
    rate: int | float = 1
    options: dict[str, Any] = field(default_factory=dict)
    sizes: list[int] | None = None


def test_the_fields_of_a_workload_are_columns_what_is_no_scalar_as_json_and_what_is_not_read_null(
    tmp_path: Path,
) -> None:
    def stored(folder: str, workload: Any) -> dict[str, Any]:
        sweep = Sweep(workload=workload, axes={"workers": [1]}, measure=Measure(repeats=1))
        results = Results(tmp_path / folder)
        (trial,) = make_plan(sweep, candidates(sweep), []).to_run
        recorder_of(sweep, results).store_unmeasured([cancelled(sweep, trial)])
        (row,) = results.attempts()
        columns = {name.partition("workload_")[2]: value for name, value in row.items()}
        return {name: value for name, value in columns.items() if name not in ("", "digest")}

    usual = {"width": 8, "depth": None, "sizes": None, "options": "{}", "words": '["a", "b"]'}
    assert stored("own", Many(rate=0.5)) == usual | {"rate": 0.5}
    row = stored("model", workloads.Transformers("gpt2", {"n_layer": 2}))
    assert (row["overrides"], row["image_size"]) == ('{"n_layer": 2}', None)


@pytest.mark.parametrize("sync", ["ddp", "local_sgd", "parameter_server"])
def test_a_failure_before_any_step_is_a_row_in_every_mode(kept: Kept, sync: str) -> None:
    trial = replace(TWO, point=replace(TWO.point, sync=sync))
    row = kept.end(trial, status="rank_died")
    assert (row["status"], row["reason"], row["sync"]) == ("rank_died", "why", sync)


def test_a_row_has_the_harness_that_started_its_workers_and_its_environment(
    tmp_path: Path,
) -> None:
    on_ray, here = (Kept(tmp_path, harness=harness).end(ONE) for harness in ("ray", "in_process"))
    assert (on_ray["harness"], here["harness"]) == ("ray", "in_process")
    assert on_ray["trial_id"] == here["trial_id"]
    assert on_ray["env_id"] != here["env_id"]


def test_a_skipped_point_is_stored_again_only_for_a_new_reason(tmp_path: Path) -> None:
    axes = {"workers": [1, 2], "micro_batch": [1, 2, 3]}
    once = Sweep(workload=Tokens(), axes=axes, measure=Measure(repeats=1))
    results = Results(tmp_path)
    for reason, stored in (("odd", 2), ("odd", 2), ("three", 4)):
        sweep = replace(once, skip=lambda p, why=reason: why if p.micro_batch == 3 else None)
        store_skipped(sweep, results, make_plan(sweep, candidates(sweep), []).skipped)
        reasons = sorted(row["reason"] for row in results.attempts())
        assert reasons == ["odd", "odd", "three", "three"][:stored]


def test_a_global_batch_that_nothing_divides_is_stored_as_it_was_asked_for(tmp_path: Path) -> None:
    sweep = Sweep(
        workload=Tokens(),
        axes={"workers": [3], "micro_batch": [4], "global_batch": [100]},
        measure=Measure(repeats=1),
    )
    results = Results(tmp_path)
    store_skipped(sweep, results, candidates(sweep))
    (row,) = results.attempts()
    assert (row["global_batch"], row["accumulation"], row["status"]) == (100, None, "skipped")


def parts(kept: Kept) -> int:
    return len(list((kept.folder / "trials").glob("*.parquet")))


def test_what_is_not_run_is_in_files_of_many_rows_and_attempts_that_had_begun_are_one_each(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtsweep.driver.recorder.ROWS_PER_FILE", 3)
    trials = trials_of(workers=2)
    begun, *others = (cancelled(TWO_WORLDS, trial) for trial in trials)
    assert len(trials) == 4
    kept.recorder.store_unmeasured([begun, *(replace(each, started_at=None) for each in others)])
    # One that had begun, two others of the first three rows, and the last.
    assert parts(kept) == 3
    assert len(kept.results.attempts()) == statuses(kept)["cancelled"] == 4


def test_a_reason_to_skip_that_names_a_secret_is_stored_once_and_without_it(tmp_path: Path) -> None:
    resources = Resources(environment={"HF_TOKEN": "hf_hunter2"})
    sweep = replace(TWO_WORLDS, resources=resources, skip=lambda _: "not with hf_hunter2")
    for _ in range(2):
        store_skipped(sweep, Results(tmp_path), candidates(sweep))
    rows = Results(tmp_path).attempts()
    assert len(rows) == len(candidates(sweep))
    # They are in one file, however many they are.
    assert len([*(tmp_path / "trials").iterdir()]) == 1
    assert all(re.fullmatch("not with hidden:[0-9a-f]{4}", row["reason"]) for row in rows)


def test_what_the_cluster_cannot_hold_is_counted_each_time_and_stored_once(tmp_path: Path) -> None:
    for reason, rows in (("no room", 1), ("no room", 1), ("no GPU", 2), ("no room", 3)):
        kept = Kept(tmp_path)
        kept.recorder.store_unmeasured(refused([TWO], reason), rows=kept.results.attempts())
        assert len(kept.results.attempts()) == rows
        assert kept.recorder.tally.exit_code == 4


def test_files_are_merged_while_a_run_goes_on(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtsweep.results.store.SCATTERED_FROM", 4)
    for _ in range(11):
        kept.end(ONE)
    # Two compactions, and three since.
    assert parts(kept) == 4
    assert len(kept.results.attempts()) == 11


def test_whatever_merging_raises_the_run_goes_on(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr("dtsweep.results.store.SCATTERED_FROM", 2)
    monkeypatch.setattr("dtsweep.results.compaction.merge_files", fail)
    for _ in range(2):
        kept.end(ONE)
    said = capsys.readouterr().err
    assert "results stay in more files than they need: MemoryError: none left" in said
    assert statuses(kept) == {"ok": 1}


# Canaries


def test_a_canary_changes_neither_the_counts_nor_the_exit_code(kept: Kept) -> None:
    assert kept.end(canary_of(2))["role"] == "canary"
    kept.recorder.store_unmeasured([cancelled(TWO_WORLDS, canary_of(2))])
    row = kept.results.attempts()[-1]
    assert (row["role"], row["status"]) == ("canary", "cancelled")
    kept.end(TWO)
    row = kept.end(canary_of(2), status="user_error")
    assert (row["status"], row["reason"]) == ("user_error", "why")
    kept.end(canary_of(2), status="no_nodes")
    assert statuses(kept) == {"ok": 1}
    assert kept.recorder.tally.exit_code == 0
    kept.end(TWO, status="user_error")
    assert kept.recorder.tally.exit_code == 1


def flagged(kept: Kept, workers: int, times: Sequence[float]) -> list[bool]:
    return ["canary_drift" in kept.end(canary_of(workers), step_s)["flags"] for step_s in times]


def test_a_canary_that_differs_by_over_2_percent_from_the_others_is_flagged(kept: Kept) -> None:
    # The median of the others is 1.0, 1.005, 1.01 and 1.01.
    assert flagged(kept, 2, [1.0, 1.01, 1.02, 1.04, 0.98]) == [False, False, False, True, True]


def test_neither_another_world_nor_what_failed_nor_a_trial_says_that_a_canary_drifts(
    kept: Kept,
) -> None:
    assert flagged(kept, 1, [1.0, 1.0]) == [False, False]
    assert not kept.end(canary_of(2), status="oom_device")["flags"]
    assert flagged(kept, 2, [3.0]) == [False]
    assert "canary_drift" not in kept.end(TWO, 9.0)["flags"]
    assert flagged(kept, 2, [3.0, 2.0]) == [False, True]


def test_a_canary_whose_difference_may_be_chance_is_not_flagged(kept: Kept) -> None:
    # Means known to about 12 %; each step has the same length on all ranks.
    noisy = [0.8, 1.2, 1.0, 0.7, 1.3] * 4
    for slower, drifts in ((1.0, False), (1.05, False), (2.1, True)):
        ranks = [outcome([seconds * slower for seconds in noisy])] * 2
        row = kept.end(canary_of(2), ranks=ranks)
        assert ("canary_drift" in row["flags"]) is drifts
    assert 0.05 < row["half_width"] < 0.2


def test_a_canary_is_measured_to_1_percent_and_its_row_says_so(kept: Kept) -> None:
    rows = [kept.end(canary_of(2)), kept.end(TWO)]
    assert [json.loads(row["measure"])["half_width"] for row in rows] == [0.01, 0.02]


# Trials that run at the same time on a node


def test_canaries_next_to_others_drift_from_those_that_were_next_to_others_alone(
    kept: Kept,
) -> None:
    assert kept.end(TWO, concurrent_trials=3)["concurrent_trials"] == 3
    steps = ((1.0, 0, False), (1.1, 3, False), (1.2, 2, True), (1.03, 0, True))
    for step_s, others, drifts in steps:
        row = kept.end(canary_of(2), step_s, concurrent_trials=others)
        assert ("canary_drift" in row["flags"]) is drifts


# Rows that can't be stored; exit codes


def test_a_row_that_cannot_be_stored_is_kept_for_the_next_run(tmp_path: Path) -> None:
    way = tmp_path / "file"
    way.write_text("in the way of a folder")
    results = Results(way / "r")
    spools = [tmp_path / "spool"]
    outbox = Outbox(results, lambda _: None, roots=spools)
    recorder = Recorder(SWEEP, outbox, Progress(axes=SWEEP.axes))
    (trial,) = make_plan(SWEEP, candidates(SWEEP), []).to_run
    ended = cancelled(SWEEP, trial)
    with pytest.raises(StorageError, match=r"the last attempt is kept in .*: the same command"):
        recorder.store_unmeasured([ended])
    outbox.close()
    way.unlink()
    Outbox(results, lambda _: None, roots=spools).send_left()
    assert ended.task is not None
    assert load(way / "r")["attempt_id"].tolist() == [ended.task.attempt_id]


def test_a_trial_whose_log_cannot_be_stored_is_and_a_line_says_so(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    (kept.folder / "logs").write_text("in the way of a folder")
    kept.end(ONE, logs={"launch/0": "words"})
    assert load(kept.folder)["status"].tolist() == ["ok"]
    assert "the log launch/0 is not stored: can't write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("statuses", "others", "code"),
    [
        ({"ok": 3, "skipped": 1, "oom_device": 1}, {}, 0),
        ({"ok": 3, "user_error": 1}, {}, 1),
        ({"user_error": 1, "infeasible": 1}, {}, 4),
        ({"no_nodes": 1}, {"storage_error": "full"}, 5),
        ({"cancelled": 1}, {"signal_number": 2}, 130),
        ({"user_error": 1, "infeasible": 1}, {"trials_left": 4}, 3),
        ({}, {"trials_left": 4, "storage_error": "full"}, 5),
        ({}, {"trials_left": 4, "cluster_error": "gone"}, 4),
        ({}, {"trials_left": 4, "signal_number": 2}, 130),
    ],
)
def test_of_several_faults_the_gravest_names_the_exit_code(
    statuses: dict[str, int], others: dict[str, Any], code: int
) -> None:
    assert RunTally(statuses=Counter(statuses), **others).exit_code == code


def test_an_attempt_whose_numbers_cannot_be_stored_keeps_its_steps_and_costs_no_other(
    kept: Kept,
) -> None:
    def reason_of(trial: Trial, sent: Sent) -> str:
        known, results = by_rank([sent])
        ended = AttemptResult(status="ok", facts=known, results=results, session="launch")
        task = task_of(TWO_WORLDS, trial.point)
        assert kept.recorder.store(trial, task, ended, started_at=START) == "storage"
        return str(kept.results.attempts()[-1]["reason"])

    first, second = trials_of(workers=1, sync="ddp")
    reason = reason_of(first, outcome([0.5] * 20, memory_peak_bytes=2**70))
    assert reason.startswith("its numbers can't be stored (ValueError: ranks.memory_peak_bytes: ")
    assert reason.endswith("; measured as ok")
    assert kept.results.table("steps").num_rows == 22
    assert kept.end(second)["status"] == "ok"
    assert statuses(kept) == {"storage": 1, "ok": 1}
    assert kept.recorder.tally.exit_code == 1
    assert is_retried("storage", attempt=1) is False
    # Its steps can't be stored either.
    steps = outcome([0.5] * 20, columns={"part": np.array([2**70] * 22)})
    assert "; nor can its steps (" in reason_of(second, steps)
