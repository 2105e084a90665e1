"""A point: one setting of all axes, and what names it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dtsweep.sweep.compressions import COMPRESSION_FIELDS, reads_of
from dtsweep.sweep.mode_info import SEMANTICS, Fields, Grid, ModeInfo, OwnMode
from dtsweep.sweep.modes import (
    OWN,
    SERVING,
    declaration_of,
    divided,
    mode_for,
    period_of,
    update_kind,
)
from dtsweep.sweep.named_grid import NamedGrid
from dtsweep.sweep.point_axes import (
    AXES,
    CHOSEN_FIELDS,
    DEFAULTS,
    FIELD_TYPES,
    STAGES_OF_WORKER,
    Axes,
    check_value,
)
from dtsweep.sweep.values import Scalar, coerced, read_fields


@dataclass(frozen=True, kw_only=True)
class World:
    """Fields whose change needs a new group of worker processes."""

    workers: int
    placement: str
    environment: tuple[tuple[str, str], ...]
    """Variables that the point sets, sorted by name."""


@dataclass(frozen=True, kw_only=True)
class Point(Axes):
    """One setting of all axes, with the workload that it belongs to."""

    workload: Any = field(default=None, repr=False)
    """The workload with the fields of this point, for `skip` and axes that are functions."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker processes that this point sets (axes `env.NAME`)."""

    def __post_init__(self) -> None:
        """Fill in the mode's own defaults and refuse values that no mode can use."""
        for name, kind in FIELD_TYPES.items():
            value = coerced(name, getattr(self, name), kind)
            object.__setattr__(self, name, value)
            check_value(name, value)
        for name, default in self.reads.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        if self.loader_workers is not None and self.prefetch is None:
            object.__setattr__(self, "prefetch", 2)

    @property
    def mode(self) -> ModeInfo:
        """Declaration of its mode.

        >>> Point(sync="ring").mode.agree
        'gradients'
        """
        return divided(mode_for(self.sync, self.workload), vars(self))

    @property
    def own_mode(self) -> OwnMode | None:
        """Declaration of its workload, if that makes its model parallel by itself."""
        if self.sync != OWN:
            return None
        return declaration_of(self.workload)

    @property
    def grid(self) -> Grid:
        """Division of its workers into models.

        >>> Point(workers=4).grid
        Grid(data=4, model=1)
        """
        return self.mode.grid(vars(self))

    @property
    def stages(self) -> int:
        """Stages of its pipeline: one on each worker of it, or two where they are interleaved.

        >>> Point(workers=2, pipeline_parallel=2, pipeline_schedule="interleaved").stages
        4
        """
        if self.pipeline_parallel == 1:
            return 1
        return self.pipeline_parallel * STAGES_OF_WORKER[self.pipeline_schedule or "1f1b"]

    @property
    def bubble(self) -> float:
        """Share of a step's passes in which a worker waits by the schedule of its pipeline.

        Stages take equally long, a backward pass twice a forward pass, and messages no time.

        >>> Point(workers=4, pipeline_parallel=4, accumulation=12).bubble
        0.2
        >>> Point(workers=4).bubble
        0.0
        """
        waits = self.pipeline_parallel - 1
        passes = self.accumulation * (self.stages // self.pipeline_parallel)
        if self.pipeline_schedule == "zero_bubble":
            # Gradients of parameters, a third of the work, fill all but one stage's forward.
            passes *= 3
        return waits / (passes + waits)

    @property
    def named_grid(self) -> NamedGrid | None:
        """Numbers of workers that the arguments of its script promise; None of others."""
        named: Callable[[Fields], NamedGrid | None]
        named = getattr(self.workload, "named_grid", lambda _: None)
        return named(vars(self))

    @property
    def data_parallel(self) -> int:
        """Groups of workers that each train on samples of their own.

        >>> Point(workers=4).data_parallel
        4
        """
        return self.grid.data

    @property
    def participants(self) -> int:
        """Data-parallel groups that train in a step; the others have no samples in it.

        >>> Point(workers=4).participants, Point(workers=4, sync="federated").participants
        (4, 2)
        """
        info = self.mode
        if info.participants is None:
            return self.data_parallel
        return info.participants(vars(self))

    @property
    def draws_participants(self) -> bool:
        """True if some of its data-parallel groups don't train in a step.

        >>> Point(workers=4).draws_participants
        False
        """
        return self.participants < self.data_parallel

    @property
    def samples_per_pass(self) -> int:
        """Samples in a pass of all data-parallel groups that train in it.

        >>> Point(workers=4, micro_batch=8).samples_per_pass
        32
        """
        return self.micro_batch * self.participants

    @property
    def global_batch(self) -> int:
        """Samples per step, over all data-parallel groups that train in it.

        >>> Point(workers=4, micro_batch=8, accumulation=2).global_batch
        64
        """
        return self.samples_per_pass * self.accumulation

    @property
    def samples_per_update(self) -> int:
        """Samples behind one update of the parameters.

        >>> Point(workers=4, micro_batch=8).samples_per_update
        32
        >>> Point(workers=4, micro_batch=8, sync="parameter_server").samples_per_update
        8
        """
        group_samples = self.micro_batch * self.accumulation
        steps = self.mode.steps_per_update
        if steps is not None:
            return steps(vars(self)) * group_samples
        if self.is_asynchronous:
            return group_samples
        return self.global_batch

    @property
    def semantics(self) -> str:
        """Semantics of this point's update: one of `dtsweep.sweep.mode_info.SEMANTICS`.

        >>> Point(sync="parameter_server").semantics
        'stale'
        """
        parts = [
            self.mode.semantics(vars(self)),
            "exact" if self.compression is None else "lossy",
        ]
        return max(parts, key=SEMANTICS.index)

    @property
    def is_inference(self) -> bool:
        """True if its workers are replicas that serve a model, and train none.

        >>> Point(sync="closed_loop").is_inference
        True
        """
        return self.sync in SERVING

    @property
    def update_kind(self) -> str:
        """Kind of this point's update within its semantics; empty where there is one alone.

        >>> Point(sync="local_sgd").update_kind
        'periodic averaging'
        """
        return update_kind(self.semantics, self.sync)

    @property
    def is_asynchronous(self) -> bool:
        """True if a step is one worker's own: it does not wait for a step of every other worker."""
        return self.mode.is_asynchronous(vars(self))

    @property
    def is_joint(self) -> bool:
        """True if an update is made from the passes of all workers.

        >>> Point(sync="ddp").is_joint, Point(sync="local_sgd").is_joint
        (True, False)
        """
        return self.semantics != "local" and not self.is_asynchronous

    @property
    def period(self) -> int:
        """Steps after which the pattern of work repeats; windows are multiples of it.

        >>> Point(sync="parameter_server", push_period=2, pull_period=3).period
        6
        """
        return period_of(vars(self))

    @property
    def first_steps(self) -> int:
        """Steps at the start of a training that are unlike the rest, before the first period.

        >>> Point(sync="local_sgd", synchronous_steps=20).first_steps
        20
        """
        return self.mode.first_steps(vars(self))

    @property
    def servers(self) -> int:
        """Server processes that its ranks need in addition."""
        return self.mode.servers(vars(self))

    @property
    def world(self) -> World:
        """Fields of the world: their change needs a new group of worker processes."""
        return World(
            workers=self.workers,
            placement=self.placement,
            environment=tuple(sorted(self.environment.items())),
        )

    @property
    def args(self) -> Mapping[str, Scalar]:
        """Arguments of a training loop of the user, by the names of axes `args.NAME`.

        >>> Point(workload=object()).args
        {}
        """
        values: Mapping[str, Scalar] = getattr(self.workload, "args", {})
        return values

    @property
    def has_own_optimizer(self) -> bool:
        """True if its workload makes an optimizer, so that `optimizer` is not read.

        >>> Point(workload=object()).has_own_optimizer
        False
        """
        if self.own_mode is not None:
            return "optimizer" not in self.own_mode.reads
        return callable(getattr(self.workload, "optimizer", None))

    @property
    def reads(self) -> Mapping[str, Any]:
        """Fields of `CHOSEN_FIELDS` that its mode and compression read, with their own defaults.

        >>> sorted(Point(sync="hierarchical", compression="powersgd").reads)
        ['bucket_bytes', 'compression_rank', 'node_size']
        """
        return {**self.mode.reads, **reads_of(self.compression)}

    @property
    def unread_field(self) -> str | None:
        """The first field that is set although neither the mode nor the compression reads it.

        >>> Point(sync="ddp", sync_period=8).unread_field
        'sync_period'
        """
        read = self.reads
        unread = (name for name in CHOSEN_FIELDS if name not in read)
        return next((name for name in unread if getattr(self, name) != DEFAULTS[name]), None)

    @property
    def unread_by(self) -> str:
        """Reader of that field: the compression, or without one the mode.

        >>> Point(compression="int8", compression_rank=4).unread_by
        'compression int8'
        """
        if self.unread_field not in COMPRESSION_FIELDS:
            if self.own_mode is None and self.grid.model > 1:
                return f"{self.sync} of workers that share a model"
            return self.sync
        if not self.compression:
            return "a point without compression"
        return f"compression {self.compression}"

    def columns(self) -> dict[str, Scalar]:
        """Fields of the point as they are stored: None where mode and compression don't read them.

        >>> Point(sync="local_sgd").columns()["overlap"]
        """
        read = self.reads
        return {
            name: None if name in CHOSEN_FIELDS and name not in read else value
            for name, value in self.scalars().items()
        }

    def scalars(self) -> dict[str, Scalar]:
        """Axes of the point by name, without the workload and the environment."""
        values = vars(self)
        return {name: values[name] for name in AXES}


def tokens_per_sample(point: Point) -> int | None:
    """Tokens that a sample trains on, or of its answer; None where the workload says none."""
    tokens: int | None = getattr(point.workload, "tokens_per_sample", None)
    if point.is_inference:
        return getattr(point.workload, "tokens_per_answer", tokens)
    return tokens


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def identity(point: Point, **trial: Any) -> str:
    """Name a point, or with seed, repeat and `fresh` a trial: 16 hex digits.

    Fields that equal their default are left out, so that a new field leaves old names as they are.

    >>> identity(Point(workers=2)) == identity(Point(workers=2, micro_batch=32))
    True
    """
    settings = {name: value for name, value in point.scalars().items() if value != DEFAULTS[name]}
    if point.environment:
        settings["environment"] = dict(point.environment)  # type: ignore[assignment]  # a mapping, in JSON alone
    content = {"point": settings, **trial}
    if point.workload is not None:
        content["workload"] = [type(point.workload).__name__, read_fields(point.workload)]
    text = _CANONICAL.encode(content)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
