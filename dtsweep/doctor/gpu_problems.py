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
    return problems


def _rates_of(gpu: Row) -> Iterator[tuple[str, float]]:
    """Rates of a GPU by what they are of."""
    for precision, speed in gpu["rates"].items():
        yield precision, speed["measured_flops_per_s"]
    yield "memory", gpu["moved_bytes_per_s"]


def find_gpu_problems(row: Row) -> list[str]:
    """Say what is wrong with the GPUs of a host."""
    problems = []
    for index, gpu in enumerate(row["gpus"] or ()):
        name = f"GPU {index}"
        if uses := _uses_of(gpu):
            problems.append(
                f"{name} is not idle ({', '.join(uses)}); wait for its user (nvidia-smi)"
            )
        if gpu["memory_errors"]:
            problems.append(
                f"{name} has {gpu['memory_errors']} uncorrected memory errors; take it out, or "
                "reset it"
            )
    return problems


def _uses_of(gpu: Mapping[str, Any]) -> list[str]:
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
