"""A point: one setting of all axes, and what names it. Each axis is declared here, once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, get_args, get_type_hints

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.sweep.compressions import (
    CODINGS,
    COMPRESSION_FIELDS,
    COMPRESSIONS,
    compressions_reading,
    reads_of,
)
from dtsweep.sweep.mode_info import SEMANTICS, Grid, ModeInfo, OwnMode
from dtsweep.sweep.modes import (
    AS_WRITTEN,
    MODE_FIELDS,
    MODES,
    OWN,
    declaration_of,
    mode_for,
    modes_reading,
    period_of,
    update_kind,
)
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sweep.values import Scalar, coerced, read_fields, with_fields


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Declaration of a field of `Point`; checks, columns of `trials` and docs follow from it."""

    meaning: str
    """One sentence; `AXES` adds the modes or compressions that read the axis, if not all do."""

    unit: str = ""
    """Empty where the values have none."""

    choices: tuple[str, ...] = ()
    """All allowed values; empty where they are not a closed set."""

    least: float | None = None
    """The smallest allowed value."""

    above: float | None = None
    """Exclusive lower bound of the values, if no value is the smallest."""

    most: float | None = None
    """The largest allowed value."""

    below: float | None = None
    """Exclusive upper bound of the values, if no value is the largest."""

    is_quiet: bool = False
    """True if names of points leave it out where it has its default."""


def axis(default: Any, meaning: str, **declared: Any) -> Any:
    """Declare a field of `Point` that can be an axis; `declared` are the other fields of `Axis`."""
    return field(default=default, metadata={"axis": Axis(meaning=meaning, **declared)})


@dataclass(frozen=True, kw_only=True)
class World:
    """Fields whose change needs a new group of worker processes."""

    workers: int
    placement: str
    environment: tuple[tuple[str, str], ...]
    """Variables that the point sets, sorted by name."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of all axes."""

    workers: int = axis(1, "Training processes, one device each.", unit="workers", least=1)
    micro_batch: int = axis(
        32, "Samples per worker in one forward/backward pass.", unit="samples", least=1
    )
    accumulation: int = axis(
        1, "Forward/backward passes per optimizer step.", unit="passes", least=1
    )
    sync: str = axis(
        "ddp",
        "How workers combine their work: one of the sync modes.",
        choices=(*MODES, OWN, AS_WRITTEN),
    )
    sync_period: int | None = axis(
        None,
        "Optimizer steps from one exchange to the next.",
        unit="steps",
        least=1,
    )
    synchronous_steps: int = axis(
        0,
        "First steps of a training in which gradients are averaged in every step; the window comes "
        "after them.",
        unit="steps",
        least=0,
        is_quiet=True,
    )
    local_momentum: str = axis(
        "keep",
        "Optimizer state at the end of a period: keep each worker's own, average it over the "
        "workers, or reset it.",
        choices=("keep", "average", "reset"),
        is_quiet=True,
    )
    outer_learning_rate: float = axis(
        0.7,
        "Step size of the outer optimizer, which updates at the end of a period.",
        above=0,
        is_quiet=True,
    )
    outer_momentum: float = axis(
        0.9,
        "Nesterov momentum of the outer optimizer.",
        least=0,
        below=1,
        is_quiet=True,
    )
    topology: str | None = axis(
        None,
        "Neighbours of a worker: ring has two, exponential one at a time, at distances that are "
        "powers of two.",
        choices=("ring", "exponential"),
    )
    participation: float | None = axis(
        None,
        "Share of the workers that are drawn to train in a sync period: the nearest whole number "
        "of them, at least one, and half a worker counts as one.",
        above=0,
        most=1,
    )
    staleness: int | None = axis(
        None,
        "Steps that the fastest worker may be ahead of the slowest; None means no bound.",
        unit="steps",
        least=0,
    )
    shards: int | None = axis(None, "Servers that share the parameters.", unit="servers", least=1)
    replicas: int = axis(
        1,
        "Copies of each shard, in a chain: a shard is lost with its last copy.",
        unit="copies",
        least=1,
        is_quiet=True,
    )
    push_period: int = axis(
        1, "Steps whose summed gradients make one push.", unit="steps", least=1, is_quiet=True
    )
    pull_period: int = axis(
        1,
        "Steps from one pull of the parameters to the next; in between a worker updates its copy.",
        unit="steps",
        least=1,
        is_quiet=True,
    )
    drop_slowest: int = axis(
        0,
        "Backup workers: a step goes on without the last so many gradients, which are dropped.",
        unit="workers",
        least=0,
        is_quiet=True,
    )
    server_device: str = axis(
        "cpu",
        "Device of the servers' parameters and optimizers.",
        choices=("cpu", "gpu"),
        is_quiet=True,
    )
    overlap: bool = axis(
        default=True,
        meaning="Whether the exchange begins while backward still runs, or after it.",
        is_quiet=True,
    )
    bucket_bytes: int | None = axis(
        None,
        "Gradients that travel together; None is the mode's size.",
        unit="bytes",
        least=1,
        is_quiet=True,
    )
    node_size: int | None = axis(
        None,
        "Workers of a node, which may be a pretended one; None are those of the real nodes.",
        unit="workers",
        least=1,
        is_quiet=True,
    )
    shard_precision: str | None = axis(
        None,
        "Type in which parameters in shards are gathered and computed with; gradients are summed "
        "in fp32. None is their own.",
        choices=("bf16",),
        is_quiet=True,
    )
    reshard: str | None = axis(
        None,
        "A block's parameters after forward, if not freed: node keeps a share on each worker of "
        "a node, never keeps them whole.",
        choices=("node", "never"),
        is_quiet=True,
    )
    offload: bool = axis(
        default=False,
        meaning="Whether parameters in shards, their gradients and optimizer state are in main "
        "memory.",
        is_quiet=True,
    )
    compression: str | None = axis(
        None,
        "What travels in place of gradients or parameter changes; None is these themselves.",
        choices=tuple(COMPRESSIONS),
        is_quiet=True,
    )
    compression_coding: str | None = axis(
        None,
        "Entropy coding of payloads; None sends them as they are.",
        choices=CODINGS,
        is_quiet=True,
    )
    compression_ratio: float | None = axis(
        None,
        "Share of the values that travels.",
        above=0,
        most=1,
        is_quiet=True,
    )
    compression_rank: int | None = axis(
        None, "Rank of the matrices that travel.", unit="columns", least=1, is_quiet=True
    )
    optimizer: str = axis(
        "sgd",
        "Update rule, where the workload has none of its own; momentum is SGD with 0.9.",
        choices=("sgd", "momentum", "adam", "adamw"),
    )
    learning_rate: float = axis(0.01, "Step size of the optimizer.", least=0)
    clip_norm: float | None = axis(
        None,
        "Norm over the whole model that gradients are clipped to; None does not clip.",
        above=0,
        is_quiet=True,
    )
    precision: str = axis(
        "fp32",
        "fp32 and tf32 (on GPUs) set the matrix products, bf16 is autocast; parameters stay in "
        "fp32.",
        choices=tuple(PRECISIONS),
    )
    checkpointing: str | None = axis(
        None,
        "Activations that are computed again in backward: blocks keeps the input of each block of "
        "the model alone; None keeps all.",
        choices=("blocks",),
        is_quiet=True,
    )
    slow_rank: float | None = axis(
        None,
        "Factor by which each pass of the last worker takes longer, as on a slower device; None "
        "slows no worker.",
        above=1,
        is_quiet=True,
    )
    balance: str | None = axis(
        None,
        "Samples of a pass dealt to the workers in proportion to their measured speeds: static "
        "measures them once, dynamic before each window; None is micro_batch for each.",
        choices=("static", "dynamic"),
        is_quiet=True,
    )
    placement: str = axis(
        "pack",
        "How Ray spreads the workers over nodes.",
        choices=("pack", "spread", "strict_pack", "strict_spread"),
    )

    workload: Any = field(default=None, repr=False)
    """The workload with the fields of this point, for `skip` and axes that are functions."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker processes that this point sets (axes `env.NAME`)."""

    def __post_init__(self) -> None:
        """Fill in the mode's own defaults and refuse values that no mode can use."""
        for name, declared in AXES.items():
            value = coerced(name, getattr(self, name), FIELD_TYPES[name])
            object.__setattr__(self, name, value)
            _check(name, value, declared)
        for name, default in self.reads.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)

    @property
    def mode(self) -> ModeInfo:
        """Declaration of its mode.

        >>> Point(sync="ring").mode.agree
        'gradients'
        """
        return mode_for(self.sync, self.workload)

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
        ['balance', 'bucket_bytes', 'compression_rank', 'node_size']
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

    def with_workload(self, values: Mapping[str, Scalar]) -> Point:
        """Copy of the point with these fields of its workload replaced."""
        if not values:
            return self
        return replace(self, workload=with_fields(self.workload, values))


