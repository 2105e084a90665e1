"""Results of a small sweep on disk: trials that ended in each way, with ranks and steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from dtsweep.cli import cli
from dtsweep.results.run_record import FOLDER, SUFFIX, RunRecord
from dtsweep.results.storage import StoredFile
from dtsweep.results.store import Results

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOST = "node-7.cluster.example"
STEPS, WARMUP = 1500, 3
REASON = f"rank 0 on {HOST}: OSError: /home/anna/data is gone (s3://KEY:s3cr3t@bucket/x)"


def store_sweep(folder: Path) -> Path:
    """Store two `ok` trials, a failed one, one that was cut, a skipped one, and a canary."""
    results = Results(folder)
    _store(results, 1, steps=STEPS, status="ok", micro_batch=4, latency_s=0.1 + 0.2, mfu=None)
    _store(results, 2, steps=20, status="ok", micro_batch=8, latency_s=1 / 3, mfu=0.25)
    _store(results, 3, status="user_error", micro_batch=16, reason=REASON)
    _store(results, 4, status="cancelled", micro_batch=32, reason="interrupted")
    _store(results, 5, status="skipped", micro_batch=64, reason="=too large")
    _store(results, 6, status="ok", micro_batch=4, role="canary", latency_s=0.5)
    record = RunRecord(
        run_id="run1", sweep="study", host=HOST, pid=1, started_at=0.0, updated_at=0.0
    )
    results.write([StoredFile(FOLDER, f"run1{SUFFIX}", record.to_json())])
    return folder


def export(*arguments: str | Path) -> None:
    """Run `dtsweep export` in this process."""
    cli(["export", *map(str, arguments)], standalone_mode=False)


def private_texts() -> list[str]:
    """Texts of the rows that no export may hold: a host, a home folder and a secret."""
    return [HOST, "/home/anna", "s3cr3t"]


def _store(results: Results, number: int, *, steps: int = 0, **fields: Any) -> None:
    trial = {
        "attempt_id": f"{number:032x}",
        "trial_id": f"trial{number}",
        "point_id": f"point{number}",
        "repeat": 1,
        "attempt": 1,
        "row_number": number,
        "role": "trial",
        "harness": "ray",
        "workload": "Net",
        "workload_width": 256,
        "semantics": "exact",
        "sync": "ddp",
        "workers": 2,
        "overlap": True,
        "environment": "{}",
        "flags": ["spiky"] if steps else [],
        "started_at": START + timedelta(minutes=number),
        "startup_s": 2.0,
        "trial_s": 8.0,
        "torch_version": "2.0",
    }
    results.commit(
        trial | fields,
        ranks=[{"rank": rank, "node": HOST} for rank in range(2)],
        steps=_steps(steps) if steps else None,
        workload_types={"width": int},
    )


def _steps(count: int) -> dict[str, Any]:
    """Steps of two workers, the second of which takes 1 ms more, then one after the window."""
    warmup = np.arange(count) < WARMUP
    part = ["warmup"] * WARMUP + ["window"] * (count - WARMUP - 1) + ["no_exchange"]
    return {
        "rank": np.repeat([0, 1], count),
        "step": np.tile(np.arange(count), 2),
        "warmup": np.tile(warmup, 2),
        "part": part * 2,
        "start_s": np.tile(np.arange(count) * 0.01, 2),
        "step_s": np.concatenate([np.full(count, 0.010), np.full(count, 0.011)]),
        "loss": np.tile(5.0 - np.arange(count) / count, 2),
    }
