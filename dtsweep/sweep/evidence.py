"""Evidence for features: the machines on which each ran, by the entries of docs/log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.sweep.axes import Candidate
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import DEFAULTS
from dtsweep.sweep.settings import Sweep
from dtsweep.text import say

if TYPE_CHECKING:
    from rich.console import Console

MACHINES = ("nowhere", "CPU", "one GPU", "several GPUs", "cluster")
"""Kinds of machines, from none to the largest; a cluster has several machines."""

EVIDENCE: Mapping[str, Mapping[str, str]] = {
    "nowhere": {"2026-11-30": "offload copy_ahead pin_memory precision=tf32 server_device"},
    "CPU": {
        "2026-11-22": "doctor",
        "2026-11-26": "shard_precision autoscaling script Trainer Lightning Accelerate",
        "2026-11-27": "topology search",
        "2026-11-28": "DeepSpeed Megatron",
        "2026-11-29": "cifar10_target",
        "2026-11-30": """
            sync=ddp sync=zero1 sync=fsdp_grad sync=fsdp sync=hsdp sync=hierarchical sync=ring
            sync=tree sync=local_sgd sync=diloco sync=gossip sync=federated sync=parameter_server
            sync=hogwild sync=own sync=as_written workers micro_batch accumulation sync_period
            synchronous_steps local_momentum outer_learning_rate outer_momentum participation
            staleness shards push_period pull_period drop_slowest overlap bucket_bytes node_size
            reshard tensor_parallel sequence_parallel pipeline_parallel pipeline_schedule
            compression=fp16 compression=bf16 compression=int8 compression=int4 compression=sign
            compression=topk compression=randomk compression=powersgd compression_ratio
            compression_rank optimizer learning_rate clip_norm precision=fp32 precision=bf16
            precision=fp16 compile fused attention checkpointing slow_rank loader_workers prefetch
            placement Slurm workload=Gpt inference sync=closed_loop sync=open_loop rate max_batch
            max_wait_s""",
    },
    "one GPU": {
        "2026-11-30": """
            sync=ddp sync=zero1 sync=fsdp_grad sync=fsdp sync=hsdp sync=hierarchical sync=ring
            sync=tree sync=local_sgd sync=diloco sync=gossip sync=federated sync=parameter_server
            compression=fp16 compression=bf16 compression=int8 compression=int4 compression=sign
            compression=topk compression=randomk compression=powersgd precision=fp32
            precision=bf16 slow_rank energy torchrun workload=Gpt""",
    },
}
"""Features that ran on a machine, by the day of the log's entry that shows it.

A feature is an axis, `axis=value` of a mode, compression, precision or workload, or another name
that the docs use.
"""

_WITH_VALUE = ("sync", "compression", "precision")
"""Axes of which each value is a feature of its own."""

_NO_FEATURES = {*_WITH_VALUE, "workers", "micro_batch", "learning_rate"}
"""Axes that are no features: those, and the ones that say how much."""


def tried_on(feature: str) -> str:
    """Name the largest machine on which a feature ran.

    >>> tried_on("sync=ddp"), tried_on("compile"), tried_on("server_device")
    ('one GPU', 'CPU', 'nowhere')
    """
    machine = "nowhere"
    for larger, entries in EVIDENCE.items():
        if feature in " ".join(entries.values()).split():
            machine = larger
    return machine


def _features_of(point: Point) -> list[str]:
    """Name the features that a point uses; of most axes the default is none.

    >>> _features_of(Point(workers=2, copy_ahead=True))
    ['sync=ddp', 'precision=fp32', 'copy_ahead']
    """
    values = point.columns()
    features = [f"{name}={values[name]}" for name in _WITH_VALUE if values[name]]
    others = values.keys() - _NO_FEATURES
    return features + sorted(name for name in others if values[name] not in (None, DEFAULTS[name]))


def untried_in(
    sweep: Sweep, candidates: Iterable[Candidate], nodes: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, str]] | None:
    """List the features of a sweep's points that never ran on such a machine.

    Args:
        sweep: the question.
        candidates: its points; skipped ones don't count.
        nodes: rows of doctor's diagnosis, where it was asked.

    Returns:
        For each `feature` the largest machine that is `wanted`, and the largest one on which it was
        `tried`, of `MACHINES`; None where it is not known whether workers get GPUs.
    """
    gpus = sweep.resources.gpus_per_worker
    if gpus is None:
        if not nodes:
            return None
        gpus = any(node.get("is_gpu") for node in nodes)
    alone, together = ("one GPU", "several GPUs") if gpus else ("CPU", "CPU")
    if len(nodes) > 1:
        together = "cluster"
    points = [candidate.point for candidate in candidates if candidate.reason is None]
    wanted: dict[str, str] = {}
    for point in sorted(points, key=lambda point: point.workers):
        machine = alone if point.workers == 1 else together
        wanted |= dict.fromkeys(_features_of(point), machine)
    return [
        {"feature": feature, "wanted": machine, "tried": tried}
        for feature, machine in wanted.items()
        if MACHINES.index(tried := tried_on(feature)) < MACHINES.index(machine)
    ]


def print_untried(rows: Iterable[Mapping[str, str]] | None, *, console: Console) -> None:
    """Print what `untried_in` found in a line; nothing without any."""
    words = [f"{row['feature']} ({row['wanted']}; so far {row['tried']})" for row in rows or ()]
    if words:
        say(console, f"Never tried by us on such a machine: {', '.join(words)}.")
