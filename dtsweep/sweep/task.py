"""The message that tells ranks what to measure: one attempt at a trial, in picklable values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtsweep.errors import quoted
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.settings import Measure, Sweep
from dtsweep.sweep.values import with_fields, workload_fields

_CANARY_HALF_WIDTH = 0.01
"""Target half-width of a canary's mean step; two such canaries resolve 1.4 %."""

HEADING = "--- dtsweep: "
"""Beginning of the line in a rank's log before the output of a trial."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One attempt at a trial."""

    attempt_id: str
    trial_id: str
    point_id: str

    point: Point
    """The task without its workload, for processes that can't import the workload's class."""

    workload: Mapping[str, Any]
    """All fields of the point's workload."""

    seed: int
    repeat: int
    attempt: int
    measure: Measure

    session_group: str
    """Tasks of one group may share a session, if they need the same world."""

    role: str = "trial"
    """`trial`, or `canary`: the fixed point that both ends of a session measure."""

    peak_flops_per_s: float | None = None
    """Peak rate of a worker's device at this precision, if the sweep gives it."""

    in_turn: Sequence[Task] = ()
    """Attempts at other points that are measured in turn with this one, in its world or less."""

    turns_by: str | None = None
    """Column by which points in turn are compared, `samples_per_s` or `latency_s`.

    Those that are clearly not the best by it have no further turns. None: all have as many.
    """

    is_alone: bool = False
    """True if it can't be measured in turn, after all, and keeps a window of its own."""

    known_peak_bytes: int | None = None
    """Highest memory of a worker in earlier launches of the point; None where unknown."""

    target: float | None = None
    """Loss to which it trains before its window."""

    train_samples: int | None = None
    """Samples on which it trains before its window; None where a target ends the training."""

    train_s: float = 0.0
    """Seconds of training, at most; 0 trains for the window alone."""

    checkpoint: str | None = None
    """Folder in which the training is kept, and goes on from; None keeps none."""

    @property
    def points(self) -> int:
        """Number of points that it measures."""
        return 1 + len(self.in_turn)

    @property
    def is_canary(self) -> bool:
        """True if it watches the machine and answers no question."""
        return self.role == "canary"

    @property
    def heading(self) -> str:
        """Line before the output of an attempt: attempt, trial, and its settings as axes."""
        axes = {name: value for name, value in self.point.columns().items() if value is not None}
        variables = {f"env.{name}": value for name, value in self.point.environment.items()}
        fields = {f"workload.{name}": quoted(value) for name, value in self.workload.items()}
        settings = " ".join(
            f"{name}={value}" for name, value in {**axes, **variables, **fields}.items()
        )
        return f"{HEADING}{self.role} {self.trial_id} attempt {self.attempt}: {settings}"

    def log_of(self, process: int) -> str:
        """Name of the log of a process of the session in this attempt."""
        return f"{self.attempt_id[:12]}-{process}"

    def point_of(self, workload: Any) -> Point:
        """The point with the sweep's workload, which has the task's fields then."""
        return replace(self.point, workload=with_fields(workload, self.workload))


def task_of(
    sweep: Sweep,
    point: Point,
    *,
    repeat: int = 1,
    attempt: int = 1,
    role: str = "trial",
    measure: Measure | None = None,
) -> Task:
    """Make the task of an attempt at a trial.

    Canaries have the sweep's settings but for the longest window; None as `measure` are these, too.
    """
    measure = measure or sweep.measure
    as_canary = {}
    if role != "trial":
        as_canary = {"role": role}
        measure = replace(sweep.measure, max_seconds=measure.max_seconds)
        if measure.half_width is not None:
            measure = replace(measure, half_width=min(measure.half_width, _CANARY_HALF_WIDTH))
    trial_id = trial_name(sweep, point, repeat=repeat, **as_canary)
    fresh = ""
    if sweep.measure.fresh:
        fresh = f"/{trial_id}"
    trains: dict[str, Any] = {}
    if role == "trial" and (goal := sweep.training_goal):
        trains = {"target": goal.target, "train_samples": goal.train_samples}
        trains["train_s"] = goal.longest_s
    return Task(
        attempt_id=uuid.uuid4().hex,
        trial_id=trial_id,
        point_id=identity(point),
        point=replace(point, workload=None),
        workload=workload_fields(point.workload),
        seed=sweep.seed,
        repeat=repeat,
        attempt=attempt,
        measure=measure,
        session_group=f"{repeat}{fresh}",
        role=role,
        peak_flops_per_s=sweep.resources.peak(point.precision),
        **trains,
    )


def trial_name(sweep: Sweep, point: Point, *, repeat: int, **overrides: Any) -> str:
    """Name of a trial; limits, resources, versions and machine are stored next to it."""
    if "role" not in overrides and (goal := sweep.training_goal):
        ends = {"target": goal.target, "train_samples": goal.train_samples}
        overrides |= {name: value for name, value in ends.items() if value is not None}
    return identity(point, seed=sweep.seed, repeat=repeat, fresh=sweep.measure.fresh, **overrides)
