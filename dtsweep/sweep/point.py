"""A point: one setting of all axes, and what names it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.sweep.modes import MODE_FIELDS, MODES

Scalar = str | int | float | bool | None
"""What an axis may hold: a JSON scalar."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "sync": tuple(MODES),
    "optimizer": ("sgd", "momentum", "adam", "adamw"),
    "precision": ("fp32", "tf32", "bf16"),
    "placement": ("pack", "spread", "strict_pack", "strict_spread"),
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of all axes."""

    workers: int = 1
    """Training processes, one device each."""

    micro_batch: int = 32
    """Samples per worker in one forward/backward pass."""

    accumulation: int = 1
    """Forward/backward passes per optimizer step."""

    sync: str = "ddp"
    """How workers combine their work; `dtsweep.sweep.modes.MODES` lists the modes."""

    sync_period: int | None = None
    """Optimizer steps from one exchange to the next (local_sgd)."""

    staleness: int | None = None
    """Steps that the fastest worker may be ahead of the slowest (parameter_server); None is no bound."""

    shards: int | None = None
    """Servers that share the parameters (parameter_server)."""

    optimizer: str = "sgd"
    """Update rule, where the workload has none of its own; momentum is SGD with 0.9."""

    learning_rate: float = 0.01
    """Step size of the optimizer."""

    precision: str = "fp32"
    """fp32 and tf32 set the matrix products, bf16 is autocast; parameters stay in fp32."""

    placement: str = "pack"
    """How Ray spreads the workers over nodes."""

    workload: Any = field(default=None, repr=False)
    """The workload with the fields of this point, for `skip` and axes that are functions."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker processes that this point sets (axes `env.NAME`)."""

    def __post_init__(self) -> None:
        """Fill in the mode's own defaults and refuse values that no mode can use."""
        for name, hint in FIELD_TYPES.items():
            object.__setattr__(self, name, coerced(name, getattr(self, name), hint))
        for name, allowed in CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                raise SweepError(f"{name}={quoted(value)} is unknown; {did_you_mean(value, allowed)}", word=name)
        for name in ("workers", "micro_batch", "accumulation", "sync_period", "shards"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise SweepError(f"{name}={value} must be at least 1", word=name)
        if self.staleness is not None and self.staleness < 0:
            raise SweepError(f"staleness={self.staleness} must be 0 or more, or None for no bound", word="staleness")
        if self.learning_rate < 0:
            raise SweepError(f"learning_rate={self.learning_rate} must not be negative", word="learning_rate")
        for name, default in MODES[self.sync].reads.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)

    @property
    def global_batch(self) -> int:
        """Samples per step, over all data-parallel workers.

        >>> Point(workers=4, micro_batch=8, accumulation=2).global_batch
        64
        """
        return self.workers * self.micro_batch * self.accumulation

    @property
    def semantics(self) -> str:
        """What an update of this point means: one of `dtsweep.sync.SEMANTICS`.

        >>> Point(sync="parameter_server").semantics
        'stale'
        """
        return MODES[self.sync].semantics(self.scalars())

    @property
    def is_asynchronous(self) -> bool:
        """Whether a step is one worker's own push, for which it waits for no other worker's."""
        return self.semantics == "stale"

    @property
    def period(self) -> int:
        """Steps after which the pattern of work repeats; windows are multiples of it."""
        return self.sync_period or 1

    @property
    def world(self) -> tuple[Any, ...]:
        """What needs a fresh worker group when it changes."""
        return (self.workers, self.placement, tuple(sorted(self.environment.items())))

    def unread(self) -> str | None:
        """Name the first field that is set although the mode does not read it.

        >>> Point(sync="ddp", sync_period=8).unread()
        'ddp has no sync_period'
        """
        reads = MODES[self.sync].reads
        for name in MODE_FIELDS:
            if name not in reads and getattr(self, name) is not None:
                return f"{self.sync} has no {name}"
        return None

    def scalars(self) -> dict[str, Scalar]:
        """The point's own fields by name, the workload's and the environment left out."""
        return {name: getattr(self, name) for name in FIELD_TYPES}

    def with_workload(self, values: Mapping[str, Scalar]) -> Point:
        """The same point with these fields of its workload replaced."""
        return replace(self, workload=replace(self.workload, **values)) if values else self


