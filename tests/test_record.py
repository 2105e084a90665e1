"""From what ranks send to the rows that are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtsweep import Sweep
from dtsweep.order import order_of
from dtsweep.point import Point
from dtsweep.record import machine_columns, rank_rows, step_columns, trial_row, worst
from dtsweep.schema import RANKS, STEPS, TRIALS

WARMUP = 2


@dataclass(frozen=True)
class Tokens:
    """A workload by its fields alone: nothing here trains."""

    width: int = 8
    words: tuple[str, ...] = ("a", "b")

    tokens_per_sample = 10

    def build(self) -> Any:
        raise AssertionError

    def batch(self, samples: range, device: Any) -> Any:
        raise AssertionError

    def loss(self, model: Any, batch: Any) -> Any:
        raise AssertionError


def facts(**other: Any) -> dict[str, Any]:
    machine = {"torch_version": "2.13.0", "cpu": "EPYC", "system": "Linux 6.1"}
    return {
        "node": "one",
        "pid": 7,
        "device": "EPYC",
        "device_uuid": None,
        "threads": 1,
        "niceness": 0,
        "machine": machine,
        **other,
    }


def outcome(step_s: list[float], *, window_s: float | None = None, **other: Any) -> dict[str, Any]:
    """What a rank sends that took these times in its window, and a second for each of two steps before it."""
    seconds = np.array([1.0] * WARMUP + step_s)
    count = len(seconds)
    steps = {
        "step_s": seconds,
        "start_s": np.cumsum(seconds) - seconds - WARMUP,
        "forward_s": seconds / 2,
        "step": np.arange(count),
        "warmup": np.arange(count) < WARMUP,
        "loss": np.linspace(2.0, 1.0, count),
    }
    return {
        "status": "ok",
        "reason": None,
        "stop_reason": "enough",
        "warmup_steps": WARMUP,
        "window_s": sum(step_s) if window_s is None else window_s,
        "memory_peak_bytes": 100,
        "memory_left_bytes": 1,
        "device_bytes": 1000,
        "facts": facts(),
        "steps": steps,
        **other,
    }


def row_of(outcomes: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    sweep = Sweep(workload=Tokens(), axes={"workers": [len(outcomes)]})
    point = Point(workers=len(outcomes), workload=Tokens(), **{"micro_batch": 4, **fields})
    return trial_row(sweep, order_of(sweep, point), dict(enumerate(outcomes)))


def test_throughput_counts_every_worker_and_waits_for_the_slowest() -> None:
    # Two workers of 4 samples, 2 passes: 16 samples a step. The slower rank is done after 5 s.
    row = row_of([outcome([1, 1, 2], window_s=4), outcome([2, 1, 1], window_s=5)], accumulation=2)
    assert row["samples_per_s"] == 16 * 3 / 5
    assert row["tokens_per_s"] == 10 * row["samples_per_s"]
    assert row["window_s"] == 5
    assert row["measured_steps"] == 3
    # Per step the slower of the two: 2, 1, 2.
    assert row["step_mean_s"] == pytest.approx(5 / 3)
    assert row["step_p50_s"] == 2
    assert row["forward_s"] == pytest.approx(4 / 3 / 2)


@settings(deadline=None)
@given(workers=st.integers(1, 4), repetitions=st.integers(1, 30), sync=st.sampled_from(["ddp", "parameter_server"]))
def test_throughput_does_not_depend_on_how_many_steps_were_timed(workers: int, repetitions: int, sync: str) -> None:
    pattern = [0.25, 0.5, 0.25, 1.0]
    few = row_of([outcome(pattern)] * workers, sync=sync)
    many = row_of([outcome(pattern * repetitions)] * workers, sync=sync)
    assert many["samples_per_s"] == pytest.approx(few["samples_per_s"])
    assert few["samples_per_s"] == pytest.approx(workers * 4 * 2)


def test_an_asynchronous_rate_counts_what_all_finished_while_all_were_at_work() -> None:
    # The fast one stops after 2 s with 8 steps; the slow one has then done 2 of its 4, whatever it did later.
    fast, slow = outcome([0.25] * 8), outcome([1.0] * 4)
    row = row_of([fast, slow], sync="parameter_server")
    assert row["samples_per_s"] == 4 * (8 + 2) / 2
    assert row["global_batch"] is None
    assert row["samples_per_update"] == 4
    assert row["semantics"] == "stale"
    # A step is one worker's push: all twelve count.
    assert row["step_mean_s"] == 6 / 12
    assert row["measured_steps"] == 4
    assert row["rank_skew"] == 3


def test_a_step_under_way_when_the_first_worker_stops_counts_by_its_share() -> None:
    row = row_of([outcome([0.5] * 3), outcome([1.0] * 3)], sync="parameter_server")
    assert row["samples_per_s"] == pytest.approx(4 * (3 + 1.5) / 1.5)


def test_an_update_of_a_bulk_synchronous_server_is_the_whole_batch() -> None:
    row = row_of([outcome([1.0] * 3)] * 2, sync="parameter_server", staleness=0)
    assert (row["semantics"], row["global_batch"], row["samples_per_update"]) == ("exact", 8, 8)
    assert row["samples_per_s"] == 8


@pytest.mark.parametrize("sync", ["ddp", "parameter_server"])
def test_the_interval_of_the_rate_covers_it_as_often_as_it_says(sync: str) -> None:
    random = np.random.default_rng(0)
    # Of workers apart the fourth is four times as slow; in step all wait for the same step.
    means = np.array([1.0, 1.0, 1.0, 4.0]) if sync == "parameter_server" else np.ones(4)
    truth = 4 * np.sum(1 / means)
    hits = []
    for _ in range(300):
        common = random.gamma(100, 1 / 100, size=80)
        times = [m * (random.gamma(100, 1 / 100, size=80) if sync == "parameter_server" else common) for m in means]
        row = row_of([outcome(list(series)) for series in times], sync=sync)
        hits.append(row["samples_per_s_low"] <= truth <= row["samples_per_s_high"])
    assert 0.90 <= np.mean(hits) <= 0.995


def test_what_is_unknown_is_null_and_not_zero() -> None:
    row = row_of([outcome([1.0, 1.0])] * 2)
    intervals = ["samples_per_s_low", "samples_per_s_high", "step_p50_s_low", "step_p50_s_high", "step_p99_s"]
    phases = ["data_s", "backward_s", "sync_s", "optimizer_s"]
    for name in [*intervals, *phases, "bytes_sent_per_step"]:
        assert row[name] is None, name
    assert "staleness_mean" not in row
    assert row["reason"] is None
    ranks = rank_rows({0: outcome([1.0, 1.0])})
    assert ranks[0]["bytes_sent"] is None


def test_a_phase_counts_where_every_rank_measured_it() -> None:
    with_sync, without = outcome([1.0, 1.0]), outcome([1.0, 1.0])
    with_sync["steps"]["sync_s"] = np.full(4, 0.25)
    assert row_of([with_sync, with_sync])["sync_s"] == 0.25
    assert row_of([with_sync, without])["sync_s"] is None


def test_a_99th_percentile_is_given_from_100_steps_on() -> None:
    assert row_of([outcome([0.5] * 99)])["step_p99_s"] is None
    assert row_of([outcome([0.5] * 100)])["step_p99_s"] == 0.5


def test_bytes_and_staleness_are_means_and_extremes_over_the_ranks() -> None:
    row = row_of(
        [
            outcome([1.0, 1.0], bytes_sent=200, staleness=[0, 2]),
            outcome([1.0] * 4, bytes_sent=1200, staleness=[1, 1, 3, 5]),
        ],
        sync="parameter_server",
    )
    # 100 bytes a step of one, 300 of the other.
    assert row["bytes_sent_per_step"] == 200
    assert (row["staleness_mean"], row["staleness_max"]) == (2.0, 5)


@pytest.mark.parametrize("status", ["nan", "timeout", "user_error"])
def test_a_trial_that_failed_is_a_row_with_its_reason_and_no_figures(status: str) -> None:
    row = row_of([outcome([1.0] * 9), outcome([1.0] * 9, status=status, reason="why")])
    assert (row["status"], row["reason"]) == (status, "rank 1: why")
    assert row["devices"] == "EPYC"
    assert not {"samples_per_s", "step_mean_s", "loss_last", "window_s"} & set(row)


def test_a_rank_that_never_answered_leaves_the_trial_without_figures() -> None:
    row = row_of([outcome([1.0] * 9), {"facts": facts()}])
    assert row["hosts"] == 1
    assert "samples_per_s" not in row


def test_the_rank_whose_failure_explains_the_others_gives_the_status() -> None:
    chain = ["oom_device", "oom_host", "user_error", "version_mismatch", "timeout", "nan", "collateral", "ok"]
    for index, status in enumerate(chain[:-1]):
        outcomes = {rank: {"status": other, "reason": "r"} for rank, other in enumerate(reversed(chain[index:]))}
        assert worst(outcomes) == {"status": status, "reason": f"rank {len(outcomes) - 1}: r"}
    assert worst({0: {"status": "ok", "reason": None}}) == {"status": "ok", "reason": None}
    assert worst({0: {"facts": {}}, 1: {"status": "ok"}})["status"] == "ok"
    assert worst({}) == {}


def test_machines_of_one_kind_have_one_env_id_however_many_and_others_another() -> None:
    def env_id(*ranks: Mapping[str, Any]) -> Any:
        return machine_columns({rank: {"facts": known} for rank, known in enumerate(ranks)})["env_id"]

    one = env_id(facts())
    assert env_id(facts(node="two", pid=8), facts(node="three", pid=9)) == one
    assert env_id(facts(threads=2)) != one
    assert env_id(facts(machine={"torch_version": "2.11.0"})) != one
    assert env_id(facts(device="H100")) != env_id(facts(device="H200"))
    mixed = env_id(facts(device="H100"), facts(device="H200"))
    assert mixed == env_id(facts(device="H200"), facts(device="H100"))
    assert mixed not in (env_id(facts(device="H100")), env_id(facts(device="H200")))


def test_hosts_are_counted_by_node_and_devices_named_once() -> None:
    columns = machine_columns(
        {
            0: {"facts": facts(node_id="a", device="H200", device_uuid="GPU-1")},
            1: {"facts": facts(node_id="b", device="H100", device_uuid="GPU-2")},
            2: {"facts": facts(node_id="b", device="H100", device_uuid="GPU-3")},
        }
    )
    assert (columns["hosts"], columns["devices"], columns["backend"]) == (2, "H100, H200", "nccl")
    assert machine_columns({0: {"facts": facts()}})["backend"] == "gloo"
    assert machine_columns({0: {"status": "hang"}}) == {}


def test_steps_of_all_ranks_follow_each_other_and_a_phase_of_some_is_unknown_for_the_others() -> None:
    marked = outcome([1.0])
    marked["steps"]["sync_s"] = np.full(3, 0.25)
    columns = step_columns({1: outcome([1.0, 2.0]), 0: marked, 2: {"status": "collateral"}})
    assert columns is not None
    assert list(columns["rank"]) == [0] * 3 + [1] * 4
    assert list(columns["step"]) == [0, 1, 2, 0, 1, 2, 3]
    assert list(columns["sync_s"][:3]) == [0.25] * 3
    assert np.isnan(columns["sync_s"][3:]).all()
    assert step_columns({0: {"status": "user_error"}}) is None


def test_every_name_is_a_declared_column() -> None:
    outcomes = {0: outcome([1.0] * 3, bytes_sent=1, staleness=[0, 0, 0])}
    trials, ranks, steps = ({column.name for column in table} for table in (TRIALS, RANKS, STEPS))
    row = row_of([outcomes[0]], sync="parameter_server")
    assert {name for name in row if not name.startswith("workload_")} <= trials
    assert row["workload_width"] == 8
    assert set(rank_rows(outcomes)[0]) <= ranks
    assert set(step_columns(outcomes) or {}) <= steps
