"""From what the ranks sent to the rows that are stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.metrics.breakdown import PHASE_COLUMNS, Row, own_work, steps_of
from dtsweep.metrics.summary import mark_warmup, staleness_columns, trial_columns
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, point_row

TELEMETRY_COLUMNS = (
    "device_utilization",
    "device_memory_used_bytes",
    "sm_clock_hz",
    "sm_clock_share",
    "temperature_celsius",
    "throttle_reasons",
    "device_errors",
    "power_w",
    "energy_j",
    "other_processes",
    "process_cpus",
    "host_cpu_share",
    "host_memory_used_bytes",
    "host_load",
    "network_sent_bytes",
    "network_received_bytes",
    "cpu_energy_j",
    "matmul_flops_per_s",
)
"""What a rank says of its device and host, stored as it comes."""


def trial_row(sweep: Sweep, task: Task, outcomes: Mapping[int, Mapping[str, Any]]) -> Row:
    """Make the row of an attempt from what each rank sent.

    Args:
        sweep: its sweep.
        task: what was run.
        outcomes: by rank; `facts` of the rank in each, figures in those that measured.

    Returns:
        Columns of `trials`; figures only where every rank measured and all is well.
    """
    point = task.to_point(sweep.workload)
    row: Row = {
        **point_row(sweep, point),
        "attempt_id": task.attempt_id,
        "trial_id": task.trial_id,
        "repeat": task.repeat,
        "attempt": task.attempt,
        "role": task.role,
        **explaining_failure(outcomes),
        **machine_columns(outcomes),
    }
    if len(outcomes) == point.workers and all(outcome.get("status") == "ok" for outcome in outcomes.values()):
        ranks = [outcomes[rank] for rank in range(point.workers)]
        row |= trial_columns(point, ranks, half_width=task.measure.half_width)
    return row


def settled(sweep: Sweep, task: Task, outcomes: Mapping[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Mark in each rank's steps which are warm-up: those before the window, and those found in it."""
    measured = [rank for rank, outcome in sorted(outcomes.items()) if "steps" in outcome]
    point = task.to_point(sweep.workload)
    marked = mark_warmup(point, [outcomes[rank]["steps"] for rank in measured])
    steps = dict(zip(measured, marked, strict=True))
    return {rank: {**outcome, "steps": steps[rank]} if rank in steps else outcome for rank, outcome in outcomes.items()}


def explaining_failure(outcomes: Mapping[int, Mapping[str, Any]]) -> Row:
    """The status and reason of a trial: those of the rank whose failure explains the others'.

    >>> full = {"status": "oom_device", "reason": "full"}
    >>> explaining_failure({0: {"status": "collateral", "reason": "peer gone"}, 1: full})
    {'status': 'oom_device', 'reason': 'rank 1: full'}
    """
    order = ("oom_device", "oom_host", "user_error", "version_mismatch", "timeout", "nan", "collateral", "ok")
    reported = [rank for rank in sorted(outcomes) if "status" in outcomes[rank]]
    if not reported:
        return {}
    rank = min(reported, key=lambda r: order.index(outcomes[r]["status"]))
    reason = outcomes[rank].get("reason")
    return {"status": outcomes[rank]["status"], "reason": f"rank {rank}: {reason}" if reason else None}


def machine_columns(outcomes: Mapping[int, Mapping[str, Any]]) -> Row:
    """What the trial ran on, and the digest that tells whether two trials ran on the same."""
    facts = {rank: outcome["facts"] for rank, outcome in outcomes.items() if "facts" in outcome}
    if not facts:
        return {}
    machines = sorted(
        json.dumps([fact["device"], fact["threads"], fact["machine"]], sort_keys=True) for fact in facts.values()
    )
    versions = facts[min(facts)]["machine"]
    return {
        "hosts": len({fact.get("node_id") or fact["node"] for fact in facts.values()}),
        "devices": device_names(facts),
        "backend": "nccl" if facts[min(facts)]["device_uuid"] else "gloo",
        "env_id": hashlib.sha256("".join(sorted(set(machines))).encode()).hexdigest()[:16],
        **{name: value for name, value in versions.items() if name.endswith("_version")},
    }


def rank_rows(outcomes: Mapping[int, Mapping[str, Any]]) -> list[Row]:
    """The rows of `ranks`: what each rank ran on and measured."""
    is_alone = len(outcomes) == 1
    return [_rank_row(rank, outcome, is_alone=is_alone) for rank, outcome in sorted(outcomes.items())]


def step_columns(outcomes: Mapping[int, Mapping[str, Any]]) -> dict[str, NDArray[Any]] | None:
    """The columns of `steps`, rank after rank; None where no rank measured."""
    measured = {rank: outcome["steps"] for rank, outcome in sorted(outcomes.items()) if "steps" in outcome}
    if not measured:
        return None
    names = {name for columns in measured.values() for name in columns}
    table = {
        name: np.concatenate([steps.get(name, np.full(len(steps["step"]), np.nan)) for steps in measured.values()])
        for name in names
    }
    # A loss that is not a number was measured as such; elsewhere such a value means that nothing was measured.
    unknown = {"loss": ~np.isin(table["part"], ("warmup", "window")), "block": table["block"] < 0}
    for name, values in table.items():
        if name in unknown or values.dtype.kind == "f":
            table[name] = np.ma.masked_array(values, mask=unknown[name] if name in unknown else np.isnan(values))
    table["rank"] = np.repeat(list(measured), [len(steps["step"]) for steps in measured.values()])
    return table


def _rank_row(rank: int, outcome: Mapping[str, Any], *, is_alone: bool) -> Row:
    facts = dict(outcome.get("facts", {}))
    if "machine" in facts:
        facts["machine"] = json.dumps(facts["machine"], sort_keys=True)
    row: Row = {"rank": rank, **facts}
    if "steps" in outcome:
        seconds = steps_of(outcome, "step_s")
        row |= {name: outcome.get(name) for name in ("window_s", "memory_peak_bytes", *TELEMETRY_COLUMNS)}
        row |= {"steps": len(seconds), "step_mean_s": float(seconds.mean()), "bytes_sent": outcome.get("bytes_sent")}
        row |= {name: float(steps_of(outcome, name).mean()) for name in PHASE_COLUMNS if name in outcome["steps"]}
        row |= {"work_s": own_work(outcome, is_alone=is_alone), **staleness_columns(outcome.get("staleness", ()))}
    return row


def device_names(ranks: Mapping[int, Mapping[str, Any]]) -> str:
    """All device models of a world, each once.

    >>> device_names({0: {"device": "H100"}, 1: {"device": "H100"}})
    'H100'
    """
    return ", ".join(sorted({rank["device"] for rank in ranks.values()}))
