"""Rows from what the ranks sent; `driver.recorder` adds status, session, log and provenance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.metrics.breakdown import PHASE_COLUMNS, Row
from dtsweep.metrics.flags import device_flags
from dtsweep.metrics.own_loops import columns_of_loop, counted_columns, with_counted_samples
from dtsweep.metrics.plausible import plausibility_columns
from dtsweep.metrics.rank_result import (
    Measured,
    RankColumns,
    RankFacts,
    RankResult,
    TrialColumns,
)
from dtsweep.metrics.skew import own_work
from dtsweep.metrics.summary import (
    largest_peak,
    staleness_columns,
    staleness_counts,
    trial_columns,
)
from dtsweep.metrics.window_view import mark_warmup
from dtsweep.results.statuses import WRONG
from dtsweep.secret import hidden
from dtsweep.sweep.modes import AS_WRITTEN, OPEN_LOOP
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.settings import Measure, Sweep
from dtsweep.sweep.task import Task
from dtsweep.sweep.values import stored_fields

_FactsByRank = Mapping[int, RankFacts]
"""By rank: of all that came up."""

_ResultsByRank = Mapping[int, RankResult]
"""By rank: of those that answered."""


def point_row(sweep: Sweep, point: Point) -> Row:
    """The columns of a trial that are known before it runs."""
    global_batch = None
    if not point.is_asynchronous:
        global_batch = point.global_batch
    of_loop = {}
    if point.sync == AS_WRITTEN:
        of_loop = columns_of_loop(point)
    return {
        **point.columns(),
        # What would say so is not what runs.
        **({"optimizer": None} if point.has_own_optimizer else {}),
        **stored_fields(point.workload),
        "point_id": identity(point),
        "workload": type(point.workload).__name__,
        "seed": sweep.seed,
        "semantics": point.semantics,
        "data_parallel": point.grid.data,
        "model_parallel": point.grid.model,
        "agree": point.mode.agree,
        "environment": json.dumps(
            hidden({**sweep.resources.environment, **point.environment}), sort_keys=True
        ),
        "global_batch": global_batch,
        "samples_per_update": point.samples_per_update,
        "cpus_per_worker": sweep.resources.cpus_per_worker,
        "gpus_per_worker": sweep.resources.gpus_per_worker,
        "fresh": sweep.measure.fresh,
        "measure": _as_json(sweep.measure),
        "question": sweep.question and sweep.question.as_json(),
        **of_loop,
    }


def task_row(sweep: Sweep, point: Point, task: Task) -> Row:
    """The columns of an attempt that are known before it runs."""
    names = ("attempt_id", "trial_id", "repeat", "attempt", "role")
    fields = {name: getattr(task, name) for name in names}
    return {**point_row(sweep, point), **fields, "measure": _as_json(task.measure)}


def _as_json(measure: Measure) -> str:
    return json.dumps(asdict(measure), sort_keys=True)


def trial_row(
    sweep: Sweep,
    point: Point,
    task: Task,
    facts: _FactsByRank,
    results: _ResultsByRank,
    *,
    harness: str = "ray",
) -> Row:
    """Make the row of an attempt from what each rank sent.

    Args:
        sweep: its sweep.
        point: what was run, with its workload.
        task: the attempt.
        facts: where each rank runs.
        results: of the ranks that answered; steps with `warmup`.
        harness: what started the ranks.

    Returns:
        Columns of `trials`; statistics only where every rank measured and all is well.
    """
    row = {
        **task_row(sweep, point, task),
        **machine_columns(facts, harness=harness),
        "harness": harness,
        "device_free_bytes": _least_free_bytes(results),
    }
    if results:
        row["status"], row["reason"] = explaining_failure(results)
    if 0 in results and (first := results[0].measured) is not None:
        row |= _stored(first, TrialColumns)
    measured = [results[rank].measured for rank in sorted(results) if results[rank].status == "ok"]
    ranks = [rank for rank in measured if rank is not None]
    if len(ranks) == point.workers:
        if point.sync == AS_WRITTEN:
            point = with_counted_samples(point, ranks)
        nodes = [facts[rank].node for rank in range(point.workers)]
        row |= trial_columns(point, ranks, nodes=nodes, wanted=task.measure.half_width)
        devices = [facts[rank].device for rank in range(point.workers)]
        row["flags"] = device_flags(
            row["flags"], ranks, devices=devices, needs_energy=task.measure.energy
        )
        if point.sync != OPEN_LOOP:
            # Requests overlap: no sum of them is a time.
            row |= plausibility_columns(point, row, facts, results)
        if point.sync == AS_WRITTEN:
            row |= counted_columns(point, ranks, row)
    if any(result.left_state for result in results.values()):
        row["flags"] = [*row.get("flags", ()), "left_state"]
    return row


def with_warmup_marked(point: Point, results: _ResultsByRank) -> dict[int, RankResult]:
    """Mark the warm-up in each rank's steps: those before the window, and those found in it."""
    measured = {
        rank: result.measured
        for rank, result in sorted(results.items())
        if result.measured is not None
    }
    marked = dict(zip(measured, mark_warmup(point, list(measured.values())), strict=True))
    return {
        rank: replace(result, measured=marked[rank]) if rank in marked else result
        for rank, result in results.items()
    }


