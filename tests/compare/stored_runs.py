"""Stored runs of a small made-up sweep, as the driver leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.compare.runs import Run, load_run, load_runs
from dtsweep.metrics.rows import task_row
from dtsweep.results.run_record import FOLDER, SUFFIX, RunRecord
from dtsweep.results.storage import StoredFile
from dtsweep.results.store import Results
from dtsweep.sweep.task import task_of
from dtsweep.sweep.values import column_types

SWEEP = Sweep(
    workload=workloads.Gpt(layers=1, width=8),
    axes={"micro_batch": [4, 16]},
    measure=Measure(canary=False),
)
MACHINE = '{"cpu": "Xeon", "cpus": 2, "torch_version": "2.13.0"}'


def run_in(folder: Path) -> Run:
    """The results of a folder as one run."""
    return load_run(Results(folder))


def runs_in(folder: Path) -> list[Run]:
    """The runs of a folder."""
    return load_runs(Results(folder))


def store_run(
    folder: Path,
    rates: Mapping[int, Sequence[float | None]],
    *,
    day: int = 1,
    env_id: str | None = "a1b2",
    machine: str | None = MACHINE,
    ranks: Sequence[Mapping[str, Any]] = ({},),
    has_record: bool = False,
    **columns: Any,
) -> Path:
    """Commit a run.

    Args:
        folder: of the results.
        rates: samples/s by micro_batch, one for each launch; None is a trial that failed with
            `nan`.
        day: of January 2026.
        env_id: of all trials; None where no rank said it.
        machine: as the ranks store it; None is unknown.
        ranks: columns of each rank.
        has_record: store the record of the run, too.
        columns: others of `trials`.
    """
    results, start = Results(folder), datetime(2026, 1, day, tzinfo=UTC)
    if has_record:
        began = start.timestamp()
        record = RunRecord(
            **{"run_id": f"day{day}", "sweep": "study", "host": "a", "pid": 1},
            **{"started_at": began, "updated_at": began, "ended_at": began + 3600},
        )
        results.write([StoredFile(FOLDER, f"{record.run_id}{SUFFIX}", record.to_json())])
    for micro_batch, launches in rates.items():
        point = Point(micro_batch=micro_batch, workload=SWEEP.workload)
        for repeat, rate in enumerate(launches, 1):
            task = task_of(SWEEP, point, repeat=repeat)
            step_s = micro_batch / (rate or 1)
            row = task_row(SWEEP, point, task) | {"env_id": env_id, "hosts": 1, "devices": "Xeon"}
            row |= {"session": f"day{day}-{repeat}", "flags": []}
            row |= {"started_at": start + timedelta(minutes=repeat)}
            if rate is None:
                row |= {"status": "nan", "reason": "rank 0: the loss is nan"}
            else:
                row |= {"status": "ok", "samples_per_s": rate, "samples_per_s_error": 0.003 * rate}
                for name in ("step_mean_s", "step_p50_s", "latency_s"):
                    row |= {name: step_s, f"{name}_error": 0.003 * step_s}
            known = {"node": "a", "device": "Xeon", "threads": 1, "machine": machine}
            results.commit(
                row | columns,
                ranks=[{"rank": number} | known | dict(rank) for number, rank in enumerate(ranks)],
                workload_types=column_types(SWEEP.workload),
            )
    return folder
