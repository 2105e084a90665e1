"""Stored results of two models, with an implausible point and one of local updates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dtsweep.results.store import Results

SMALL = {"model_digest": "s", "flops_per_sample": 1e6, "workload_layers": 1}
BIG = {"model_digest": "b", "flops_per_sample": 2e6, "workload_layers": 2}
FALSE = {"micro_batch": 8, "implausible": "mfu is 7", "flags": ["implausible"]}
LOCAL = {"semantics": "local", "sync": "local_sgd", "sync_period": 8}
ROWS: tuple[dict[str, Any], ...] = (
    SMALL | {"latency_s": 0.1, "samples_per_s": 40.0},
    SMALL | {"latency_s": 0.15, "samples_per_s": 70.0, "workers": 2},
    SMALL | FALSE | {"latency_s": 0.08, "samples_per_s": 900.0},
    BIG | {"latency_s": 0.3, "samples_per_s": 10.0},
    BIG | {"latency_s": 0.5, "samples_per_s": 5.0, "workers": 2},
    SMALL | LOCAL | {"latency_s": 0.01, "samples_per_s": 5.0},
)


def stored(rows: tuple[dict[str, Any], ...], where: str | Path) -> None:
    usual = {
        **{"status": "ok", "role": "trial", "repeat": 1, "flags": [], "workload": "Gpt"},
        **{"workers": 1, "micro_batch": 4, "accumulation": 1, "sync": "ddp", "hosts": 1},
        **{"semantics": "exact", "env_id": "e"},
    }
    for number, row in enumerate(rows):
        names = {
            name: f"{name}{number}" for name in ("attempt_id", "trial_id", "point_id", "session")
        }
        started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
        Results(where).commit(
            usual | names | {"started_at": started} | row, workload_types={"layers": int}
        )
