"""From what ranks send to the rows that are stored."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtsweep import Measure
from dtsweep.metrics.rank_result import RankColumns, RankFacts, RankResult, TrialColumns
from dtsweep.metrics.rows import (
    explaining_failure,
    machine_columns,
    memory_facts,
    other_devices,
    rank_rows,
    step_columns,
    trial_row,
    with_warmup_marked,
)
from dtsweep.results.schema import RANKS, STEPS, TRIALS
from dtsweep.results.store import Results
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import task_of
from tests.outcomes import PASS, SKIPPED, Sent, Tokens, by_rank, facts, marked, outcome, row_of

SWEEP = Sweep(workload=Tokens(), axes={"workers": [1]})


@pytest.mark.parametrize("status", ["nan", "timeout", "user_error", "wrong_gradient"])
def test_a_trial_that_failed_is_a_row_with_its_reason_and_no_figures(status: str) -> None:
    checked: dict[str, Any] = {"gradients_agree": False, "model_digest": "m", "parameters": 6}
    failed = outcome([1.0] * 9, status=status, reason="why", **checked)
    row = row_of([outcome([1.0] * 9, **checked), failed])
    assert (row["status"], row["reason"]) == (status, "rank 1: why")
    assert row["devices"] == "EPYC"
    assert not {"samples_per_s", "step_mean_s", "loss_last", "window_s"} & set(row)
    # What a check of gradients found is stored.
    assert {name: row[name] for name in checked} == checked


def test_the_error_of_a_compressed_exchange_is_stored_with_its_trial() -> None:
    row = row_of([outcome([1.0] * 9, compression_error=0.25)] * 2)
    assert row["compression_error"] == 0.25


def test_a_rank_that_never_answered_leaves_the_trial_without_figures() -> None:
    row = row_of([outcome([1.0] * 9), Sent(facts(), None)])
    assert row["hosts"] == 1
    assert "samples_per_s" not in row


def test_the_rank_whose_failure_explains_the_others_gives_the_status() -> None:
    device = ["oom_device", "oom_host", "user_error", "version_mismatch"]
    chain = [*device, "timeout", "nan", "collateral", "ok"]
    for index, status in enumerate(chain[:-1]):
        ended = enumerate(reversed(chain[index:]))
        results = {rank: RankResult(status=other, reason="r") for rank, other in ended}
        assert explaining_failure(results) == (status, f"rank {len(results) - 1}: r")
    # Rank 0 never answered.
    assert explaining_failure({1: RankResult(status="ok")}) == ("ok", None)


def env_id(*ranks: RankFacts, harness: str = "ray") -> Any:
    return machine_columns(dict(enumerate(ranks)), harness=harness)["env_id"]


def test_machines_of_one_kind_have_one_env_id_however_many_and_others_another() -> None:
    one = env_id(facts())
    assert env_id(facts(node="two", pid=8), facts(node="three", pid=9)) == one
    assert env_id(facts(threads=2)) != one
    assert env_id(facts(machine={"torch_version": "2.11.0"})) != one
    h100, h200 = facts(device="H100"), facts(device="H200")
    assert len({env_id(h100), env_id(h200), env_id(h100, h200)}) == 3
    assert env_id(h100, h200) == env_id(h200, h100)
    # The driver's own process is another environment than a worker's.
    assert env_id(facts(), harness="torchrun") == one != env_id(facts(), harness="in_process")


def test_slurms_partition_and_switches_are_columns_and_make_no_environment() -> None:
    leaf1, leaf2 = (facts(partition="gpu", switch=f"spine.{leaf}") for leaf in ("leaf1", "leaf2"))
    columns = machine_columns({0: leaf1, 1: leaf2, 2: leaf1}, harness="ray")
    assert (columns["partition"], columns["switches"]) == ("gpu", 2)
    assert columns["env_id"] == env_id(facts())
    # A node without Slurm, or one of which the topology is not known.
    columns = machine_columns({0: leaf1, 1: facts()}, harness="ray")
    assert (columns["partition"], columns["switches"]) == ("gpu", None)


def test_threads_that_a_workload_sets_are_in_the_ranks_and_make_no_environment() -> None:
    usual, same, others = (outcome([1.0] * 9, threads=threads) for threads in (None, 1, 4))
    # They may be an axis.
    assert {row_of([sent])["env_id"] for sent in (usual, same, others)} == {env_id(facts())}
    # Where nothing was measured, those of the process.
    ranks = rank_rows(*marked([same, others, Sent(facts(threads=3), None)]))
    assert [row["threads"] for row in ranks] == [1, 4, 3]


def test_hosts_are_counted_by_node_and_devices_named_once() -> None:
    places = zip("abb", ("H200", "H100", "H100"), strict=True)
    ranks = [facts(node_id=node, device=model, device_uuid="GPU-1") for node, model in places]
    columns = machine_columns(dict(enumerate(ranks)), harness="ray")
    assert (columns["hosts"], columns["devices"], columns["backend"]) == (2, "H100, H200", "nccl")
    assert machine_columns({0: facts()}, harness="ray")["backend"] == "gloo"
    # No rank came up.
    assert machine_columns({}, harness="ray") == {}


def test_another_device_than_the_results_have_is_refused() -> None:
    message = str(other_devices({0: facts()}, known_devices={"H100"}))
    assert message.startswith("these results were measured on H100, this run is on EPYC; measure")
    assert "again with --rerun" in message
    assert other_devices({0: facts()}, known_devices={"H100", "EPYC"}) is None
    assert other_devices({0: facts()}, known_devices=()) is None


def test_the_row_says_what_the_task_was() -> None:
    point = Point(workload=Tokens())
    task = task_of(SWEEP, point, repeat=2, attempt=3, role="canary")
    row = trial_row(SWEEP, point, task, *marked([outcome([1.0] * 9)]))
    assert (row["attempt_id"], row["trial_id"]) == (task.attempt_id, task.trial_id)
    assert (row["repeat"], row["attempt"], row["role"], row["status"]) == (2, 3, "canary", "ok")
    assert row["torch_version"] == "2.13.0"


def test_steps_of_all_ranks_follow_each_other_and_a_phase_of_some_is_unknown_for_the_others() -> (
    None
):
    ranks = [outcome([1.0], phases={**PASS, "sync_s": 0.25}), outcome([1.0, 2.0])]
    _, results = marked(ranks, sync="parameter_server")
    columns = step_columns({1: results[1], 0: results[0], 2: RankResult(status="collateral")})
    assert columns is not None
    assert list(columns["rank"]) == [0] * 3 + [1] * 4
    assert list(columns["step"]) == [0, 1, 2, 0, 1, 2, 3]
    assert list(columns["sync_s"][:3]) == [0.25] * 3
    assert np.ma.getmaskarray(columns["sync_s"]).tolist() == [False] * 3 + [True] * 4
    assert step_columns({0: RankResult(status="user_error")}) is None


def committed(folder: Path, sent: Sent) -> dict[str, list[Any]]:
    """The columns of the steps that one rank sent, as stored."""
    known, results = marked([sent])
    row = {"attempt_id": "a", "trial_id": "t", "status": "ok"}
    Results(folder).commit(row, ranks=rank_rows(known, results), steps=step_columns(results))
    return Results(folder).table("steps").to_pydict()


def test_a_loss_that_is_no_number_is_stored_as_such_and_what_was_not_measured_as_null(
    tmp_path: Path,
) -> None:
    measured = {
        "loss": np.array([2.0, 1.5, 1.0, math.nan, math.nan, math.nan]),
        "sync_s": np.array([0.0, 0.0, 0.25, 0.25, 0.25, math.nan]),
    }
    turns = [(True, [1.0]), (False, [0.5])]
    stored = committed(tmp_path, outcome([1.0, 1.0], turns=turns, columns=measured))
    assert stored["part"] == ["warmup", "warmup", "window", "window", "exchange", "no_exchange"]
    assert stored["warmup"] == [True, True, False, False, False, False]
    assert stored["block"] == [None, None, None, None, 0, 1]
    # In the window a loss is always measured; afterwards the model is lost, and so is what its loss
    # would say.
    assert [loss is None for loss in stored["loss"]] == [False] * 4 + [True] * 2
    assert math.isnan(stored["loss"][3])
    assert stored["sync_s"] == [0.0, 0.0, 0.25, 0.25, 0.25, None]
    assert stored["optimizer_s"] == [None] * 6


def test_the_warm_up_that_was_found_is_stored_with_the_steps(tmp_path: Path) -> None:
    stored = committed(tmp_path, outcome([3.0] * 10 + [1.0] * 40, staleness=[0, 0, 2]))
    assert stored["warmup"] == [True] * (SKIPPED + 10) + [False] * 40
    assert stored["start_s"][:4] == [-2, -1, 0, 3]
    (rank,) = Results(tmp_path).table("ranks").to_pylist()
    # The whole window took 70 s; its 40 measured steps a second each.
    assert (rank["window_s"], rank["steps"], rank["step_mean_s"]) == (70, 40, 1)
    assert (rank["staleness_max"], rank["staleness_counts"]) == (2, [2, 0, 1])


def test_a_rank_that_failed_has_its_steps_marked_beside_those_that_never_measured() -> None:
    _, sent = by_rank([outcome([1.0] * 3), Sent(facts(), None), outcome([1.0] * 4, status="nan")])
    sent = {**sent, 1: RankResult(status="user_error")}
    results = with_warmup_marked(Point(workers=3, workload=Tokens()), sent)
    measured = {rank: result.measured for rank, result in results.items()}
    marks = {rank: own and int(own.steps["warmup"].sum()) for rank, own in measured.items()}
    assert marks == {0: SKIPPED, 1: None, 2: SKIPPED}


def test_a_rank_has_its_own_phases_work_and_telemetry() -> None:
    own = {"power_w": 300.0, "throttle_reasons": ["heat"], "host_memory_used_bytes": None}
    turns = [(True, [1.0]), (False, [0.5]), (False, [0.7]), (True, [1.0])]
    first, second = rank_rows(
        *marked([outcome([1.0, 1.0], turns=turns, telemetry=own), outcome([1.0, 1.0])])
    )
    assert {name: first[name] for name in own} == own
    assert (first["data_s"], first["forward_s"], first["backward_s"]) == (0, 0.5, 0.25)
    # Nothing tells how long the other would work alone; one without others works all the time.
    assert (first["work_s"], second["work_s"]) == (pytest.approx(0.6), None)
    (alone,) = rank_rows(*marked([outcome([1.0, 2.0])]))
    assert alone["work_s"] == 1.5
    assert not {"sync_s", *own} & set(second)
    assert second["machine"] == '{"cpu": "EPYC", "system": "Linux 6.1", "torch_version": "2.13.0"}'


def test_free_memory_is_stored_where_nothing_else_was_measured() -> None:
    failed = Sent(facts(), RankResult(status="oom_device", reason="full", device_free_bytes=5))
    (rank,) = rank_rows(*marked([failed]))
    assert rank["device_free_bytes"] == 5
    _, results = marked([failed, failed])
    assert memory_facts(results) == {"device_free_bytes": 5}


def on_gpu(clock_hz: float | None, *, busy: float | None = 0.9, model: str = "H100") -> Sent:
    telemetry = {"sm_clock_hz": clock_hz, "device_utilization": busy}
    return outcome([1.0] * 9, telemetry=telemetry, where=facts(device=model))


@pytest.mark.parametrize(
    ("one", "others", "is_low"),
    [
        # One slow of eight, or of two; a spread that every batch of GPUs has; all at a low clock.
        (on_gpu(1.5e9), 7, True),
        (on_gpu(1.5e9), 1, True),
        (on_gpu(1.75e9), 7, False),
        (on_gpu(1.5e9), 0, False),
        # One fast among slow ones is no fault of the others.
        (on_gpu(2.4e9), 7, False),
        # Idle, of another model, unknown, on a CPU.
        (on_gpu(0.3e9, busy=0.1), 7, False),
        (on_gpu(1.5e9, model="A100"), 7, False),
        (on_gpu(None), 7, False),
        (on_gpu(1.5e9, busy=None), 7, False),
        (outcome([1.0] * 9), 7, False),
    ],
)
def test_a_busy_device_that_is_slower_than_its_equals_has_a_low_clock(
    one: Sent, others: int, is_low: bool
) -> None:
    assert ("clock_low" in row_of([one, *[on_gpu(1.9e9)] * others])["flags"]) == is_low


def test_a_short_window_is_flagged_where_energy_was_asked_for() -> None:
    ranks = [outcome([1.0] * 9, flags=["window_short", "throttled"])]
    assert {"window_short", "throttled"} & {*row_of(ranks)["flags"]} == {"throttled"}
    assert "window_short" in row_of(ranks, measure=Measure(energy=True))["flags"]


def test_what_a_rank_measures_and_what_rank_0_knows_is_stored_under_its_own_name() -> None:
    values = {item.name: number for number, item in enumerate(fields(RankColumns), 1)}
    (rank,) = rank_rows(*marked([outcome([1.0] * 9, **values)]))
    assert values.items() <= rank.items()
    names = [item.name for item in fields(TrialColumns)]
    both = [{name: f"{name} of {rank}" for name in names} for rank in range(2)]
    row = row_of([outcome([1.0] * 9, status="nan", **own) for own in both])
    assert both[0].items() <= row.items()


def test_every_name_is_a_declared_column() -> None:
    sent = outcome(
        [1.0] * 9,
        turns=[(True, [1.0]), (False, [0.5])] * 4,
        phases={**PASS, "compress_s": 0.05, "sync_s": 0.1, "optimizer_s": 0.1},
        bytes_sent=1,
        messages_sent=1,
        staleness=[0] * 9,
        exchange_isolated_s=0.1,
        matmul_flops_per_s=1e12,
        where=facts(node_id="a", log="/tmp/0.log"),
    )
    trials, ranks, steps = ({column.name for column in table} for table in (TRIALS, RANKS, STEPS))
    for sync in ("ddp", "local_sgd", "parameter_server"):
        row = row_of([sent, sent], sync=sync, sync_period=3 if sync == "local_sgd" else None)
        assert row["workload_width"] == 8
        assert {name for name in row if not name.startswith("workload_")} <= trials
    known, results = marked([sent, sent])
    assert set(rank_rows(known, results)[0]) <= ranks
    assert set(step_columns(results) or {}) <= steps


# A mode that draws workers: those that wait in a round are no fault, nor do they count

ROUNDS, PERIOD = 20, 2
FEDERATED: dict[str, Any] = {"sync": "federated", "participation": 0.5, "sync_period": PERIOD}
DRAWN_IN_ROUND = [[0, 1], [1, 2]] * (ROUNDS // 2)
"""Of four workers; the last one is never drawn."""


def sent_by(rank: int, *, work_s: float = 1.0, loss: float | None = None) -> Sent:
    """What a rank sends: drawn ones work in each step, the others wait for a round's exchange.

    A round is two steps of a second and an exchange of a second.
    """
    trains = np.array(
        [True] * SKIPPED + [rank in drawn for drawn in DRAWN_IN_ROUND for _ in (0, 1)]
    )
    steps = len(trains)
    work = np.where(trains, work_s, 0.0)
    ends_round = np.arange(steps) % PERIOD == PERIOD - 1
    sync = np.where(ends_round, 3.0 - PERIOD * work, 0.0)
    losses = np.where(trains, 10.0 + rank if loss is None else loss, np.nan)
    phases = {"data_s": work * 0, "forward_s": work / 2, "backward_s": work / 2, "sync_s": sync}
    return outcome(
        list((work + sync)[SKIPPED:]),
        columns={**phases, "step_s": work + sync, "loss": losses, "trains": trains},
        trained_steps=int(trains[SKIPPED:].sum()),
        flops_per_sample=1e9,
        telemetry={"process_cpus": trains[SKIPPED:].mean()},
        where=facts(machine={"cpus": 4}),
    )


FOUR = [sent_by(rank) for rank in range(4)]


def test_workers_that_wait_in_a_round_are_neither_slow_nor_counted() -> None:
    row = row_of(FOUR, **FEDERATED)
    assert row["global_batch"] == 2 * 4
    assert row["step_mean_s"] == pytest.approx(1.5)
    assert row["samples_per_s"] == pytest.approx(8 / 1.5)
    # A second of exchange in a round of three.
    shares = [row[name] for name in ("exchange_share", "wait_share", "comm_share", "data_share")]
    assert shares == pytest.approx([1 / 3, 0, 1 / 3, 0])
    assert (row["rank_skew"], row["straggler"]) == (pytest.approx(0), None)
    phases = [row[name] for name in ("pass_s", "forward_s", "backward_s", "sync_s")]
    assert phases == pytest.approx([1.0, 0.5, 0.5, 0.5])
    assert (row["step_p50_s"], row["step_max_s"]) == (1.5, 2.0)
    assert (row["implausible"], row["flags"]) == (None, [])
    # In the first round those of ranks 0 and 1, in the last of 1 and 2.
    assert (row["loss_first"], row["loss_last"]) == (10.5, 11.5)


def test_a_drawn_worker_whose_loss_is_not_a_number_or_that_is_slow_is_seen() -> None:
    # Rank 2 trains in the last round, not in the first.
    row = row_of([*FOUR[:2], sent_by(2, loss=np.nan), FOUR[3]], **FEDERATED)
    assert row["loss_first"] == 10.5
    assert np.isnan(row["loss_last"])
    row = row_of([FOUR[0], sent_by(1, work_s=1.4), *FOUR[2:]], **FEDERATED)
    assert row["straggler"] == "rank 1 on one"
    assert row["wait_share"] == pytest.approx(0.4 / 3)


def test_losses_of_workers_that_were_not_drawn_are_null() -> None:
    known, results = marked(FOUR, **FEDERATED)
    columns = step_columns(results)
    assert columns is not None
    is_null = np.ma.getmaskarray(columns["loss"])
    assert is_null[columns["rank"] == 1].sum() == 0
    assert is_null[columns["rank"] == 3].sum() == ROUNDS * PERIOD
    assert "trains" not in columns
    rows = rank_rows(known, results)
    assert [row["trained_steps"] for row in rows] == [20, 40, 20, 0]
    assert [row["work_s"] for row in rows] == [1, 1, 1, None]