FIELD_TYPES: dict[str, Any] = {
    name: hint for name, hint in get_type_hints(Point).items() if name not in ("workload", "environment")
}
"""The fields of a point that can be axes, with their types."""


def workload_types(workload: Any) -> dict[str, Any]:
    """The types of a workload's fields by name, as annotated.

    Raises:
        SweepError: for an annotation that names what is not there.
    """
    try:
        hints = get_type_hints(type(workload))
    except NameError as error:
        name = type(workload).__name__
        raise SweepError(f"an annotation of workload {name} can't be read: {error}; import it", word=name) from None
    return {item.name: hints[item.name] for item in fields(workload)}


def column_types(workload: Any) -> dict[str, type]:
    """The types of a workload's scalar fields by name, None left out: those that are columns of `trials`.

    A field of several such types, a list or a dict is in the trial's name alone.
    """
    found = {}
    for name, hint in workload_types(workload).items():
        kinds = {type(value) for value in get_args(hint)} if get_origin(hint) is Literal else _kinds(hint)
        kinds -= {type(None)}
        kinds = {float} if kinds == {int, float} else kinds
        if len(kinds) == 1 and kinds <= set(_KINDS):
            found[name] = kinds.pop()
    return found


def workload_fields(workload: Any) -> dict[str, Any]:
    """All fields of a workload by name, in their types: what tells two workloads of one class apart.

    Raises:
        SweepError: for a value of another type than its annotation.
    """
    return {
        name: workload_value(name, getattr(workload, name), hint) for name, hint in workload_types(workload).items()
    }


def workload_value(name: str, value: Any, hint: Any) -> Any:
    """Give a value the type of a workload's field; None stays None, annotated or not.

    Raises:
        SweepError: the value has no such type.
    """
    return None if value is None else coerced(f"workload.{name}", value, hint)


def coerced(name: str, value: Any, hint: Any) -> Any:
    """Give a value the type of its field: 1 is 1.0 for a float, 4.0 is 4 for a whole number.

    Values of fields that are no scalars come back as they are.

    Raises:
        SweepError: the value has no such type.
    """
    kinds = _kinds(hint)
    if not kinds <= set(_KINDS):
        return value
    if type(value) is int and float in kinds and int not in kinds:
        value = float(value)
    elif type(value) is float and value.is_integer() and int in kinds and float not in kinds:
        value = int(value)
    if type(value) not in kinds or value in (float("inf"), -float("inf")) or value != value:  # noqa: PLR0124  # nan
        wanted = " or ".join(words for kind, words in _KINDS.items() if kind in kinds)
        raise SweepError(f"{name}={quoted(value)} must be {wanted}", word=name)
    return value


def _kinds(hint: Any) -> set[Any]:
    return set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}


_KINDS = {
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    bool: "True or False",
    type(None): "None",
}


def identity(point: Point, **trial: Any) -> str:
    """Name a point, or with seed, repeat and `fresh` a trial: 16 hex digits.

    Fields that equal their default are left out, so that a new field leaves old names as they are.

    >>> identity(Point(workers=2)) == identity(Point(workers=2, micro_batch=32))
    True
    """
    defaults = {item.name: item.default for item in fields(Point)}
    own = {name: value for name, value in point.scalars().items() if value != defaults[name]}
    if point.environment:
        own["environment"] = dict(point.environment)  # type: ignore[assignment]  # a mapping, in JSON alone
    what = {"point": own, **trial}
    if point.workload is not None:
        what["workload"] = [type(point.workload).__name__, workload_fields(point.workload)]
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
