"""Constraints: the one table of points that no run, or not this one, can measure.

What needs the cluster, worlds that its nodes can't hold, is judged in `dtsweep.cluster.capacity`; a
`global_batch` that does not divide, which has no point, in `dtsweep.sweep.axes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dtsweep.sweep.compressions import COMPRESSIONS, EXCHANGES
from dtsweep.sweep.modes import AS_WRITTEN, OF_THE_USER, OWN, has_own_mode, has_train_step
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import DEFAULTS
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sweep.values import is_own_loop


@dataclass(frozen=True, kw_only=True)
class Harness:
    """Launcher of the ranks, if it is known."""

    name: str = "ray"
    """`ray`, `torchrun` or `in_process`: column `harness`."""

    has_gpus: bool | None = None
    """True if ranks get a GPU; None before that is known."""

    compute_capability: tuple[int, int] | None = None
    """Lowest CUDA compute capability of the ranks' GPUs; None before that is known."""

    has_compiler: bool | None = None
    """True if all ranks can make kernels for their devices; None before that is known."""


class _Constraint(NamedTuple):
    """A kind of point that can't be measured."""

    applies: Callable[[Point, Harness], bool]
    reason: str
    """A format string over `point`, its `precision`, `harness`, and what it does not read."""


def _leaves_parameters_out(workload: Any) -> bool:
    """True if the workers' passes may use other parameters.

    A worker that gathers a shard then waits for one that does not.
    """
    return bool(dict(getattr(workload, "ddp_options", {})).get("find_unused_parameters"))


def _grid_fault(point: Point) -> str | None:
    """Reason why the workers can't have the grid that a script's arguments promise."""
    grid = point.named_grid
    return grid.fault(point.workers) if grid else None


def _needs_asynchrony(point: Point) -> str | None:
    """The first field that only asynchronous servers can have, if they are not."""
    fields = ("push_period", "pull_period")
    if point.staleness != 0:
        return None
    return next((name for name in fields if getattr(point, name) != DEFAULTS[name]), None)


def _pins_memory(point: Point) -> bool:
    """True if the data loaders of a training loop of the user are to pin their batches."""
    return is_own_loop(point.workload) and bool(point.workload.loader.get("pin_memory"))


def _lacks_loss(point: Point) -> bool:
    """True if another mode is to train a workload that has only a step of its own."""
    has_loss = callable(getattr(point.workload, "loss", None))
    return point.sync not in OF_THE_USER and has_train_step(point.workload) and not has_loss


def _takes_own_passes(point: Point) -> bool:
    """True if the user's code runs the passes: a loop as it is written, or a `train_step`."""
    return point.sync == AS_WRITTEN or (point.sync == OWN and has_train_step(point.workload))


def _can_scale(point: Point) -> bool:
    """True if an update can be left out on all workers, or the user's code makes it."""
    return _takes_own_passes(point) or (point.mode.scales_loss and not point.compression)


def _unread_by_own_mode(point: Point) -> str | None:
    """The first field that is set although the workload's own mode does not read it."""
    own_mode = point.own_mode
    # Passes and update of `sync.own` read them.
    if own_mode is None or not has_train_step(point.workload):
        return None
    unread = [name for name in ("clip_norm", "precision") if name not in own_mode.reads]
    return next((name for name in unread if getattr(point, name) != DEFAULTS[name]), None)


def _missing_plan(point: Point) -> str | None:
    """Method that its workload needs to share layers, if it has none."""
    if point.tensor_parallel == 1 or "tensor_parallel" not in point.reads:
        return None
    name = "sequence_parallel_plan" if point.sequence_parallel else "tensor_parallel_plan"
    return None if callable(getattr(point.workload, name, None)) else name


def _refused_grid(point: Point) -> str | None:
    """The workload's reason against the division of its model, or None."""
    refuse = getattr(point.workload, "impossible_grid", None)
    if point.grid.model == 1 or not callable(refuse):
        return None
    reason: str | None = refuse(point)
    return reason


def _schedule_multiple(point: Point) -> int:
    """Number that the passes of a step in a pipeline are a multiple of."""
    if point.pipeline_schedule in ("interleaved", "zero_bubble"):
        return point.pipeline_parallel
    return 1


