"""A made-up sweep over all semantics, two worlds and some batch shapes."""

from __future__ import annotations

import functools
from typing import Any

import pandas as pd

from dtsweep.report.content import Content, content_of
from tests.frames import trials

MODES: tuple[dict[str, Any], ...] = (
    {"sync": "ddp"},
    {"sync": "parameter_server", "staleness": 0, "shards": 1},
    {"sync": "parameter_server", "shards": 2, "semantics": "stale"},
    {"sync": "local_sgd", "sync_period": 8, "semantics": "local"},
)


def measured(
    mode: dict[str, Any], *, workers: int, micro_batch: int, accumulation: int
) -> dict[str, Any]:
    samples = workers * micro_batch * accumulation
    step_s = (0.02 + 0.002 * micro_batch) * accumulation * (1 + 0.05 * workers) + 0.001 * len(mode)
    return mode | {
        "workers": workers,
        "micro_batch": micro_batch,
        "accumulation": accumulation,
        "global_batch": None if mode.get("semantics") == "stale" else samples,
        "step_p50_s": step_s,
        "step_p50_s_low": step_s * 0.99,
        "step_p50_s_high": step_s * 1.01,
        "step_mean_s": step_s,
        "samples_per_s": samples / step_s,
        "samples_per_s_low": samples / step_s * 0.99,
        "samples_per_s_high": samples / step_s * 1.01,
        "tokens_per_s": samples / step_s * 1024,
        "memory_peak_bytes": 2**29 + micro_batch * 2**20,
    }


def sweep(**common: Any) -> pd.DataFrame:
    rows = [
        measured(mode, workers=workers, micro_batch=micro_batch, accumulation=accumulation)
        for mode in MODES
        for workers in (1, 2)
        for micro_batch in (4, 8, 16)
        for accumulation in (1, 2)
    ]
    failed = {
        "status": "oom_device",
        "reason": "OutOfMemoryError: [/red] of 2 GiB",
        "log": "results/logs/s1/0.log",
    }
    skipped = {"status": "skipped", "reason": "over 512 samples a step"}
    return trials(*rows, failed, skipped, skipped, **common)


@functools.cache
def swept() -> Content:
    """The content of the made-up sweep, computed once for all tests of a process."""
    return content_of(sweep())


def canary(session: str, step_mean_s: float | None, **fields: Any) -> dict[str, Any]:
    known = {"step_mean_s": step_mean_s, "half_width": 0.01}
    return {"role": "canary", "point_id": "watch", "session": session, **known, **fields}
