"""An order: one attempt at a trial, as plain values that travel to the ranks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dtsweep.sweep.point import Point, column_types, identity, workload_fields
from dtsweep.sweep.settings import Measure, Sweep


@dataclass(frozen=True, kw_only=True)
class Task:
    """One attempt at a trial: plain values, as they travel to the ranks."""

    attempt_id: str
    trial_id: str
    point: Mapping[str, Any]
    """The point's own fields."""
    workload: Mapping[str, Any]
    """All fields of the point's workload."""
    environment: Mapping[str, str]
    seed: int
    repeat: int
    attempt: int
    measure: Measure
    session_group: str
    """Trials of one launch may share a session, if they need the same world."""

    role: str = "trial"
    """`trial`, or `canary`: the fixed point that both ends of a session measure."""

    peak_flops_per_s: float | None = None
    """What a worker's device can do at this precision, where the sweep says so."""

    rivals: tuple[tuple[float, float], ...] = ()
    """Latency and throughput of points that were measured, for `Measure(race=True)`."""

    profile: str | None = None
    """What records some steps after the window: `torch`'s profiler or `nsight`."""

    def to_point(self, workload: Any) -> Point:
        """Put the point together again around the sweep's workload."""
        return Point(**self.point, environment=self.environment, workload=replace(workload, **self.workload))


def task_of(sweep: Sweep, point: Point, *, repeat: int = 1, attempt: int = 1, role: str = "trial") -> Task:
    """Make the order for an attempt at a trial."""
    as_canary = {"role": role} if role != "trial" else {}
    trial_id = trial_name(sweep, point, repeat=repeat, **as_canary)
    fresh = f"/{trial_id}" if sweep.measure.fresh else ""
    return Task(
        attempt_id=uuid.uuid4().hex,
        trial_id=trial_id,
        point=point.scalars(),
        workload=workload_fields(point.workload),
        environment=dict(point.environment),
        seed=sweep.seed,
        repeat=repeat,
        attempt=attempt,
        measure=sweep.measure,
        session_group=f"{repeat}{fresh}",
        role=role,
        peak_flops_per_s=sweep.resources.peak(point.precision),
    )


def trial_name(sweep: Sweep, point: Point, *, repeat: int, **overrides: Any) -> str:
    """Name a trial; what is not in the name is stored beside it: limits, resources, versions, machine."""
    return identity(point, seed=sweep.seed, repeat=repeat, fresh=sweep.measure.fresh, **overrides)


def point_row(sweep: Sweep, point: Point) -> dict[str, Any]:
    """The columns of a trial that are known before it runs."""
    rate = None if point.is_asynchronous else point.global_batch
    fields, columns = workload_fields(point.workload), column_types(point.workload)
    return {
        **point.scalars(),
        **{f"workload_{name}": fields[name] for name in columns},
        "point_id": identity(point),
        "workload": type(point.workload).__name__,
        "seed": sweep.seed,
        "semantics": point.semantics,
        "environment": json.dumps({**sweep.resources.environment, **point.environment}, sort_keys=True),
        "global_batch": rate,
        "samples_per_update": point.micro_batch * point.accumulation if rate is None else rate,
        "cpus_per_worker": sweep.resources.cpus_per_worker,
        "gpus_per_worker": sweep.resources.gpus_per_worker,
        "fresh": sweep.measure.fresh,
        "measure": json.dumps(asdict(sweep.measure), sort_keys=True),
    }