def _check(name: str, value: Any, declared: Axis) -> None:
    if value is None:
        return
    problem = ""
    if declared.choices and value not in declared.choices:
        problem = f"is unknown; {did_you_mean(value, declared.choices)}"
    elif declared.least is not None and value < declared.least:
        problem = f"must be at least {declared.least}"
    elif declared.above is not None and value <= declared.above:
        problem = f"must be above {declared.above}"
    elif declared.most is not None and value > declared.most:
        problem = f"must be at most {declared.most}"
    elif declared.below is not None and value >= declared.below:
        problem = f"must be below {declared.below}"
    if problem:
        is_closed = problem.endswith("?") or type(None) not in get_args(FIELD_TYPES[name])
        raise SweepError(
            f"{name}={quoted(value)} {problem}{'' if is_closed else ', or None'}", word=name
        )


def _with_readers(item: Field[Any]) -> Axis:
    """The axis of a field; its meaning names the readers if only some modes read it."""
    declared: Axis = item.metadata["axis"]
    readers = ", ".join([*modes_reading(item.name), *compressions_reading(item.name)])
    if not readers:
        return declared
    return replace(declared, meaning=f"{declared.meaning.removesuffix('.')} (read by {readers}).")


_AXIS_FIELDS = [item for item in fields(Point) if "axis" in item.metadata]

AXES: Mapping[str, Axis] = {item.name: _with_readers(item) for item in _AXIS_FIELDS}
"""The fields of a point that can be axes, as they are declared."""

CHOSEN_FIELDS = (*MODE_FIELDS, *COMPRESSION_FIELDS)
"""The fields that only some modes or compressions read."""

DEFAULTS: Mapping[str, Any] = {
    item.name: item.default for item in fields(Point) if item.name in AXES
}
"""Default of each axis that a sweep does not name."""


def is_left_out(name: str, value: Any) -> bool:
    """True if names of points leave a field out: it is quiet, and its value the default or unknown.

    >>> is_left_out("overlap", True), is_left_out("overlap", False)
    (True, False)
    >>> is_left_out("sync_period", None)
    False
    """
    return AXES[name].is_quiet and (value is None or value == DEFAULTS[name])


FIELD_TYPES: Mapping[str, Any] = {
    name: hint for name, hint in get_type_hints(Point).items() if name in AXES
}
"""Their types."""


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