def explaining_failure(results: _ResultsByRank) -> tuple[str, str | None]:
    """The status and reason of a trial: those of the rank whose failure explains the others'.

    >>> full = RankResult(status="oom_device", reason="full")
    >>> explaining_failure({0: RankResult(status="collateral", reason="peer gone"), 1: full})
    ('oom_device', 'rank 1: full')
    """
    causes = (
        "oom_device",
        "oom_host",
        "infeasible",
        "user_error",
        "version_mismatch",
        "timeout",
        *WRONG,
        "nan",
    )
    order = (*causes, "collateral", "ok")
    rank = min(sorted(results), key=lambda r: order.index(results[r].status))
    status = results[rank].status
    reason = results[rank].reason
    return status, f"rank {rank}: {reason}" if reason else None


def machine_columns(facts: _FactsByRank, *, harness: str) -> Row:
    """Machine of the trial, and the digest that identifies it."""
    if not facts:
        return {}
    first = facts[min(facts)]
    partitions = {fact.partition for fact in facts.values()} - {None}
    switches = {fact.switch for fact in facts.values()}
    # Not in `env_id`: each link of a chain of jobs may get other switches, and one kind of machine
    # is often in several partitions. What differs between kinds is in `machine`.
    return {
        "hosts": len({fact.node_id or fact.node for fact in facts.values()}),
        "partition": ", ".join(sorted(map(str, partitions))) or None,
        "switches": None if None in switches else len(switches),
        "devices": _device_names(facts),
        "backend": "nccl" if first.device_uuid else "gloo",
        "env_id": _environment_id(facts, harness),
        **{name: value for name, value in first.machine.items() if name.endswith("_version")},
    }


def memory_facts(results: _ResultsByRank) -> Row:
    """Columns of an attempt that say what its memory was, as `trial_row` has them."""
    measured = [result.measured for result in results.values() if result.measured is not None]
    row: Row = {"device_free_bytes": _least_free_bytes(results)}
    if measured:
        row["memory_peak_bytes"] = largest_peak(measured)
    return row


def _least_free_bytes(results: _ResultsByRank) -> int | None:
    """Free memory of the fullest GPU before an attempt; None on a CPU."""
    free = [result.device_free_bytes for result in results.values()]
    return min((count for count in free if count is not None), default=None)


def _environment_id(facts: _FactsByRank, harness: str) -> str:
    machines = {
        json.dumps([fact.device, fact.threads, fact.machine], sort_keys=True)
        for fact in facts.values()
    }
    # The driver's own process, with its other threads, is another environment than a worker's.
    parts = sorted(machines)
    if harness == "in_process":
        parts.append(harness)
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def rank_rows(facts: _FactsByRank, results: _ResultsByRank) -> list[Row]:
    """The rows of `ranks`: what each rank ran on and measured.

    Args:
        facts: of all ranks.
        results: of those that answered.
    """
    return [_rank_row(rank, facts, results) for rank in sorted(facts)]


