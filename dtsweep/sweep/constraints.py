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


@dataclass(frozen=True, kw_only=True)
class Harness:
    """Launcher of the ranks, if it is known."""

    name: str = "ray"
    """`ray`, `torchrun` or `in_process`: column `harness`."""

    has_gpus: bool | None = None
    """True if ranks get a GPU; None before that is known."""

    compute_capability: tuple[int, int] | None = None
    """Lowest CUDA compute capability of the ranks' GPUs; None before that is known."""


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


def _can_have_nodes(point: Point) -> bool:
    """True if there may be several nodes of several workers; real nodes are not known yet."""
    if point.node_size is None:
        return point.workers > 3
    return 1 < point.node_size < point.workers


def _needs_asynchrony(point: Point) -> str | None:
    """The first field that only asynchronous servers can have, if they are not."""
    fields = ("push_period", "pull_period")
    if point.staleness != 0:
        return None
    return next((name for name in fields if getattr(point, name) != DEFAULTS[name]), None)


def _lacks_loss(point: Point) -> bool:
    """True if another mode is to train a workload that has only a step of its own."""
    has_loss = callable(getattr(point.workload, "loss", None))
    return point.sync not in OF_THE_USER and has_train_step(point.workload) and not has_loss


def _takes_own_passes(point: Point) -> bool:
    """True if the user's code runs the passes: a loop as it is written, or a `train_step`."""
    return point.sync == AS_WRITTEN or (point.sync == OWN and has_train_step(point.workload))


def _unread_by_own_mode(point: Point) -> str | None:
    """The first field that is set although the workload's own mode does not read it."""
    own_mode = point.own_mode
    # Passes and update of `sync.own` read them.
    if own_mode is None or not has_train_step(point.workload):
        return None
    unread = [name for name in ("clip_norm", "precision") if name not in own_mode.reads]
    return next((name for name in unread if getattr(point, name) != DEFAULTS[name]), None)


CONSTRAINTS: tuple[_Constraint, ...] = (
    _Constraint(
        lambda point, _: point.sync == OWN and not has_own_mode(point.workload),
        "{point.workload.__class__.__name__} has no prepare(model, job), which sync=own needs",
    ),
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
        lambda point, _: point.slow_rank is not None and point.workers < 2,
        "slow_rank slows the last of several workers; set workers to at least 2",
    ),
    _Constraint(
        lambda point, _: point.slow_rank is not None and _takes_own_passes(point),
        "slow_rank slows passes that dtsweep runs, and those of sync={point.sync} are the "
        "user's own; leave it out",
    ),
    _Constraint(
        lambda point, _: point.balance is not None and point.workers < 2,
        "balance deals samples to several workers; set workers to at least 2",
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
        lambda point, _: point.sync == "fsdp" and point.reshard == "never",
        "fsdp that never reshards is fsdp_grad; use sync=fsdp_grad",
    ),
    _Constraint(
        lambda point, _: point.sync == "hsdp" and point.reshard == "node",
        "hsdp has its shards inside nodes already; leave reshard=node out, or use sync=fsdp",
    ),
    _Constraint(
        lambda point, _: (
            point.sync == "fsdp" and point.node_size is not None and point.reshard is None
        ),
        "fsdp reads node_size with reshard=node alone; set that, or leave node_size out",
    ),
    _Constraint(
        lambda point, _: point.reshard == "node" and not _can_have_nodes(point),
        "reshard=node needs several nodes of several workers; use workers and node_size "
        "for that, at least 4 workers",
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
        lambda point, _: point.replicas > 1 and point.drop_slowest > 0,
        "with drop_slowest the first shard chooses gradients for all of them, and its "
        "replicas don't have that choice; use replicas=1 or drop_slowest=0",
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
        unread=_unread_by_own_mode(point),
        asynchronous=_needs_asynchrony(point),
        how_to_read=_HOW_TO_READ if point.sync == OWN else "",
    )
