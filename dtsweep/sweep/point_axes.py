"""Axes of a point, each declared once: its type, default, values and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, get_args, get_type_hints

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.sweep.compressions import (
    COMPRESSION_FIELDS,
    COMPRESSIONS,
    compressions_reading,
)
from dtsweep.sweep.modes import AS_WRITTEN, MODE_FIELDS, MODES, OWN, SERVING, modes_reading
from dtsweep.sweep.precision import PRECISIONS


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


def _axis(default: Any, meaning: str, **declared: Any) -> Any:
    """Declare a field of `Point` that can be an axis; `declared` are the other fields of `Axis`."""
    return field(default=default, metadata={"axis": Axis(meaning=meaning, **declared)})


STAGES_OF_WORKER: Mapping[str, int] = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero_bubble": 2}
"""Stages that a worker has, by schedule of a pipeline."""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Fields of a point that can be axes."""

    workers: int = _axis(1, "Training processes, one device each.", unit="workers", least=1)
    micro_batch: int = _axis(
        32, "Samples per worker in one forward/backward pass.", unit="samples", least=1
    )
    accumulation: int = _axis(
        1, "Forward/backward passes per optimizer step.", unit="passes", least=1
    )
    sync: str = _axis(
        "ddp",
        "How workers combine their work: one of the sync modes. Loops of inference are set by its "
        "rate.",
        choices=(*MODES, *SERVING, OWN, AS_WRITTEN),
    )
    sync_period: int | None = _axis(
        None,
        "Optimizer steps from one exchange to the next.",
        unit="steps",
        least=1,
    )
    synchronous_steps: int = _axis(
        0,
        "First steps of a training in which gradients are averaged in every step; the window comes "
        "after them.",
        unit="steps",
        least=0,
        is_quiet=True,
    )
    local_momentum: str = _axis(
        "keep",
        "Optimizer state at the end of a period: keep each worker's own, average it over the "
        "workers, or reset it.",
        choices=("keep", "average", "reset"),
        is_quiet=True,
    )
    outer_learning_rate: float = _axis(
        0.7,
        "Step size of the outer optimizer, which updates at the end of a period.",
        above=0,
        is_quiet=True,
    )
    outer_momentum: float = _axis(
        0.9,
        "Nesterov momentum of the outer optimizer.",
        least=0,
        below=1,
        is_quiet=True,
    )
    topology: str | None = _axis(
        None,
        "Neighbours of a worker: ring has two, exponential one at a time, at distances that are "
        "powers of two.",
        choices=("ring", "exponential"),
    )
    participation: float | None = _axis(
        None,
        "Share of the workers that are drawn to train in a sync period: the nearest whole number "
        "of them, at least one, and half a worker counts as one.",
        above=0,
        most=1,
    )
    staleness: int | None = _axis(
        None,
        "Steps that the fastest worker may be ahead of the slowest; None means no bound.",
        unit="steps",
        least=0,
    )
    shards: int | None = _axis(None, "Servers that share the parameters.", unit="servers", least=1)
    push_period: int = _axis(
        1, "Steps whose summed gradients make one push.", unit="steps", least=1, is_quiet=True
    )
    pull_period: int = _axis(
        1,
        "Steps from one pull of the parameters to the next; in between a worker updates its copy.",
        unit="steps",
        least=1,
        is_quiet=True,
    )
    drop_slowest: int = _axis(
        0,
        "Backup workers: a step goes on without the last so many gradients, which are dropped.",
        unit="workers",
        least=0,
        is_quiet=True,
    )
    server_device: str = _axis(
        "cpu",
        "Device of the servers' parameters and optimizers.",
        choices=("cpu", "gpu"),
        is_quiet=True,
    )
    overlap: bool = _axis(
        default=True,
        meaning="Whether the exchange begins while backward still runs, or after it.",
        is_quiet=True,
    )
    bucket_bytes: int | None = _axis(
        None,
        "Gradients that travel together; None is the mode's size.",
        unit="bytes",
        least=1,
        is_quiet=True,
    )
    node_size: int | None = _axis(
        None,
        "Workers of a node, which may be a pretended one; None are those of the real nodes.",
        unit="workers",
        least=1,
        is_quiet=True,
    )
    shard_precision: str | None = _axis(
        None,
        "Type in which parameters in shards are gathered and computed with; gradients are summed "
        "in fp32. None is their own.",
        choices=("bf16",),
        is_quiet=True,
    )
    reshard: str | None = _axis(
        None,
        "A block's parameters after forward: never keeps them whole, None frees them.",
        choices=("never",),
        is_quiet=True,
    )
    offload: bool = _axis(
        default=False,
        meaning="Whether parameters in shards, their gradients and optimizer state are in main "
        "memory.",
        is_quiet=True,
    )
    tensor_parallel: int = _axis(
        1, "Workers that share each layer of a model.", unit="workers", least=1, is_quiet=True
    )
    sequence_parallel: bool = _axis(
        default=False,
        meaning="Whether workers that share layers also share the tokens between them.",
        is_quiet=True,
    )
    pipeline_parallel: int = _axis(
        1,
        "Workers, or groups that share layers, with consecutive stages of a model.",
        unit="stages",
        least=1,
        is_quiet=True,
    )
    pipeline_schedule: str | None = _axis(
        None,
        "Order of the passes of a step in a pipeline; interleaved and zero_bubble have two stages "
        "on each worker.",
        choices=tuple(STAGES_OF_WORKER),
        is_quiet=True,
    )
    compression: str | None = _axis(
        None,
        "What travels in place of gradients or parameter changes; None is these themselves.",
        choices=tuple(COMPRESSIONS),
        is_quiet=True,
    )
    compression_ratio: float | None = _axis(
        None,
        "Share of the values that travels.",
        above=0,
        most=1,
        is_quiet=True,
    )
    compression_rank: int | None = _axis(
        None, "Rank of the matrices that travel.", unit="columns", least=1, is_quiet=True
    )
    optimizer: str = _axis(
        "sgd",
        "Update rule, where the workload has none of its own; momentum is SGD with 0.9.",
        choices=("sgd", "momentum", "adam", "adamw"),
    )
    learning_rate: float = _axis(0.01, "Step size of the optimizer.", least=0)
    clip_norm: float | None = _axis(
        None,
        "Norm over the whole model that gradients are clipped to; None does not clip.",
        above=0,
        is_quiet=True,
    )
    precision: str = _axis(
        "fp32",
        "fp32 and tf32 (on GPUs) set the matrix products, bf16 and fp16 are autocast, fp16 with "
        "a scaled loss; parameters stay in fp32.",
        choices=tuple(PRECISIONS),
    )
    compile: bool = _axis(
        default=False,
        meaning="Whether torch.compile makes kernels of the model: of each block in modes in "
        "shards, else of the whole.",
        is_quiet=True,
    )
    fused: bool = _axis(
        default=False,
        meaning="Whether the optimizer updates all parameters in one kernel of its own "
        "(`fused=True` in torch.optim); else torch chooses.",
        is_quiet=True,
    )
    attention: str | None = _axis(
        None,
        "Kernel of scaled_dot_product_attention, flash, efficient and cudnn as torch names them; "
        "None lets torch choose.",
        choices=("math", "flash", "efficient", "cudnn"),
        is_quiet=True,
    )
    checkpointing: str | None = _axis(
        None,
        "Activations that are computed again in backward: blocks keeps the input of each block of "
        "the model alone; None keeps all.",
        choices=("blocks",),
        is_quiet=True,
    )
    slow_rank: float | None = _axis(
        None,
        "Factor by which each pass of the last worker takes longer, as on a slower device; None "
        "slows no worker.",
        above=1,
        is_quiet=True,
    )
    loader_workers: int | None = _axis(
        None,
        "Processes of a worker that make its batches while it trains; None makes them in the "
        "worker, before each pass.",
        unit="processes",
        least=1,
        is_quiet=True,
    )
    prefetch: int | None = _axis(
        None,
        "Batches that each process of loader_workers makes ahead; with these None is 2.",
        unit="batches",
        least=1,
        is_quiet=True,
    )
    pin_memory: bool = _axis(
        default=False,
        meaning="Whether batches are in pinned memory before they are copied to the GPU.",
        is_quiet=True,
    )
    copy_ahead: bool = _axis(
        default=False,
        meaning="Whether the next batch is copied to the GPU while a pass computes.",
        is_quiet=True,
    )
    rate: float | None = _axis(
        None,
        "Requests that arrive per second, over all replicas; None serves as fast as it goes.",
        unit="requests/s",
        above=0,
    )
    max_batch: int | None = _axis(
        None, "Requests in a batch, at most.", unit="requests", least=1, is_quiet=True
    )
    max_wait_s: float | None = _axis(
        None,
        "Seconds that the first request of a batch waits for others, at most.",
        unit="s",
        least=0,
        is_quiet=True,
    )
    placement: str = _axis(
        "pack",
        "How Ray spreads the workers over nodes.",
        choices=("pack", "spread", "strict_pack", "strict_spread"),
    )


def check_value(name: str, value: Any) -> None:
    """Refuse a value that an axis can't have.

    Raises:
        SweepError: it is not one of the axis' values.
    """
    declared = AXES[name]
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


AXES: Mapping[str, Axis] = {item.name: _with_readers(item) for item in fields(Axes)}
"""The fields of a point that can be axes, as they are declared."""

CHOSEN_FIELDS = (*MODE_FIELDS, *COMPRESSION_FIELDS)
"""The fields that only some modes or compressions read."""

DEFAULTS: Mapping[str, Any] = {item.name: item.default for item in fields(Axes)}
"""Default of each axis that a sweep does not name."""


def is_left_out(name: str, value: Any) -> bool:
    """True if names of points leave a field out: it is quiet, and its value the default or unknown.

    >>> is_left_out("overlap", True), is_left_out("overlap", False)
    (True, False)
    >>> is_left_out("sync_period", None)
    False
    """
    return AXES[name].is_quiet and (value is None or value == DEFAULTS[name])


FIELD_TYPES: Mapping[str, Any] = get_type_hints(Axes)
"""Their types."""