def _loading_axis(point: Point) -> str | None:
    """The first axis of the loading of batches that is set."""
    names = ("loader_workers", "pin_memory", "copy_ahead")
    return next((name for name in names if getattr(point, name)), None)


CONSTRAINTS: tuple[_Constraint, ...] = (
    _Constraint(
        lambda point, _: point.sync == OWN and not has_own_mode(point.workload),
        "{point.workload.__class__.__name__} has no prepare(model, job), which sync=own needs",
    ),
    _Constraint(lambda point, _: _grid_fault(point) is not None, "{grid}"),
    _Constraint(
        lambda point, _: point.workers % point.grid.model > 0,
        "model_parallel={point.grid.model} does not divide workers={point.workers}; use a "
        "multiple of it",
    ),
    _Constraint(
        lambda point, _: _lacks_loss(point),
        "{point.workload.__class__.__name__} has no loss(model, batch), which {point.sync} "
        "needs; sync=own calls its train_step",
    ),
    _Constraint(
        lambda point, _: _unread_by_own_mode(point) is not None,
        "train_step of {point.workload.__class__.__name__} does not read {unread}; if it "
        "does, name it in OwnMode(reads=…)",
    ),
    _Constraint(
        lambda point, _: point.unread_field is not None,
        "{point.unread_by} has no {point.unread_field}",
    ),
    _Constraint(
        lambda point, _: point.sequence_parallel and point.tensor_parallel == 1,
        "sequence_parallel needs tensor_parallel of at least 2",
    ),
    _Constraint(
        lambda point, _: point.pipeline_schedule is not None and point.pipeline_parallel == 1,
        "pipeline_schedule needs pipeline_parallel of at least 2",
    ),
    _Constraint(
        lambda point, _: _missing_plan(point) is not None,
        "{point.workload.__class__.__name__} has no {missing_plan}(model), which "
        "tensor_parallel={point.tensor_parallel} needs",
    ),
    _Constraint(lambda point, _: _refused_grid(point) is not None, "{refused_grid}"),
    _Constraint(
        lambda point, _: (
            point.accumulation < point.pipeline_parallel and point.pipeline_schedule != "gpipe"
        ),
        "pipeline_schedule={point.pipeline_schedule} needs a pass for each of "
        "pipeline_parallel={point.pipeline_parallel}; set accumulation to that or more",
    ),
    _Constraint(
        lambda point, _: point.accumulation % _schedule_multiple(point) > 0,
        "pipeline_schedule={point.pipeline_schedule} needs accumulation to be a multiple of "
        "pipeline_parallel={point.pipeline_parallel}",
    ),
    _Constraint(
        lambda point, _: (
            point.pipeline_parallel > 1 and callable(getattr(point.workload, "weight", None))
        ),
        "{point.workload.__class__.__name__} weighs its batches, which a pipeline can't; use "
        "pipeline_parallel=1",
    ),
    _Constraint(
        lambda point, _: point.slow_rank is not None and point.workers < 2,
        "slow_rank slows the last of several workers; set workers to at least 2",
    ),
    _Constraint(
        lambda point, _: point.slow_rank is not None and point.pipeline_parallel > 1,
        "slow_rank slows whole passes, and a pipeline has none; leave it out, or use "
        "pipeline_parallel=1",
    ),
    _Constraint(
        lambda point, _: (
            point.shard_precision is not None and point.grid.model > 1 and point.data_parallel == 1
        ),
        "shard_precision needs shards, and one group of workers has none; use more workers",
    ),
    _Constraint(
        lambda point, _: point.slow_rank is not None and _takes_own_passes(point),
        "slow_rank slows passes that dtsweep runs, and those of sync={point.sync} are the "
        "user's own; leave it out",
    ),
    _Constraint(
        lambda point, _: point.prefetch is not None and point.loader_workers is None,
        "prefetch counts the batches that processes make ahead; set loader_workers, or leave "
        "prefetch out",
    ),
    _Constraint(
        lambda point, _: _loading_axis(point) is not None and point.sync == AS_WRITTEN,
        "{loading} is for batches that dtsweep loads, and those of sync={point.sync} are the "
        "user's own; leave it out",
    ),
    _Constraint(
        lambda point, _: (
            point.mode.participants is not None
            and (point.loader_workers is not None or point.copy_ahead)
        ),
        "{point.sync} draws a worker's samples in each round, so none are loaded ahead; leave "
        "{loading} out",
    ),
    _Constraint(
        lambda point, harness: (point.pin_memory or point.copy_ahead) and harness.has_gpus is False,
        "{for_gpus} needs a GPU: a CPU computes on batches where they are; use {for_gpus}=False",
    ),
    _Constraint(
        lambda point, _: point.compression is not None and not point.mode.carries,
        "{point.sync} has no place for compression: what it exchanges is not in dtsweep's hands",
    ),
    _Constraint(
        lambda point, _: (
            point.compression is not None
            and COMPRESSIONS[point.compression].exchange not in (point.mode.carries or EXCHANGES)
        ),
        "{point.sync} adds up what travels on its way, "
        "which payloads of {point.compression} can't be",
    ),
    _Constraint(
        lambda point, _: (
            point.compression is not None
            and COMPRESSIONS[point.compression].needs_matrices
            and point.mode.exchanges_pieces
        ),
        "{point.compression} needs whole matrices, {point.sync} exchanges pieces of them",
    ),
    _Constraint(
        lambda point, _: (
            point.local_momentum != DEFAULTS["local_momentum"]
            and point.optimizer == "sgd"
            and not point.has_own_optimizer
        ),
        "optimizer=sgd has no state, so local_momentum={point.local_momentum} is keep; use "
        "local_momentum=keep",
    ),
    _Constraint(
        lambda point, _: point.topology == "exponential" and point.workers < 3,
        "with workers={point.workers} the exponential graph is the ring; use topology=ring",
    ),
    _Constraint(
        lambda point, _: not point.overlap and point.bucket_bytes is not None,
        "with overlap=False all gradients travel together, in one bucket: "
        "bucket_bytes is not read; leave it out",
    ),
    _Constraint(
        lambda point, _: point.node_size is not None and point.workers % point.node_size > 0,
        "node_size={point.node_size} does not divide workers={point.workers}; use a divisor",
    ),
    _Constraint(
        lambda point, _: (
            point.shard_precision is not None and point.precision != point.shard_precision
        ),
        "shard_precision={point.shard_precision} also computes in that type; set "
        "precision={point.shard_precision}",
    ),
    _Constraint(
        lambda point, harness: point.offload and harness.has_gpus is False,
        "offload needs GPUs: on a CPU everything is in main memory; use offload=False",
    ),
    _Constraint(
        lambda point, harness: _pins_memory(point) and harness.has_gpus is False,
        "loader.pin_memory needs GPUs: it is for copies to them; use loader.pin_memory=False",
    ),
    _Constraint(
        lambda point, _: _needs_asynchrony(point) is not None,
        "with staleness=0 all workers push and pull in each step; {asynchronous} needs "
        "staleness=None or a bound of at least 1",
    ),
    _Constraint(
        lambda point, _: point.drop_slowest > 0 and point.staleness != 0,
        "with staleness={point.staleness} each push is an update of its own; set "
        "staleness=0 for drop_slowest",
    ),
    _Constraint(
        lambda point, _: point.drop_slowest >= point.workers,
        "drop_slowest={point.drop_slowest} leaves no gradient of workers={point.workers}; "
        "use fewer",
    ),
    _Constraint(
        lambda point, harness: point.server_device == "gpu" and harness.has_gpus is False,
        "server_device=gpu needs GPUs; use server_device=cpu",
    ),
    _Constraint(
        lambda point, _: point.mode.shards and _leaves_parameters_out(point.workload),
        "{point.sync} needs passes that use every parameter; "
        "{point.workload.__class__.__name__} has find_unused_parameters in its ddp_options; use "
        "sync=ddp",
    ),
    _Constraint(
        lambda point, _: point.optimizer != DEFAULTS["optimizer"] and point.has_own_optimizer,
        "{point.workload.__class__.__name__} has an optimizer of its own, "
        "the point's is not read{how_to_read}",
    ),
    _Constraint(
        lambda point, harness: PRECISIONS[point.precision].needs_gpu and harness.has_gpus is False,
        "precision {point.precision} needs a GPU; use fp32",
    ),
    _Constraint(
        lambda point, harness: (
            PRECISIONS[point.precision].needs_gpu
            and PRECISIONS[point.precision].is_beyond(harness.compute_capability)
        ),
        "precision {point.precision} needs GPUs of compute capability "
        "{precision.compute_capability[0]}.{precision.compute_capability[1]} or higher, here: "
        "{harness.compute_capability[0]}.{harness.compute_capability[1]}; use fp32",
    ),
    _Constraint(
        lambda point, _: PRECISIONS[point.precision].is_scaled and not _can_scale(point),
        "precision {point.precision} scales gradients: that needs updates which all workers make "
        "alike, as in ddp, and no compression; use bf16",
    ),
    _Constraint(
        lambda point, _: point.fused and point.has_own_optimizer,
        "{point.workload.__class__.__name__} has an optimizer of its own, which fused does not "
        "reach; make it with fused=True there",
    ),
    _Constraint(
        lambda point, _: (
            point.fused and point.mode.shards and point.optimizer in ("sgd", "momentum")
        ),
        "torch has no fused SGD for parameters in shards; use adam, adamw or fused=False",
    ),
    _Constraint(
        lambda point, _: point.compile and point.sync == OWN,
        "sync=own trains the model that prepare returns: compile it there, and use compile=False",
    ),
    _Constraint(
        lambda point, _: (
            point.compile
            and point.sync in ("ddp", "zero1")
            and (point.bucket_bytes or 2**20) < 2**20
        ),
        "torch divides compiled graphs at the buckets of {point.sync}, and makes none below 1 MiB; "
        "use a bucket_bytes of at least 1048576, or leave it out",
    ),
    _Constraint(
        lambda point, _: point.compile and point.pipeline_schedule == "zero_bubble",
        "pipeline_schedule=zero_bubble divides backward, which torch can't for compiled stages; "
        "use compile=False, or another schedule",
    ),
    _Constraint(
        lambda point, harness: point.compile and harness.has_compiler is False,
        "compile needs a C++ compiler (g++) for CPUs and Triton for GPUs, which a node lacks; "
        "install it there, or use compile=False",
    ),
    _Constraint(
        lambda point, harness: point.mode.needs_ray and harness.name != "ray",
        "{point.sync} needs Ray",
    ),
    _Constraint(
        lambda point, harness: point.mode.shares_memory and harness.has_gpus is True,
        "{point.sync} shares parameters in main memory; use CPUs alone: "
        "Resources(gpus_per_worker=0)",
    ),
    _Constraint(
        lambda point, harness: (
            point.mode.shares_memory
            and point.workers > 1
            and harness.name == "ray"
            and point.placement != "strict_pack"
        ),
        "{point.sync} needs placement=strict_pack: its workers share the memory of a node",
    ),
    _Constraint(
        lambda point, harness: point.workers > 1 and harness.name == "in_process",
        "in this process there is one worker, not {point.workers}",
    ),
    _Constraint(
        lambda point, harness: bool(point.environment) and harness.name == "in_process",
        "an env. axis needs worker processes of their own",
    ),
)
"""In the order in which they are asked; the first that applies is the reason."""


_HOW_TO_READ = '; if prepare reads it, declare OwnMode(reads=("optimizer",))'


def impossible(point: Point, harness: Harness = Harness()) -> str | None:  # frozen
    """Say why a point can't be measured, or None.

    >>> impossible(Point(sync="ddp", sync_period=8))
    'ddp has no sync_period'
    >>> impossible(Point(workers=2), Harness(name="in_process"))
    'in this process there is one worker, not 2'
    >>> impossible(Point(precision="tf32"), Harness(compute_capability=(8, 6))) is None
    True
    """
    violated = (constraint for constraint in CONSTRAINTS if constraint.applies(point, harness))
    reason = next((constraint.reason for constraint in violated), None)
    if reason is None:
        return None
    return reason.format(
        point=point,
        precision=PRECISIONS[point.precision],
        harness=harness,
        grid=_grid_fault(point),
        unread=_unread_by_own_mode(point),
        missing_plan=_missing_plan(point),
        refused_grid=_refused_grid(point),
        asynchronous=_needs_asynchrony(point),
        loading=_loading_axis(point),
        for_gpus="pin_memory" if point.pin_memory else "copy_ahead",
        how_to_read=_HOW_TO_READ if point.sync == OWN else "",
    )
