"""Make a small sample of results for the notebooks: `python notebooks/sample.py RESULTS FOLDER`.

The rows are those of the runs. What identifies people and machines is replaced, logs are left out,
and steps are kept of the fastest trial of each sync mode.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dtsweep.results.run_record import FOLDER, SUFFIX
from dtsweep.results.schema import TRIALS
from dtsweep.results.storage import StoredFile
from dtsweep.results.store import Results
from dtsweep.secret import PRIVATE_COLUMNS

LEFT_OUT = [
    name
    for name in (*PRIVATE_COLUMNS, "straggler", "machine", "pid", "device_uuid", "pci_bus_id")
    # Of our own workloads: they tell old rows from new ones.
    if name != "sources"
]
"""Columns without a meaning on another machine, or that may name hosts and users."""

CURVE = ("steps", "samples", "trained_s", "loss", "training_loss")
"""Columns of an evaluation."""

TYPES = {pa.bool_(): bool, pa.int64(): int, pa.float64(): float, pa.string(): str}


def main() -> None:
    """Read the arguments and make the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", help="a folder or a URI")
    parser.add_argument("folder", help="a new folder for the sample")
    arguments = parser.parse_args()
    make_sample(Results(arguments.results), Results(arguments.folder))


def make_sample(source: Results, sample: Results) -> None:
    """Copy attempts and records of runs, without what identifies people and machines."""
    names = ("trials", "ranks", "steps", "curves")
    trials, ranks, steps, curves = (source.table(name) for name in names)
    rank_rows = ranks.to_pylist()
    runs = source.run_records()
    nodes = numbered("node", [rank["node_id"] for rank in rank_rows])
    hosts = numbered(
        "host", [rank["node"] for rank in rank_rows] + [run.record.host for run in runs]
    )
    rows = trials.to_pylist()
    with_steps = fastest_of_each_mode(rows)
    for row in rows:
        name = row["attempt_id"]
        kept = None
        if name in with_steps:
            kept = steps.filter(pc.equal(steps["attempt_id"], name))
            kept = kept.drop_columns(["attempt_id", "trial_id"]).to_pydict()
        sample.commit(
            row | {column: None for column in LEFT_OUT if column in row},
            ranks=[
                rank
                | {column: None for column in LEFT_OUT if column in rank}
                | {"node_id": nodes.get(rank["node_id"]), "node": hosts.get(rank["node"])}
                for rank in rank_rows
                if rank["attempt_id"] == name
            ],
            steps=kept,
            curves=[
                {column: one[column] for column in CURVE}
                for one in curves.filter(pc.equal(curves["attempt_id"], name)).to_pylist()
            ],
            workload_types=workload_types(trials.schema),
        )
    for run in runs:
        record = replace(run.record, host=hosts[run.record.host], pid=0)
        sample.write([StoredFile(FOLDER, f"{record.run_id}{SUFFIX}", record.to_json())])
    sample.compact()


def numbered(kind: str, names: Sequence[str | None]) -> dict[Any, str]:
    """Give each node or host a number in place of its name."""
    known = sorted({name for name in names if name is not None})
    return {name: f"{kind} {number}" for number, name in enumerate(known, start=1)}


def fastest_of_each_mode(rows: Sequence[dict[str, Any]]) -> set[str]:
    """Name the attempt of each sync mode that has the highest throughput of several workers."""
    fastest: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["status"] != "ok" or row["role"] == "canary" or row["samples_per_s"] is None:
            continue
        rate = (row["workers"] > 1, row["samples_per_s"])
        best = fastest.setdefault(row["sync"], row)
        if rate > (best["workers"] > 1, best["samples_per_s"]):
            fastest[row["sync"]] = row
    return {row["attempt_id"] for row in fastest.values()}


def workload_types(schema: pa.Schema) -> dict[str, type]:
    """Types of the workload's fields, which have columns after those of dtsweep."""
    own = {column.name for column in TRIALS}
    return {
        field.name.removeprefix("workload_"): TYPES[field.type]
        for field in schema
        if field.name not in own
    }


if __name__ == "__main__":
    main()
