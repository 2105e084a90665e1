"""Problems of GPUs, each in one line with the next step: their state, and their rates compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dtsweep.doctor.examine import Row

_BUSY_GPU_BYTES = 2**30
"""An idle GPU has less in use."""

_BUSY_GPU_SHARE = 0.05

_LOW_SHARE_OF_MEDIAN = 0.95
"""A GPU that reaches less of the median of its node's GPUs is a problem."""


def find_slow_gpus(gpus: Sequence[Row]) -> list[str]:
    """Name GPUs of a node that are slower than its others of the same model."""
    problems = []
    for gpu in gpus:
        peers = [peer for peer in gpus if peer["device"] == gpu["device"]]
        for what, rate in _rates_of(gpu):
            median = statistics.median(dict(_rates_of(peer))[what] for peer in peers)
            if rate < _LOW_SHARE_OF_MEDIAN * median:
                problems.append(
                    f"GPU {gpu['gpu']}: {what} reaches {rate / median:.0%} of the median of this "
                    "node's GPUs; look for heat, power limits and other jobs "
                    f"(nvidia-smi -q -d PERFORMANCE -i {gpu['gpu']})"
                )
        lanes = gpu["pcie_lanes"]
        most = gpu["pcie_lanes_max"]
        if lanes is not None and most is not None and lanes < most:
            problems.append(
                f"GPU {gpu['gpu']} has {lanes} of {most} PCIe lanes; reseat it, or move it to "
                "another slot"
            )
    return problems


def _rates_of(gpu: Row) -> Iterator[tuple[str, float]]:
    """Rates of a GPU by what they are of."""
    for precision, speed in gpu["rates"].items():
        yield precision, speed["measured_flops_per_s"]
    yield "memory", gpu["moved_bytes_per_s"]


def find_gpu_problems(row: Row) -> list[str]:
    """Say what is wrong with the GPUs of a host."""
    gpus = row["gpus"]
    if gpus is None:
        return []
    problems = _room_problems(row)
    for index, gpu in enumerate(gpus):
        name = f"GPU {index}"
        if uses := _uses_of(gpu):
            problems.append(
                f"{name} is not idle ({', '.join(uses)}); wait for its user (nvidia-smi)"
            )
        problems += [f"{name} {problem}" for problem in _health_problems(gpu, index)]
    return problems


def _room_problems(row: Row) -> list[str]:
    """Compare the GPUs that Ray has with those that the driver has, and with ranks of one world."""
    gpus = row["gpus"]
    # A process can have a slice for a GPU (MIG).
    count = sum(1 if gpu["slices"] is None else gpu["slices"] for gpu in gpus)
    if row["ray_gpus"] > count:
        return [
            f"Ray has {row['ray_gpus']} GPUs, the driver {count}; start Ray with --num-gpus={count}"
        ]
    whole = sum(gpu["slices"] != 0 for gpu in gpus)
    if row["ray_gpus"] > whole:
        return [
            f"Ray has {row['ray_gpus']} GPUs, which are slices (MIG) of {whole}, and NCCL refuses "
            "two ranks on one GPU: use workers=1, or give each rank its own GPU (nvidia-smi -mig 0)"
        ]
    return []


def _health_problems(gpu: Mapping[str, Any], index: int) -> list[str]:
    problems = []
    if gpu["memory_errors"]:
        problems.append(
            f"has {gpu['memory_errors']} uncorrected memory errors; take it out, or reset it"
        )
    if gpu["remap_failed"]:
        problems.append(
            "could not replace faulty rows of its memory; take it out and have it swapped"
        )
    elif gpu["remap_pending"]:
        problems.append(
            "replaces faulty rows of its memory at its next reset; reset it while it is idle "
            f"(nvidia-smi --gpu-reset -i {index})"
        )
    return problems


def _uses_of(gpu: Mapping[str, Any]) -> list[str]:
    if gpu["slices"] is not None:  # the counters add up all slices, and others may use some
        return []
    processes = gpu["processes"]
    used = gpu["used_bytes"]
    share = gpu["utilization"]
    uses = []
    if processes:
        uses.append(f"{processes} processes")
    if used is not None and used > _BUSY_GPU_BYTES:
        uses.append(f"{in_gib(used)} in use")
    if share is not None and share > _BUSY_GPU_SHARE:
        uses.append(f"busy for {share:.0%} of the time")
    return uses


def in_gib(size: float) -> str:
    """Write a number of bytes in GiB.

    >>> in_gib(3 * 2**29)
    '1.5 GiB'
    """
    return f"{size / 2**30:.1f} GiB"
