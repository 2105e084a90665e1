"""The figures of a trial from the steps of all ranks; numbers that can be checked in the head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtsweep import Measure
from dtsweep.measure.statistics import quantile_interval
from dtsweep.measure.work import StepWork
from dtsweep.metrics.rows import rank_rows
from dtsweep.metrics.summary import TAILS, least_steps
from dtsweep.results.statuses import FLAG_MEANINGS
from tests.outcomes import PASS, SKIPPED, Sent, facts, marked, outcome, pairs, row_of

STEADY = [1.0] * 40
"""A window in which nothing is odd."""

WAITED = {**PASS, "sync_s": 0.0}
"""Phases of a mode that marks its exchange, and never waits for it."""


# Rates and step times


def test_throughput_counts_every_worker_and_waits_for_the_slowest() -> None:
    # Two workers of 4 samples, 2 passes: 16 samples a step. The slower rank ends its third step
    # after 5 s.
    row = row_of([outcome([1, 1, 2], window_s=4), outcome([2, 1, 2], window_s=5.5)], accumulation=2)
    assert row["samples_per_s"] == 16 * 3 / 5
    assert row["tokens_per_s"] == 10 * row["samples_per_s"]
    # With what a worker does after its last step.
    assert row["window_s"] == 5.5
    assert row["measured_steps"] == 3
    # The last ends of the steps are at 2, 3 and 5 s.
    assert row["step_mean_s"] == pytest.approx(5 / 3)
    assert (row["step_p50_s"], row["step_max_s"]) == (2, 2)
    # Half of each rank's own steps, of 4/3 and 5/3 s.
    assert row["forward_s"] == pytest.approx(0.75)


def test_the_phases_of_a_row_add_up_to_its_mean_step() -> None:
    # Each rank does more of another phase, and waits for the others in `sync_s`.
    slow = {"data_s": 0.1, "forward_s": 0.5, "backward_s": 0.3, "sync_s": 0.1}
    other = {"data_s": 0.4, "forward_s": 0.2, "backward_s": 0.1, "sync_s": 0.3}
    row = row_of([outcome([1.0] * 30, phases=phases) for phases in (slow, other)])
    assert sum(row[name] for name in slow) == pytest.approx(row["step_mean_s"])


@pytest.mark.parametrize(
    "fields",
    [{}, {"sync": "local_sgd", "sync_period": 4}, {"sync": "parameter_server", "staleness": 0}],
)
def test_mean_step_and_throughput_of_ranks_in_step_are_one_number(fields: dict[str, Any]) -> None:
    # Each rank sees the end of a period at another moment, up to a tenth of a step late.
    ends = np.arange(1, 201) + np.random.default_rng(0).uniform(0, 0.1, size=(4, 200))
    ranks = [outcome(list(np.diff(rank, prepend=0.0)), window_s=rank[-1]) for rank in ends]
    row = row_of(ranks, **fields)
    assert row["samples_per_s"] == pytest.approx(16 * row["measured_steps"] / row["window_s"])
    assert row["step_mean_s"] * row["samples_per_s"] == pytest.approx(16, rel=1e-6)
    assert row["global_batch"] == 16
    if "sync_period" not in fields:
        assert row["latency_s"] == row["step_p50_s"] < row["step_mean_s"] + 0.02
    else:
        # Single steps are each rank's own: all 800 of them.
        assert row["latency_s"] == row["step_mean_s"]
        assert row["step_max_s"] == pytest.approx(np.diff(ends, prepend=0.0).max())


@pytest.mark.parametrize(("sync", "column"), [("ddp", "step_p50_s"), ("local_sgd", "step_mean_s")])
def test_the_latency_of_the_frontier_is_stored_with_its_interval_and_error(
    sync: str, column: str
) -> None:
    random = np.random.default_rng(0)
    row = row_of([outcome(list(random.gamma(100, 0.01, 320)))] * 2, sync=sync)
    for end in ("", "_low", "_high", "_error"):
        assert row[f"latency_s{end}"] == row[f"{column}{end}"] is not None
    assert row["latency_s_low"] < row["latency_s"] < row["latency_s_high"]
    assert 0 < row["latency_s_error"] < (row["latency_s_high"] - row["latency_s_low"]) / 2


@pytest.mark.parametrize("sync", ["ddp", "local_sgd", "parameter_server"])
def test_throughput_does_not_depend_on_how_many_steps_were_timed(sync: str) -> None:
    pattern, period = [0.25, 0.5, 0.25, 1.0], {"sync_period": 4} if sync == "local_sgd" else {}
    for workers in (1, 3):
        for repetitions in (1, 2, 30):
            row = row_of([outcome(pattern * repetitions)] * workers, sync=sync, **period)
            assert row["samples_per_s"] == pytest.approx(workers * 4 * 2)


def test_no_interval_is_narrower_than_half_a_percent_where_steps_are_all_equal() -> None:
    row = row_of([outcome([1.0] * 400)] * 2)
    assert row["half_width"] == pytest.approx(0.005)
    for name in ("mean", "p50", "p95", "p99"):
        low, high = row[f"step_{name}_s_low"], row[f"step_{name}_s_high"]
        assert (low, high) == pytest.approx((0.995, 1.005))
    bounds = (row["samples_per_s_low"], row["samples_per_s_high"])
    assert bounds == pytest.approx((8 / 1.005, 8 / 0.995))
    assert [row[name] for name in ("step_cv", "spike_share", "drift")] == [0, 0, 0]
    assert row["steady_class"] == "flat"


def test_a_percentile_has_an_interval_where_the_steps_are_enough_and_is_named_where_not() -> None:
    times = list(np.random.default_rng(0).normal(1.0, 0.01, 400))
    many, few = row_of([outcome(times)]), row_of([outcome(times[:40])])
    assert (many["insufficient"], few["insufficient"]) == ([], ["p95", "p99"])
    for row, p in ((many, "p50"), (many, "p95"), (many, "p99"), (few, "p50")):
        assert row[f"step_{p}_s_low"] < row[f"step_{p}_s"] < row[f"step_{p}_s_high"], p
    assert few["step_p95_s"] is not None
    assert (few["step_p95_s_low"], few["step_p95_s_high"], few["step_p99_s"]) == (None, None, None)
    # From 100 steps on there is a 99th percentile.
    assert [row_of([outcome([0.5] * n)])["step_p99_s"] for n in (99, 100)] == [None, 0.5]


@pytest.mark.parametrize(
    ("name", "steps"), [("step_p90_s", 36), ("step_p95_s", 72), ("step_p99_s", 368)]
)
def test_a_tail_has_an_interval_from_its_least_steps_on(name: str, steps: int) -> None:
    # The largest of n values is below the quantile p with a probability of p^n: at most 2.5 %.
    p = TAILS[name]
    assert p**steps <= 0.025 < p ** (steps - 1)
    assert least_steps(["samples_per_s", name, "step_p90_s"]) == steps
    shuffled = np.random.default_rng(2).permutation(np.linspace(1.0, 2.0, steps))
    assert quantile_interval(shuffled, p) is not None
    assert quantile_interval(shuffled[1:], p) is None


def test_what_is_unknown_is_null_and_not_zero() -> None:
    row = row_of([outcome([1.0, 1.0], phases={"forward_s": 0.5})] * 2)
    rates = ["learning_rate", "samples_per_s", "tokens_per_s", "latency_s", "window_s", "forward_s"]
    steps = [f"step_{name}" for name in ("mean_s", "p50_s", "p90_s", "p95_s", "max_s", "cv")]
    others = ["spike_share", "loss_first", "loss_last"]
    known = {name for name, value in row.items() if isinstance(value, float)}
    assert known == {*rates, *steps, *others}
    assert (row["step_p99_s"], row["step_p50_s_low"], row["energy_j"]) == (None, None, None)


def test_a_phase_counts_where_every_rank_measured_it() -> None:
    with_sync, without = outcome([1.0, 1.0], phases={**PASS, "sync_s": 0.25}), outcome([1.0, 1.0])
    assert row_of([with_sync, with_sync])["sync_s"] == 0.25
    assert row_of([with_sync, without])["sync_s"] is None


# Workers apart


def test_an_asynchronous_rate_counts_what_all_finished_while_all_were_at_work() -> None:
    # The fast one stops after 2 s with 8 steps; the slow one has then done 2 of its 4, whatever it
    # did later.
    fast, slow = outcome([0.25] * 8, phases=WAITED), outcome([1.0] * 4, phases=WAITED)
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


def test_what_a_worker_did_after_the_first_has_stopped_widens_no_interval() -> None:
    # Until 40 s one does a step a second and the other one in two, all alike.
    longer, until_then = (
        row_of([outcome(STEADY), outcome([2.0] * 20 + more)], sync="parameter_server")
        for more in ([9.0] * 10, [])
    )
    assert longer["samples_per_s"] == pytest.approx(1.5 * 4)
    assert longer["half_width"] == until_then["half_width"]


def test_noise_of_each_worker_averages_out_and_what_they_share_does_not() -> None:
    """`benchmarks/coverage.py` has how often such intervals hold the rate."""
    shared = list(np.random.default_rng(0).normal(1, 0.1, 400))
    own = [list(np.random.default_rng(rank).normal(1, 0.1, 400)) for rank in range(16)]
    one, alike, apart = (
        row_of([outcome(steps) for steps in ranks], sync="parameter_server")["half_width"]
        for ranks in ([shared], [shared] * 16, own)
    )
    # 1.97 standard errors of a mean of 400 steps.
    assert one == pytest.approx(1.97 * 0.1 / 20, rel=0.15)
    assert alike == pytest.approx(one)
    assert apart < one / 2


def test_a_mean_that_is_hardly_known_has_no_lower_end_below_zero() -> None:
    row = row_of([outcome([1.0, 1.0, 10.0])] * 2)
    assert row["half_width"] > 1
    assert (row["step_mean_s_low"], row["samples_per_s_high"]) == (None, None)
    assert row["step_mean_s_high"] > row["step_mean_s"]


def test_an_update_of_a_bulk_synchronous_server_is_the_whole_batch() -> None:
    row = row_of([outcome([1.0] * 3)] * 2, sync="parameter_server", staleness=0)
    assert (row["semantics"], row["global_batch"], row["samples_per_update"]) == ("exact", 8, 8)
    assert row["samples_per_s"] == 8


def test_workers_of_different_speed_are_no_correlation_between_steps() -> None:
    random = np.random.default_rng(0)
    slow, fast = (outcome(list(random.normal(mean, mean / 20, 60))) for mean in (1.0, 0.5))
    row = row_of([slow, fast], sync="parameter_server")
    assert row["effective_steps"] > 60
    assert "autocorrelated" not in row["flags"]
    assert row["step_p50_s_low"] < row["step_p50_s"] < row["step_p50_s_high"]


def test_bytes_and_staleness_are_means_and_extremes_over_the_ranks() -> None:
    ranks = [
        outcome([1.0, 1.0], bytes_sent=200, messages_sent=2, staleness=[0, 2]),
        outcome([1.0] * 4, bytes_sent=1200, messages_sent=8, staleness=[1, 1, 3, 5]),
    ]
    row = row_of(ranks, sync="parameter_server")
    # 100 bytes a step of one in a message, 300 of the other in two.
    assert (row["bytes_sent_per_step"], row["messages_per_step"]) == (200, 1.5)
    assert (row["staleness_mean"], row["staleness_max"]) == (2.0, 5)
    # What one worker did not count is unknown of all.
    row = row_of([*ranks, outcome([1.0, 1.0])], sync="parameter_server")
    assert (row["bytes_sent_per_step"], row["messages_per_step"]) == (None, None)


@pytest.mark.parametrize("alone", [0, 400])
def test_samples_of_dropped_gradients_count_in_no_rate_nor_those_pushed_alone(alone: int) -> None:
    backup = {"sync": "parameter_server", "staleness": 0, "drop_slowest": 1}
    # In 40 s one worker makes 40 updates and drops 20 gradients of the other. Then it has ended,
    # and no gradient of the other is dropped.
    fast = outcome([1.0] * 40, dropped=[False] * 40)
    slow = outcome([2.0] * (20 + alone), dropped=[True] * 20 + [False] * alone)
    row = row_of([fast, slow], **backup)
    assert (row["semantics"], row["global_batch"], row["samples_per_update"]) == ("lossy", None, 4)
    assert row["samples_per_s"] == pytest.approx(4)
    assert row["dropped_share"] == pytest.approx(20 / 60)
    assert row["implausible"] is None
    assert [of["dropped_steps"] for of in rank_rows(*marked([fast, slow], **backup))] == [0, 20]


def test_where_not_every_step_exchanges_latency_is_the_mean_step_of_whole_periods() -> None:
    row = row_of([outcome([1.0, 1.0, 4.0] * 10)] * 2, sync="parameter_server", push_period=3)
    assert (row["step_p50_s"], row["latency_s"], row["samples_per_update"]) == (1, 2, 12)
    assert row["samples_per_s"] == pytest.approx(4)
    assert row["half_width"] < 0.1


# Warm-up that is found in the window


@pytest.mark.parametrize(("slow", "steps"), [(0, 40), (10, 40), (5, 200)])
def test_a_warm_up_in_the_window_leaves_rate_latency_and_window_alike(
    slow: int, steps: int
) -> None:
    # Some steps of 3 s, then some of 1 s: 8 samples a step.
    row = row_of([outcome([3.0] * slow + [1.0] * steps)] * 2)
    assert row["samples_per_s"] == 8
    assert (row["step_mean_s"], row["step_p50_s"], row["step_max_s"]) == (1, 1, 1)
    assert (row["window_s"], row["measured_steps"]) == (steps, steps)
    assert row["warmup_steps"] == SKIPPED + slow
    assert row["steady_class"] == ("warmup" if slow else "flat")
    # The steps say the same as the row: the loss of the first measured one of all.
    of_all = SKIPPED + slow + steps - 1
    assert row["loss_first"] == pytest.approx(2 - (SKIPPED + slow) / of_all)


def test_within_a_sync_period_a_rank_makes_up_for_a_slow_step() -> None:
    # Each is slow in another step; a period takes both 5 s, though the slower ones of its steps add
    # up to 8 s.
    row = row_of(
        [outcome([2, 1, 1, 1] * 30), outcome([1, 2, 1, 1] * 30)], sync="local_sgd", sync_period=4
    )
    assert (row["step_mean_s"], row["samples_per_s"]) == (1.25, 8 / 1.25)
    # 3 × 0.38 s ÷ 120 steps of 1.25 s.
    assert row["half_width"] == pytest.approx(0.0076)
    assert (row["steady_class"], row["flags"]) == ("flat", [])


def test_work_after_the_last_step_is_part_of_the_window_and_of_no_rate() -> None:
    # Two seconds more until the slower rank's work is done: in a window of any length.
    row = row_of([outcome([3.0] * 10 + STEADY), outcome([3.0] * 10 + STEADY, window_s=72)])
    assert row["window_s"] == 42
    assert row["samples_per_s"] == 8


def warm_ups(*ranks: Sent, **fields: Any) -> list[list[str]]:
    """The part of each step of each rank, the warm-up found."""
    results = marked(ranks, **fields)[1].values()
    steps = [result.measured.steps for result in results if result.measured]
    assert all(list(s["warmup"]) == list(s["part"] == "warmup") for s in steps)
    return [s["part"].tolist() for s in steps]


def test_where_ranks_step_together_the_slowest_says_where_the_warm_up_ends() -> None:
    expected = ["warmup"] * (SKIPPED + 10) + ["window"] * 40
    assert warm_ups(outcome([3.0] * 10 + STEADY), outcome([1.0] * 50)) == [expected] * 2


def test_workers_apart_have_their_own_warm_ups_and_the_rate_begins_after_the_last() -> None:
    # The second is steady from 20 s on; until 40 s both do a step a second of 4 samples.
    ranks = [outcome(STEADY), outcome([2.0] * 10 + [1.0] * 20)]
    row = row_of(ranks, sync="parameter_server")
    assert row["samples_per_s"] == pytest.approx(2 * 4)
    assert row["warmup_steps"] == SKIPPED
    own = warm_ups(*ranks, sync="parameter_server")
    assert [parts.count("warmup") for parts in own] == [2, 12]


def test_what_was_never_steady_counts_from_the_start_and_the_row_says_so() -> None:
    row = row_of([outcome(list(np.linspace(2.0, 1.0, 60)))])
    assert (row["warmup_steps"], row["measured_steps"]) == (SKIPPED, 60)
    assert row["steady_class"] == "none"
    assert row["drift"] < -0.4
    # Of two apart one has ended after 4 s, the other is steady from 20 s on: 42 steps in those 4 s.
    row = row_of([outcome([0.1] * 40), outcome([2.0] * 10 + [1.0] * 20)], sync="parameter_server")
    assert row["samples_per_s"] == pytest.approx(42 * 4 / 4)
    assert (row["warmup_steps"], row["measured_steps"]) == (SKIPPED, 30)
    assert (row["steady_class"], row["half_width"]) == ("none", None)


# Five steps are a group in the search for a warm-up, here five periods.
@pytest.mark.parametrize(
    ("steps", "period", "slow"),
    [
        ([2.0, 6.0] * 5 + [1.0, 3.0] * 40, 2, 10),
        ([2.0, 2.0, 8.0] * 7 + [1.0, 1.0, 4.0] * 40, 3, 15),
    ],
)
def test_a_warm_up_is_whole_sync_periods(steps: list[float], period: int, slow: int) -> None:
    row = row_of([outcome(steps)] * 2, sync="local_sgd", sync_period=period)
    assert (row["warmup_steps"], row["measured_steps"]) == (SKIPPED + slow, len(steps) - slow)
    if period == 2:
        assert (row["step_mean_s"], row["samples_per_s"]) == (2, 4)


def test_steps_after_the_window_are_no_part_of_its_figures() -> None:
    with_blocks = row_of([outcome(STEADY, turns=pairs([9.0] * 4, [7.0] * 4))] * 2)
    without = row_of([outcome(STEADY)] * 2)
    for name in ("samples_per_s", "step_mean_s", "step_max_s", "window_s", "measured_steps"):
        assert with_blocks[name] == without[name], name


# Arithmetic, devices, energy


UTILIZATION = ("flops_per_s_per_worker", "mfu", "hfu", "peak_flops_per_s", "peak_source")


@pytest.mark.parametrize(
    ("counted", "peaks", "expected"),
    [
        # 8 samples a second by two workers: 4 each, of 6 and with recomputation 8 FLOPs.
        ((6.0, 8.0), (96.0, 96.0), [24, 0.25, pytest.approx(1 / 3), 96, "table"]),
        # Of different devices the weakest is the measure.
        ((6.0, 6.0), (96.0, 48.0), [24, 0.5, 0.5, 48, "measured"]),
        ((6.0, 8.0), (None, None), [24, None, None, None, None]),
        ((6.0, 8.0), (96.0, None), [24, None, None, None, None]),
        # Nothing is said of what is computed again.
        ((6.0, None), (96.0, 96.0), [24, 0.25, None, 96, "table"]),
        ((None, None), (96.0, 96.0), [None, None, None, 96, "table"]),
    ],
)
def test_utilization_of_flops_is_what_a_worker_does_by_what_its_device_could(
    counted: tuple[Any, Any], peaks: tuple[Any, Any], expected: list[Any]
) -> None:
    flops = {"flops_per_sample": counted[0], "hardware_flops_per_sample": counted[1]}
    sources = zip(peaks, ("table", "measured"), strict=True)
    row = row_of([outcome(STEADY, **flops, peak_flops_per_s=p, peak_source=s) for p, s in sources])
    assert row.get("flops_per_sample") == counted[0]
    assert [row.get(name) for name in UTILIZATION] == expected


WORK = StepWork(operations=30, moved_bytes=1e6, compute_s=0.25, memory_s=0.5, launch_s=0.125)


def test_what_operations_take_is_a_share_of_the_step_and_the_slowest_memory_is_named() -> None:
    fast, slow = ({"moved_bytes_per_s": rate} for rate in (8.0, 4.0))
    names = ["operations_per_step", "moved_bytes_per_step", "peak_bytes_per_s", "memory_share"]
    row = row_of([outcome(STEADY, work=WORK, **fast), outcome(STEADY, **slow)])
    assert [row[name] for name in names] == [30, 1e6, 4, 0.5]
    assert (row["compute_share"], row["launch_share"]) == pytest.approx((0.25, 0.125))
    # Of operations that were not counted, and of a memory that one rank does not know.
    row = row_of([outcome(STEADY, **fast), outcome(STEADY)])
    assert [row.get(name) for name in names] == [None] * 4


def test_energy_is_by_all_samples_of_the_window_its_warm_up_included() -> None:
    # 50 steps of 8 samples: 400, for which two devices used 300 and 500 J.
    used = [{"energy_j": energy, "power_w": energy / 70} for energy in (300.0, 500.0)]
    row = row_of([outcome([3.0] * 10 + STEADY, telemetry=telemetry) for telemetry in used])
    assert (row["energy_j"], row["energy_j_per_sample"]) == (800, 2)
    assert row["power_w"] == pytest.approx(800 / 70)


def test_energy_of_workers_apart_is_by_the_samples_of_each() -> None:
    # 8 and 4 pushes of 4 samples.
    ranks = [outcome(steps, telemetry={"energy_j": 48.0}) for steps in ([0.5] * 8, [1.0] * 4)]
    assert row_of(ranks, sync="parameter_server")["energy_j_per_sample"] == 2


def test_what_one_device_does_not_say_is_unknown_for_the_trial() -> None:
    said = {"energy_j": 10.0, "power_w": 5.0, "device_utilization": 0.0}
    names = [*said, "energy_j_per_sample"]
    for other, expected in (
        (dict.fromkeys(said), [None] * 4),
        ({**said, "device_utilization": 0.5}, [20, 10, 0.25, 20 / 320]),
    ):
        row = row_of([outcome(STEADY, telemetry=telemetry) for telemetry in (said, other)])
        assert [row[name] for name in names] == expected


def test_a_host_counts_once_however_many_ranks_are_on_it() -> None:
    # Two ranks on a host of 40 bytes a second, one on another of 60.
    names = ("host_cpu_share", "network_sent_bytes", "cpu_energy_j")
    hosts = [("a", 0.25, 1600, 100.0), ("a", 0.25, 1600, 100.0), ("b", 0.5, 2400, 50.0)]
    row = row_of(
        [
            outcome(STEADY, where=facts(node=node), telemetry=dict(zip(names, said, strict=True)))
            for node, *said in hosts
        ]
    )
    assert (row["host_cpu_share"], row["network_bytes_per_s"]) == (0.5, 100)
    assert row["cpu_energy_j"] == 150


# Flags


def flags_of(*ranks: Sent, **settings: Any) -> list[str]:
    flags = list(row_of(ranks, **settings)["flags"])
    assert set(flags) <= FLAG_MEANINGS.keys()
    return flags


def test_a_sound_window_has_no_flags() -> None:
    random = np.random.default_rng(0)
    assert flags_of(outcome(STEADY * 2)) == []
    assert flags_of(outcome([3.0] * 5 + STEADY * 2)) == []
    assert flags_of(*[outcome(list(random.normal(1.0, 0.02, 300))) for _ in range(2)]) == []


def with_spikes(count: int) -> list[float]:
    """100 steps, of which so many take three times as long."""
    return [3.0 if at % 20 == 10 and at < 20 * count else 1 + at % 2 / 100 for at in range(100)]


WAVES = ([1.0] * 10 + [1.1] * 10) * 3


@pytest.mark.parametrize(
    ("flag", "odd", "usual"),
    [
        # A quarter of the window; where it leaves no part that is steady, too.
        ("slow_start", [4.0] * 10 + STEADY * 2, [4.0] * 2 + STEADY * 2),
        ("slow_start", [4.0] * 15 + STEADY * 2, STEADY * 2),
        # Surely more than one step in a hundred stands out.
        ("spiky", with_spikes(5), with_spikes(4)),
        # A step takes most of the window.
        ("stalled", [*STEADY, 41.0], [*STEADY, 39.0]),
        ("bimodal", [1.0, 1.01, 2.0, 2.01] * 10, STEADY),
        ("autocorrelated", WAVES, list(np.random.default_rng(0).permutation(WAVES))),
        ("imprecise", [1.0, 1.0], STEADY * 2),
    ],
)
def test_an_oddity_of_the_steps_is_flagged_from_its_limit_on(
    flag: str, odd: list[float], usual: list[float]
) -> None:
    assert flag in flags_of(outcome(odd))
    assert flag not in flags_of(outcome(usual))


def test_of_two_ranks_the_slower_start_counts() -> None:
    assert "slow_start" in flags_of(outcome(STEADY * 2), outcome([4.0] * 10 + STEADY * 2))


@pytest.mark.parametrize(("wanted", "is_flagged"), [(0.02, True), (0.05, False), (None, False)])
def test_a_mean_that_is_known_less_well_than_wanted_is_flagged_imprecise(
    wanted: float | None, *, is_flagged: bool
) -> None:
    row = row_of(
        [outcome([1.0, 1.2] * 20, stop_reason="max_steps")], measure=Measure(half_width=wanted)
    )
    assert row["half_width"] == pytest.approx(0.03, abs=0.01)
    assert ("imprecise" in row["flags"]) == is_flagged


@pytest.mark.parametrize(
    ("series", "kind"),
    [
        (np.linspace(1.0, 1.5, 120), "slowdown"),
        (np.linspace(2.0, 1.0, 120), "none"),
        (np.append(np.full(70, 1.05), np.ones(50)), "none"),
        # Noise enough for intervals of percentiles, if it didn't rise.
        (np.random.default_rng(0).normal(np.linspace(1.0, 1.2, 400), 0.1), "slowdown"),
    ],
)
def test_a_step_time_that_rises_or_falls_is_flagged_as_drift_and_its_mean_has_no_interval(
    series: NDArray[np.float64], kind: str
) -> None:
    row = row_of([outcome(list(series), stop_reason="max_steps")])
    assert (row["steady_class"], row["stop_reason"]) == (kind, "max_steps")
    assert {"drift", "imprecise"} <= set(row["flags"])
    kinds = ("samples_per_s_", "step_")
    bounds = [name for name in row if name.startswith(kinds) and name.endswith(("_low", "_high"))]
    assert [row[name] for name in (*bounds, "half_width")] == [None] * 11
    assert row["step_p50_s"] is not None


def test_a_little_drift_that_is_sure_widens_the_interval() -> None:
    # 3 × 0.38 ÷ 120 steps are 0.95 %, the noise 0.6 %, the rise 1.4 %.
    rising = outcome(list(1 + 0.03 * (-1.0) ** np.arange(120) + np.linspace(0, 0.014, 120)))
    row = row_of([rising])
    assert row["half_width"] == pytest.approx(0.0114 + row["drift"], abs=0.001)
    assert row["drift"] == pytest.approx(0.0133, abs=0.0005)
    assert (row["steady_class"], row["flags"]) == ("flat", ["imprecise", "bimodal"])
    assert "imprecise" not in flags_of(rising, measure=Measure(half_width=0.03))


def test_a_class_comes_from_the_cut_that_the_row_has() -> None:
    # Noise alone: what is left after a cut has a best cut of its own, and no window says that it is
    # no longer steady.
    random = np.random.default_rng(5)
    rows = [row_of([outcome(list(random.normal(0.05, 0.001, 100)))]) for _ in range(40)]
    assert {row["steady_class"] for row in rows} <= {"flat", "warmup"}
    assert sum("drift" in row["flags"] for row in rows) == 0


# A window that a limit ends


@pytest.mark.parametrize("limit", ["max_steps", "max_seconds"])
def test_what_is_known_when_a_limit_ends_the_window_is_precise(limit: str) -> None:
    def reason(steps: list[float], half_width: float | None = 0.02) -> Any:
        sent = outcome(steps, stop_reason=limit)
        return row_of([sent], measure=Measure(half_width=half_width))["stop_reason"]

    # 30 steps of 2 s: 3 × 0.38 ÷ 60 is 1.9 %.
    assert reason([2.0] * 30) == "precise"
    assert reason([2.0] * 28) == limit
    assert reason([2.0] * 28, 0.03) == "precise"
    assert reason([1.0, 1.4] * 40) == limit
    assert reason(list(np.linspace(2.0, 1.9, 100))) == limit, "it drifts"
    assert reason([2.0] * 30, None) == limit, "nobody asked how well"


@pytest.mark.parametrize(
    ("count", "period", "is_few"), [(7, 1, True), (8, 1, False), (56, 8, True), (64, 8, False)]
)
def test_a_window_whose_time_was_over_before_8_steps_or_periods_is_flagged(
    count: int, period: int, *, is_few: bool
) -> None:
    settings = {"sync": "local_sgd", "sync_period": period} if period > 1 else {}
    step_s = [2.0 + 0.4 * (step // period % 2) for step in range(count)]
    sent = [outcome(step_s, stop_reason="max_seconds")] * 2
    assert ("few_steps" in flags_of(*sent, **settings)) == is_few
    assert not is_few or "imprecise" in flags_of(*sent, **settings)


def test_a_few_long_sync_periods_can_be_precise() -> None:
    # Seven periods of 128 steps: fewer than a look before the limit believes.
    steps = [*([0.01] * 127), 0.03] * 7
    row = row_of([outcome(steps, stop_reason="max_steps")] * 2, sync="local_sgd", sync_period=128)
    assert (row["stop_reason"], row["flags"]) == ("precise", [])
    assert row["half_width"] == pytest.approx(0.005)


def test_a_window_that_its_own_later_blocks_contradict_is_flagged_unstable() -> None:
    # 80 steps of a second are known to 1.4 %.
    def flagged(later: list[float], window: list[float] = STEADY * 2) -> bool:
        sent = outcome(window, turns=pairs(later, [0.9] * len(later)))
        return "unstable" in flags_of(sent, sent)

    assert [flagged([later] * 8) for later in (0.98, 1.0, 1.01, 1.02)] == [True, False, False, True]
    # These blocks are known to 3.182 × 0.115 ÷ 2 = 0.18 s.
    assert not flagged([1.05, 1.25, 1.05, 1.25])
    assert flagged([1.15, 1.35, 1.15, 1.35])
    assert not flagged([2.0] * 2), "two blocks tell nothing of their spread"
    assert not flagged([2.0] * 8, list(np.linspace(1.0, 1.5, 80))), "what drifts has no interval"


def test_what_one_rank_of_a_block_gains_and_the_other_loses_makes_no_window_unstable() -> None:
    # Where a block of one step ends scatters between the ranks, as it does in the window.
    early, late = (
        outcome(STEADY * 2, turns=pairs([later] * 8, [0.9] * 8)) for later in (0.95, 1.05)
    )
    assert "unstable" not in flags_of(early, late)
    assert "unstable" in flags_of(late, late)


@pytest.mark.parametrize(("share", "flagged"), [(0.04, False), (0.06, True)])
def test_more_than_a_twentieth_of_a_step_spent_on_data_is_flagged_input_bound(
    share: float, flagged: bool
) -> None:
    slow = outcome(STEADY, phases={**PASS, "data_s": share})
    assert ("input_bound" in flags_of(outcome(STEADY), slow)) == flagged


def test_what_a_rank_flags_is_the_trials_once() -> None:
    both = [outcome(STEADY * 2, flags=own) for own in (["throttled"], ["throttled", "oom_retry"])]
    assert flags_of(*both) == ["throttled", "oom_retry"]


def test_the_exchange_that_a_local_mode_has_in_every_period_is_no_oddity() -> None:
    steps = [1.0, 1.01, 1.0, 2.0] * 20
    assert flags_of(*[outcome(steps)] * 2, sync="local_sgd", sync_period=4) == []
    for start in (20, 40, 60):
        steps[start : start + 4] = [5.0] * 4
    assert "spiky" in flags_of(*[outcome(steps)] * 2, sync="local_sgd", sync_period=4)
