"""Time and power of a step by phase: phases, FLOPs, energy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dtsweep.metrics.rank_result import Measured, samples_of
from dtsweep.results.statuses import PHASE_MEANINGS
from dtsweep.sweep.point import Point

Row = dict[str, Any]

PASS_COLUMNS = ("data_s", "forward_s", "backward_s")
PHASE_COLUMNS = tuple(f"{phase}_s" for phase in PHASE_MEANINGS)


def mean_phase_s(ranks: Sequence[Measured], name: str) -> float | None:
    """Mean per step and rank of a phase; None where it was not measured.

    A rank's phases add up to its steps, so that these means add up to the mean step.
    """
    means = [float(rank.of_part(name).mean()) for rank in ranks if name in rank.steps]
    if len(means) != len(ranks):
        return None
    return float(np.mean(means))


def slowest_phase_s(ranks: Sequence[Measured], name: str) -> float | None:
    """Mean per step of the rank that spends most in a phase; None where it was not measured."""
    means = [float(rank.of_part(name).mean()) for rank in ranks if name in rank.steps]
    if len(means) != len(ranks):
        return None
    return max(means)


def flops_columns(point: Point, ranks: Sequence[Measured], rate: float) -> Row:
    """FLOP/s of a worker, and the share of the peak of the weakest device."""
    peaks = [(rank.peak_flops_per_s or 0.0, rank.peak_source) for rank in ranks]
    row: Row = {"peak_flops_per_s": None, "peak_source": None}
    peak, source = min(peaks, key=lambda pair: pair[0])
    if peak:
        row = {"peak_flops_per_s": peak, "peak_source": source}
    model = ranks[0].flops_per_sample
    hardware = ranks[0].hardware_flops_per_sample
    if model is None:
        return row
    worker_rate = rate / point.workers
    row |= {"flops_per_sample": model, "flops_per_s_per_worker": model * worker_rate}
    row |= {"mfu": None, "hfu": None}
    if peak:
        row["mfu"] = model * worker_rate / peak
    if peak and hardware is not None:
        row["hfu"] = hardware * worker_rate / peak
    return row


def work_columns(ranks: Sequence[Measured], step_mean_s: float) -> Row:
    """Least time of a step's operations, as shares of the step.

    The memory of the slowest rank is named.
    """
    rates = [rank.moved_bytes_per_s for rank in ranks]
    work = ranks[0].work
    row: Row = {"peak_bytes_per_s": min(filter(None, rates)) if all(rates) else None}
    if work is None:
        return row
    return row | {
        "operations_per_step": work.operations,
        "moved_bytes_per_step": work.moved_bytes,
        "compute_share": work.compute_s / step_mean_s,
        "memory_share": work.memory_s / step_mean_s,
        "launch_share": work.launch_s / step_mean_s,
    }


def device_columns(point: Point, ranks: Sequence[Measured], nodes: Sequence[str]) -> Row:
    """Use of devices and hosts in the window; null unless all ranks know it.

    Args:
        point: what was measured.
        ranks: all of them.
        nodes: the host name of each; a host counts once.
    """
    hosts = dict(zip(nodes, ranks, strict=True)).values()
    row: Row = dict.fromkeys(
        (
            "device_utilization",
            "power_w",
            "energy_j",
            "energy_j_per_sample",
            "cpu_energy_j",
            "cpu_energy_j_per_sample",
            "host_cpu_share",
            "network_bytes_per_s",
            "device_idle_low",
            "device_idle_high",
        )
    )
    for name in ("device_idle_low", "device_idle_high"):
        values = [getattr(rank, name) for rank in ranks if rank.steps_with_samples]
        if None not in values:
            row[name] = float(np.mean(values))
    if utilization := _all(ranks, "device_utilization"):
        row["device_utilization"] = float(np.mean(utilization))
    if power := _all(ranks, "power_w"):
        row["power_w"] = sum(power)
    # Of the whole window, as its energy is.
    samples = samples_of(point) * sum(measured.used_steps for measured in ranks)
    if energy := _all(ranks, "energy_j"):
        row["energy_j"] = sum(energy)
        row["energy_j_per_sample"] = sum(energy) / samples
    if cpu_energy := _all(hosts, "cpu_energy_j"):
        row["cpu_energy_j"] = sum(cpu_energy)
        row["cpu_energy_j_per_sample"] = sum(cpu_energy) / samples
    if shares := _all(hosts, "host_cpu_share"):
        row["host_cpu_share"] = max(shares)
    if sent := _all(hosts, "network_sent_bytes"):
        row["network_bytes_per_s"] = sum(sent) / max(rank.window_s for rank in ranks)
    return row


def _all(ranks: Iterable[Measured], name: str) -> list[float]:
    """A value of each rank's telemetry, or nothing where one does not know it."""
    values = [rank.telemetry.get(name) for rank in ranks]
    return [] if None in values else values  # type: ignore[return-value]  # none of them is None
