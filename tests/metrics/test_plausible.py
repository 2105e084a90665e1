"""Rows whose numbers can't all be true are named with the numbers, and no other row is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtsweep.metrics.plausible import JUDGED_COLUMNS, contradictions, plausibility_columns
from dtsweep.results.schema import TRIALS
from dtsweep.sweep.mode_info import Grid, ModeInfo
from dtsweep.sweep.modes import mode_of
from dtsweep.sweep.point import Point
from tests.outcomes import PASS, Sent, facts, marked, outcome, row_of

HONEST: dict[str, Any] = {
    "samples_per_s": 640.0,
    "step_mean_s": 0.1,
    "global_batch": 64,
    "sync": "ddp",
    "flags": ["spiky"],
    "measured_steps": 30,
    "window_s": 3.01,
    "step_max_s": 0.12,
    "mfu": 0.61,
    "hfu": 0.75,
    "peak_flops_per_s": 989e12,
    "peak_source": "table",
    "devices": "NVIDIA H100 80GB HBM3",
}
"""Columns of a row with nothing wrong: 64 samples in a tenth of a second."""


LONG = {"measured_steps": 1000, "window_s": 400.0}
"""A window four times as long as its steps."""

MACHINE = facts(machine={"cpus": 2})
GPU = facts(device="NVIDIA H100 80GB HBM3", device_uuid="GPU-1")

MODES: tuple[dict[str, Any], ...] = (
    {"sync": "ddp"},
    {"sync": "ddp", "accumulation": 3, "precision": "bf16"},
    {"sync": "local_sgd", "sync_period": 2},
    {"sync": "parameter_server"},
    {"sync": "parameter_server", "staleness": 0},
    {"sync": "parameter_server", "staleness": 2},
)


def with_memory(sent: Sent, device_bytes: int | None) -> Sent:
    assert sent.result is not None
    return sent._replace(result=replace(sent.result, device_bytes=device_bytes))


# A row by itself


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"samples_per_s": 1280.0}, "samples_per_s × step_mean_s is 128, and global_batch 64"),
        ({"step_mean_s": 0.05, "measured_steps": 60}, "step_mean_s is 32, and global_batch 64"),
        ({"global_batch": 32}, "is 64, and global_batch 32"),
        # Both were changed alike: the window knows better.
        ({"samples_per_s": 320.0, "step_mean_s": 0.2}, "30 steps of 0.2 s in a window of 3.01 s"),
        (LONG, "1000 steps of 0.1 s in a window of 400 s"),
        # Updates are late, but all workers make each.
        ({"semantics": "stale", **LONG}, "1000 steps of 0.1 s in a window of 400 s"),
        ({"window_s": 2.0}, "30 steps of 0.1 s in a window of 2 s"),
        ({"mfu": 1.37, "hfu": None}, "mfu is 1.37 of a dense peak of 989 TFLOP/s (table): are "),
        ({"hfu": 1.2, "peak_source": "given"}, "hfu is 1.2 of a dense peak of 989 TFLOP/s (given)"),
    ],
)
def test_a_row_that_contradicts_itself_is_named_with_the_numbers(
    lie: dict[str, Any], said: str
) -> None:
    (words,) = contradictions(HONEST | lie)
    assert said in words


@pytest.mark.parametrize(
    "truth",
    [
        {},
        # A worker's last step is followed by its leave of the servers, on a busy machine.
        {"window_s": 8.1},
        # Each worker has steps of its own, the slowest one few.
        {"global_batch": None, "measured_steps": 3},
        # Clocks go beyond that of the sheet.
        {"mfu": 1.02},
        # A product beside other work is slower than a step without it.
        {"mfu": 1.23, "peak_source": "measured"},
        # The fast half does most of the work, and the slow half is the measure.
        {"mfu": 1.3, "global_batch": None, "devices": "NVIDIA A100, NVIDIA H100"},
    ],
)
def test_an_honest_row_is_not_named(truth: dict[str, Any]) -> None:
    assert contradictions(HONEST | truth) == []


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_what_is_unknown_contradicts_nothing(unknown: Any) -> None:
    for column in JUDGED_COLUMNS:
        value = None if column in ("flags", "sync", "devices", "peak_source") else unknown
        assert contradictions(HONEST | {column: value}) == [], column
    assert contradictions(dict.fromkeys(JUDGED_COLUMNS)) == contradictions({}) == []
    # No steps are no reason to fail.
    names = ("measured_steps", "step_mean_s", "samples_per_s", "global_batch", "window_s")
    assert contradictions(HONEST | dict.fromkeys(names, 0)) == []


def test_columns_that_are_judged_are_stored() -> None:
    assert {column.name for column in TRIALS} >= {*JUDGED_COLUMNS}


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("factor", [0.1, 0.9, 0.995, 1.0, 1.005, 1.1, 10.0])
def test_the_verdict_depends_on_no_size_of_step_batch_or_device(size: float, factor: float) -> None:
    rate = 640 * size * factor
    larger = HONEST | {"global_batch": 64 * size, "samples_per_s": rate}
    faster = HONEST | {"step_mean_s": 0.1 / size, "samples_per_s": rate, "window_s": None}
    device = HONEST | {"peak_flops_per_s": 989e12 * size, "mfu": factor}
    assert (contradictions(larger) == []) is (0.99 < factor < 1.01)
    assert (contradictions(faster) == []) is (0.99 < factor < 1.01)
    assert (contradictions(device) == []) is (factor < 1.05)


# What ranks measured


@settings(deadline=None, max_examples=25)
@given(
    fields=st.sampled_from(MODES),
    steps=st.lists(st.floats(1e-5, 1e3), min_size=4, max_size=40).map(lambda s: s[len(s) % 2 :]),
    paces=st.lists(st.floats(0.2, 5), min_size=1, max_size=4),
    late_s=st.floats(0, 5),
)
def test_no_honest_ranks_are_named_in_any_mode_however_their_steps_scatter(
    fields: dict[str, Any], steps: list[float], paces: list[float], late_s: float
) -> None:
    is_stale = fields["sync"] == "parameter_server" and fields.get("staleness") != 0
    ranks = []
    for pace in paces if is_stale else [1.0] * len(paces):
        own = {"window_s": sum(steps) * pace + late_s, "telemetry": {"process_cpus": 0.9}}
        ranks.append(outcome([step * pace for step in steps], where=MACHINE, **own))
    row = row_of([with_memory(rank, 100) for rank in ranks], **fields)
    assert row["implausible"] is None
    assert "implausible" not in row["flags"]


STEADY = [0.1] * 40
"""Four seconds."""


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"window_steps": 80}, "rank 1: 40 steps have a time in a window of 80"),
        ({"phases": {**PASS, "data_s": 0.5}}, "rank 1: the phases take 0.125 s of a step of 0.1 s"),
        ({"telemetry": {"process_cpus": 3.0}}, "rank 1: 12 s of CPU time in a window of 4 s on 2 "),
        ({"memory_peak_bytes": 82 * 2**30}, "rank 1: memory peak 82 GiB on a device of 80 GiB"),
    ],
)
def test_a_rank_that_contradicts_itself_is_named_with_the_numbers(
    lie: dict[str, Any], said: str
) -> None:
    honest, lying = (
        with_memory(outcome(STEADY, where=MACHINE, **fields), 80 * 2**30) for fields in ({}, lie)
    )
    row = row_of([honest, lying])
    assert row["implausible"].startswith(said)
    assert row["flags"][-1] == "implausible"
    assert row["samples_per_s"] == pytest.approx(80)
    words = row_of([lying, honest, lying])["implausible"]
    assert words.startswith(said.replace("rank 1", "rank 0 and 1 more"))


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_throughput_of_workers_apart_is_that_of_their_steps(factor: float) -> None:
    # 40 steps of 4 samples in 4 s, twice.
    point = Point(workers=2, sync="parameter_server", micro_batch=4)
    known, results = marked([outcome(STEADY)] * 2, sync="parameter_server")
    row = {"samples_per_s": 80 * factor, "semantics": "stale", "flags": []}
    words = plausibility_columns(point, row, known, results)["implausible"]
    rate = f"{80 * factor:.4g}"
    wrong = f"samples_per_s of {rate} is {rate} steps in the 4 s in which all workers had steps"
    assert words == (None if factor == 1 else f"{wrong}, and these were 80 to 80")


class Halves(Point):
    """A point of two workers that share a model."""

    @property
    def mode(self) -> ModeInfo:
        return replace(mode_of("ddp"), grid=lambda _: Grid(data=1, model=2))


def test_the_arithmetic_of_a_worker_with_a_part_of_a_model_is_not_judged() -> None:
    known, results = marked([computing(1.5 * 396.8e9 * 4 / 160)] * 2)
    row = {"samples_per_s": 40.0, "semantics": "exact", "flags": []}
    whole, half = (
        plausibility_columns(kind(workers=2, micro_batch=4), row, known, results)["implausible"]
        for kind in (Point, Halves)
    )
    assert "FLOP in 4 s of CPU time" in whole
    assert half is None


def computing(flops: float, *, cpus: float = 1.0, where: Any = MACHINE, **other: Any) -> Sent:
    """A rank that does so many FLOP for each of its 160 samples, in 4 s."""
    telemetry = {"process_cpus": cpus}
    return outcome(STEADY, where=where, flops_per_sample=flops, telemetry=telemetry, **other)


FAST = 100 * 50e9 * 4 / 160
"""FLOP of a sample for 5 TFLOP/s: 40 steps of 4 samples in 4 s."""


@pytest.mark.parametrize(
    "own", [{}, {"matmul_flops_per_s": 40e9}, {"matmul_flops_per_s": 40e9, "cpus": 0.5}]
)
def test_more_arithmetic_than_cores_can_do_is_named_whatever_a_matrix_product_reached(
    own: dict[str, Any],
) -> None:
    # At 50 GFLOP/s.
    assert row_of([computing(FAST / 100, **own)])["implausible"] is None
    words = row_of([computing(FAST, **own)])["implausible"]
    assert f"rank 0: 2e+13 FLOP in {4 * own.get('cpus', 1.0):.4g} s of CPU time" in words
    assert "a core does at most 396.8 GFLOP/s at fp32: is flops_per_sample 1.25e+11 right?" in words


def test_the_bound_of_cores_is_that_of_their_precision_their_number_and_their_kind() -> None:
    assert row_of([computing(FAST)], precision="bf16")["implausible"] is None
    honest = [
        computing(FAST, cpus=16.0, where=facts(machine={"cpus": 16})),
        # Cores that do 2 TFLOP/s by themselves, as no x86 core does.
        computing(FAST, matmul_flops_per_s=2e12),
        # More of them than a variable lets Python count.
        computing(FAST, cpus=16.0, where=facts(machine={"cpus": 2, "cpus_allowed": 16})),
        # A GPU's work takes no CPU time.
        computing(FAST, where=GPU),
    ]
    assert [row_of([rank])["implausible"] for rank in honest] == [None] * 4
    again = computing(FAST / 100, hardware_flops_per_sample=FAST)
    assert "is flops_per_sample 1.25e+11 right?" in row_of([again])["implausible"]


def test_the_share_of_a_gpus_peak_is_judged_with_what_is_computed_again() -> None:
    counted = {"flops_per_sample": 20.0, "hardware_flops_per_sample": 30.0}
    peak = {"peak_flops_per_s": 100.0, "peak_source": "table"}
    row = row_of([outcome([1.0] * 40, where=GPU, **counted, **peak)])
    assert (row["mfu"], row["hfu"]) == (pytest.approx(0.8), pytest.approx(1.2))
    assert row["implausible"].startswith("hfu is 1.2 of a dense peak of 1e-10 TFLOP/s (table)")


@pytest.mark.parametrize(
    "rank",
    [
        # Ranks may share pages, so that only one rank's memory is compared.
        with_memory(outcome(STEADY, memory_peak_bytes=60), 100),
        with_memory(outcome(STEADY, memory_peak_bytes=60), None),
        # A learning rate of 0, or one below the rounding of the weights.
        outcome(STEADY, columns={"loss": np.ones(len(STEADY) + 2)}),
    ],
)
def test_memory_that_ranks_share_and_a_loss_that_stays_are_no_contradiction(rank: Sent) -> None:
    assert row_of([rank, rank])["implausible"] is None
