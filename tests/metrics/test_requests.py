"""Columns of an open loop, from its requests."""

from __future__ import annotations

import numpy as np
import pytest

from dtsweep.measure.warmup import Steadiness
from dtsweep.metrics.rank_result import Measured
from dtsweep.metrics.summary import trial_columns
from dtsweep.sweep.point import Point
from tests.linear import Linear

POINT = Point(
    workload=Linear(),
    sync="open_loop",
    micro_batch=1,
    workers=2,
    rate=10.0,
    max_batch=1,
    max_wait_s=0.0,
)


def measured(latency_s: list[float]) -> Measured:
    """A window of requests, ten a second; nan is one that was not answered."""
    count = len(latency_s)
    times = np.array(latency_s)
    return Measured(
        steps={
            "step": np.arange(count),
            "part": np.full(count, "window"),
            "warmup": np.zeros(count, dtype=np.bool_),
            "block": np.full(count, -1),
            "start_s": np.arange(count) / 10,
            "step_s": times,
            "queue_s": times / 4,
        },
        window_s=count / 10,
        window_steps=int(np.isfinite(times).sum()),
        skipped_steps=0,
        stop_reason="max_seconds",
        memory_peak_bytes=1,
        telemetry={"energy_j": 10.0},
        steadiness=Steadiness(start=0, drift=None, is_sure=False),
    )


def test_requests_without_an_answer_count_as_slower_than_all_others() -> None:
    # 194 answers after 1 to 2 s, and 6 requests without one.
    mixed = np.random.default_rng(1).permutation(np.linspace(1, 2, 194))
    latency_s = [*mixed, *[np.nan] * 6]
    client, other = measured(latency_s), measured([])
    row = trial_columns(POINT, [client, other], nodes=["a", "a"], wanted=0.02)
    assert row["step_p50_s"] == pytest.approx(1 + 0.5 * 200 / 194)
    assert row["step_p95_s"] == pytest.approx(1 + 0.95 * 200 / 194)
    assert row["step_p99_s"] is row["step_p99_s_high"] is row["step_max_s"] is None
    assert row["step_p50_s_low"] < row["step_p50_s"] < row["step_p50_s_high"]
    # Some of the last ones were answered after the window's 20 s.
    inside = int((np.arange(194) / 10 + mixed < 20).sum())
    assert row["samples_per_s"] == pytest.approx(inside / 20)
    assert row["queue_s"] == pytest.approx(1.5 / 4)
    assert row["energy_j_per_sample"] == pytest.approx(20 / 194)
    assert "imprecise" in row["flags"]