def step_columns(results: _ResultsByRank) -> dict[str, NDArray[Any]] | None:
    """The columns of `steps`, rank after rank; None where no rank measured."""
    measured = {
        rank: result.measured.steps
        for rank, result in sorted(results.items())
        if result.measured is not None
    }
    if not measured:
        return None
    lengths = [len(steps["step"]) for steps in measured.values()]
    names = {name for columns in measured.values() for name in columns}
    table = {}
    for name in names:
        columns = [steps.get(name) for steps in measured.values()]
        table[name] = np.concatenate(
            [
                np.full(length, np.nan) if column is None else column
                for column, length in zip(columns, lengths, strict=True)
            ]
        )
    # A loss that is not a number was measured as such; elsewhere such a value means that nothing
    # was measured.
    has_loss = np.repeat(["loss" in steps for steps in measured.values()], lengths)
    has_loss &= np.isin(table["part"], ("warmup", "window"))
    if "trains" in table:
        has_loss &= table.pop("trains")
    unknown = {"loss": ~has_loss, "block": table["block"] < 0}
    if "turn" in table:
        unknown["turn"] = table["turn"] < 0
    for name, values in table.items():
        if name in unknown or values.dtype.kind == "f":
            table[name] = np.ma.masked_array(
                values, mask=unknown[name] if name in unknown else np.isnan(values)
            )
    table["rank"] = np.repeat(list(measured), lengths)
    return table


def curve_rows(results: _ResultsByRank) -> list[Row]:
    """The rows of `curves`: evaluations of a training to a target, as rank 0 has them."""
    if 0 not in results or (first := results[0].measured) is None:
        return []
    return [dict(row) for row in first.curve]


def _rank_row(rank: int, facts: _FactsByRank, results: _ResultsByRank) -> Row:
    row: Row = {"rank": rank, **asdict(facts[rank])}
    row["machine"] = json.dumps(row["machine"], sort_keys=True)
    if rank not in results:
        return row
    result = results[rank]
    row["cleanup_s"] = result.cleanup_s
    row["device_free_bytes"] = result.device_free_bytes
    row["left_state"] = "; ".join(result.left_state) or None
    measured = result.measured
    if measured is None:
        return row
    return row | _measured_columns(measured, is_alone=len(facts) == 1)


def _measured_columns(measured: Measured, *, is_alone: bool) -> Row:
    answered = measured.answered()
    seconds = answered.of_part("step_s")
    means = {}
    # A replica's rank has none: the client's has all requests.
    if len(seconds):
        names = ["step_s", *(name for name in PHASE_COLUMNS if name in measured.steps)]
        means = {name: float(answered.of_part(name).mean()) for name in names}
        means["step_mean_s"] = means.pop("step_s")
    return {
        **measured.telemetry,
        **({"threads": measured.threads} if measured.threads else {}),
        **_stored(measured, RankColumns),
        "steps": len(seconds),
        **means,
        "work_s": own_work(measured.while_training(), is_alone=is_alone),
        **staleness_columns(measured.staleness),
        **staleness_counts(measured.staleness),
        "dropped_steps": sum(measured.dropped) if measured.dropped else None,
    }


def _stored(measured: Measured, kind: type[RankColumns] | type[TrialColumns]) -> Row:
    """Give the fields of a kind, which are columns by their names."""
    return {item.name: getattr(measured, item.name) for item in fields(kind)}


def _device_names(facts: _FactsByRank) -> str:
    """All device models of a world, each once, such as `NVIDIA H100 80GB HBM3`."""
    return ", ".join(sorted({fact.device for fact in facts.values()}))


def other_devices(facts: _FactsByRank, *, known_devices: Collection[str]) -> str | None:
    """Say that ranks are on another device model than the results, with the ways out, or None.

    Args:
        facts: of all ranks.
        known_devices: device models of the results; empty allows any.
    """
    devices = _device_names(facts)
    if not known_devices or devices in known_devices:
        return None
    return (
        f"these results were measured on {', '.join(sorted(known_devices))}, "
        f"this run is on {devices}; measure everything again with --rerun all, or keep both with "
        "another --results"
    )
