"""Where a step's time and a device's power go: phases, exchange, the straggler, FLOPs, energy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import students_t
from dtsweep.metrics.rank_result import Measured
from dtsweep.results.statuses import PHASE_MEANINGS
from dtsweep.sweep.point import Point

Row = dict[str, Any]

PASS_COLUMNS = ("data_s", "forward_s", "backward_s")
PHASE_COLUMNS = tuple(f"{phase}_s" for phase in PHASE_MEANINGS)


def own_work(rank: Measured, *, is_alone: bool = False) -> float | None:
    """What a rank's step takes without waiting for others, in seconds: the mean.

    From the steps without exchange; else without the time that it waited in the exchange; None where that is unknown
    and there are others.
    """
    free = rank.of_part("step_s", "no_exchange")
    if len(free):
        return float(free.mean())
    if "sync_s" in rank.steps:
        return float((rank.of_part("step_s") - rank.of_part("sync_s")).mean())
    return float(rank.of_part("step_s").mean()) if is_alone else None


def slowest_phase_s(ranks: Sequence[Measured], name: str) -> float | None:
    """Mean per step of the rank that spends most in a phase; None where it was not measured."""
    known = [float(rank.of_part(name).mean()) for rank in ranks if name in rank.steps]
    return max(known) if len(known) == len(ranks) else None


def exchange_columns(point: Point, ranks: Sequence[Measured]) -> Row:
    """Exposed exchange, by the difference to steps without it, else by the time that steps waited for it."""
    if any(name not in rank.steps for rank in ranks for name in PASS_COLUMNS):
        return {}
    if point.workers == 1:
        return {"pass_s": _pass_s(point, ranks, "window")}
    if any((rank.steps["part"] == "exchange").any() for rank in ranks):
        return _by_difference(point, ranks)
    row: Row = {"exchange_isolated_s": ranks[0].exchange_isolated_s}
    if all("sync_s" in rank.steps for rank in ranks):
        row |= _by_wait(point, ranks)
    return row


def _by_difference(point: Point, ranks: Sequence[Measured]) -> Row:
    """From blocks of steps with and without the exchange in turns."""
    with_it, without = (_blocks(ranks, part) for part in ("exchange", "no_exchange"))
    exposed, mean, isolated = with_it - without, float(with_it.mean()), ranks[0].exchange_isolated_s
    half = float(students_t(len(exposed) - 1) * exposed.std(ddof=1) / np.sqrt(len(exposed))) / mean
    share = float(exposed.mean()) / mean
    return {
        "exchange_isolated_s": isolated,
        "comm_method": "difference",
        "comm_share": share,
        "comm_share_low": share - half,
        "comm_share_high": share + half,
        "pass_s": _pass_s(point, ranks, "no_exchange"),
        "overlap_share": float(np.clip(1 - exposed.mean() / isolated, 0.0, 1.0)) if isolated else None,
    }


def _by_wait(point: Point, ranks: Sequence[Measured]) -> Row:
    """From the phase in which steps wait for the exchange; nothing hides it."""
    waited = np.mean([rank.of_part("sync_s").mean() for rank in ranks])
    share = float(waited / np.mean([rank.of_part("step_s").mean() for rank in ranks]))
    return {"comm_method": "wait", "comm_share": share, "pass_s": _pass_s(point, ranks, "window")}


def _blocks(ranks: Sequence[Measured], part: str) -> NDArray[np.float64]:
    """Mean step of each block of a part, of the slowest rank: (blocks,) seconds, one of each pair."""
    means = []
    for rank in ranks:
        blocks, times = rank.of_part("block", part), rank.of_part("step_s", part)
        means.append([times[blocks == block].mean() for block in np.unique(blocks)])
    slowest: NDArray[np.float64] = np.max(np.array(means), axis=0)
    return slowest


def _pass_s(point: Point, ranks: Sequence[Measured], part: str) -> float:
    """A forward/backward pass with its data: mean of the rank for which it takes longest, in seconds."""
    steps = [np.sum([rank.of_part(name, part) for name in PASS_COLUMNS], axis=0) for rank in ranks]
    return max(float(seconds.mean()) for seconds in steps) / point.accumulation


def skew_columns(ranks: Sequence[Measured], nodes: Sequence[str]) -> Row:
    """How much longer the slowest rank works than the fastest, and which one that is.

    Args:
        ranks: all of them.
        nodes: the host name of each.
    """
    if len(ranks) == 1:
        return {"rank_skew": 0.0}
    works = [work for rank in ranks if (work := own_work(rank)) is not None]
    if len(works) < len(ranks):
        return {}
    slowest = int(np.argmax(works))
    return {"rank_skew": max(works) / min(works) - 1, "straggler": f"rank {slowest} on {nodes[slowest]}"}


def flops_columns(point: Point, ranks: Sequence[Measured], rate: float) -> Row:
    """What a worker computes per second, and the share of its device's peak; the weakest device is the measure."""
    known = [rank.peak_flops_per_s for rank in ranks]
    peak = min(known) if all(known) else None  # type: ignore[type-var]  # none of them is None
    row: Row = {"peak_flops_per_s": peak, "peak_source": ranks[0].peak_source if peak else None}
    model, hardware = ranks[0].flops_per_sample, ranks[0].hardware_flops_per_sample
    if model is None:
        return row
    each = rate / point.workers
    row |= {"flops_per_sample": model, "flops_per_s_per_worker": model * each}
    if peak:
        row |= {"mfu": model * each / peak, "hfu": None if hardware is None else hardware * each / peak}
    return row


def device_columns(point: Point, ranks: Sequence[Measured], nodes: Sequence[str]) -> Row:
    """What devices and hosts did in the window; null unless all ranks know it.

    Args:
        point: what was measured.
        ranks: all of them.
        nodes: the host name of each; a host counts once.
    """
    hosts = dict(zip(nodes, ranks, strict=True)).values()
    energy, power = _all(ranks, "energy_j"), _all(ranks, "power_w")
    utilization, shares = _all(ranks, "device_utilization"), _all(hosts, "host_cpu_share")
    cpu_energy, sent = _all(hosts, "cpu_energy_j"), _all(hosts, "network_sent_bytes")
    longest = max(rank.window_s for rank in ranks)
    # Of the whole window, as its energy is.
    samples = sum(rank.window_steps for rank in ranks) * point.samples_per_worker_step
    return {
        "device_utilization": float(np.mean(utilization)) if utilization else None,
        "power_w": sum(power) if power else None,
        "energy_j": sum(energy) if energy else None,
        "energy_j_per_sample": sum(energy) / samples if energy else None,
        "cpu_energy_j": sum(cpu_energy) if cpu_energy else None,
        "host_cpu_share": max(shares) if shares else None,
        "network_bytes_per_s": sum(sent) / longest if sent else None,
    }


def _all(ranks: Iterable[Measured], name: str) -> list[float]:
    """A value of each rank's telemetry, or nothing where one does not know it."""
    values = [rank.telemetry.get(name) for rank in ranks]
    return [] if None in values else values  # type: ignore[return-value]  # none of them is None
