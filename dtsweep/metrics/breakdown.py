"""Where a step's time and a device's power go: phases, exchange, the straggler, FLOPs, energy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import students_t
from dtsweep.sweep.point import Point

Row = dict[str, Any]

Outcome = Mapping[str, Any]
"""What a rank sends: `status`, `reason`, and if it measured `steps` (arrays by column) and single figures."""

PASS_COLUMNS = ("data_s", "forward_s", "backward_s")
PHASE_COLUMNS = (*PASS_COLUMNS, "sync_s", "optimizer_s")


def steps_of(rank: Outcome, name: str, part: str = "window") -> NDArray[np.float64]:
    """A column of the steps of one part alone."""
    steps: NDArray[np.float64] = rank["steps"][name][rank["steps"]["part"] == part]
    return steps


def own_work(rank: Outcome, *, is_alone: bool = False) -> float | None:
    """What a rank's step takes without waiting for others, in seconds: the mean.

    From the steps without exchange; else without the time that it waited in the exchange; None where that is unknown
    and there are others.
    """
    free = steps_of(rank, "step_s", "no_exchange")
    if len(free):
        return float(free.mean())
    if "sync_s" in rank["steps"]:
        return float((steps_of(rank, "step_s") - steps_of(rank, "sync_s")).mean())
    return float(steps_of(rank, "step_s").mean()) if is_alone else None


def slowest_phase_s(ranks: Sequence[Outcome], name: str) -> float | None:
    """Mean per step of the rank that spends most in a phase; None where it was not measured."""
    known = [float(steps_of(rank, name).mean()) for rank in ranks if name in rank["steps"]]
    return max(known) if len(known) == len(ranks) else None


def exchange_columns(point: Point, ranks: Sequence[Outcome]) -> Row:
    """Exposed exchange, by the difference to steps without it, else by the time that steps waited for it."""
    if any(name not in rank["steps"] for rank in ranks for name in PASS_COLUMNS):
        return {}
    if point.workers == 1:
        return {"pass_s": _pass_s(point, ranks[0], "window")}
    with_it, without = (_blocks(ranks, part) for part in ("exchange", "no_exchange"))
    isolated = ranks[0].get("exchange_isolated_s")
    row: Row = {"exchange_isolated_s": isolated}
    if len(with_it):
        exposed, mean = with_it - without, float(with_it.mean())
        half = students_t(len(exposed) - 1) * exposed.std(ddof=1) / np.sqrt(len(exposed))
        share = float(exposed.mean()) / mean
        row |= {"comm_method": "difference", "comm_share": share}
        row |= {"comm_share_low": share - float(half) / mean, "comm_share_high": share + float(half) / mean}
        row["pass_s"] = max(_pass_s(point, rank, "no_exchange") for rank in ranks)
    elif all("sync_s" in rank["steps"] for rank in ranks):
        waited = np.mean([steps_of(rank, "sync_s").mean() for rank in ranks])
        share = float(waited / np.mean([steps_of(rank, "step_s").mean() for rank in ranks]))
        row |= {"comm_method": "wait", "comm_share": share}
        row["pass_s"] = max(_pass_s(point, rank, "window") for rank in ranks)
    else:
        return row
    if isolated and len(with_it):
        row["overlap_share"] = float(np.clip(1 - exposed.mean() / isolated, 0.0, 1.0))
    return row


def _blocks(ranks: Sequence[Outcome], part: str) -> NDArray[np.float64]:
    """Mean step of each block of a part, of the slowest rank: (blocks,) seconds, one of each pair."""
    means = []
    for rank in ranks:
        blocks, times = steps_of(rank, "block", part), steps_of(rank, "step_s", part)
        means.append([times[blocks == block].mean() for block in np.unique(blocks)])
    slowest: NDArray[np.float64] = np.max(np.array(means), axis=0)
    return slowest


def _pass_s(point: Point, rank: Outcome, part: str) -> float:
    """A forward/backward pass with its data, mean of a rank."""
    phases = [steps_of(rank, name, part) for name in PASS_COLUMNS]
    return float(np.sum(phases, axis=0).mean()) / point.accumulation


def skew_columns(ranks: Sequence[Outcome]) -> Row:
    """How much longer the slowest rank works than the fastest, and which one that is."""
    if len(ranks) == 1:
        return {"rank_skew": 0.0}
    works = [work for rank in ranks if (work := own_work(rank)) is not None]
    if len(works) < len(ranks):
        return {}
    slowest = int(np.argmax(works))
    node = ranks[slowest].get("facts", {}).get("node", "an unknown node")
    return {"rank_skew": max(works) / min(works) - 1, "straggler": f"rank {slowest} on {node}"}


def flops_columns(point: Point, ranks: Sequence[Outcome], rate: float) -> Row:
    """What a worker computes per second, and the share of its device's peak; the weakest device is the measure."""
    counted = ranks[0].get("flops")
    known = [rank.get("peak_flops_per_s") for rank in ranks]
    peak = min(known) if all(known) else None  # type: ignore[type-var]  # none of them is None
    row: Row = {"peak_flops_per_s": peak, "peak_source": ranks[0].get("peak_source") if peak else None}
    if counted is None:
        return row
    each = rate / point.workers
    model, hardware = counted["model_per_sample"] * each, counted["hardware_per_sample"]
    row |= {"flops_per_sample": counted["model_per_sample"], "flops_per_s_per_worker": model}
    if peak:
        row |= {"mfu": model / peak, "hfu": None if hardware is None else hardware * each / peak}
    return row


def device_columns(point: Point, ranks: Sequence[Outcome]) -> Row:
    """What devices and hosts did in the window; null unless all ranks know it."""
    hosts = {rank.get("facts", {}).get("node"): rank for rank in ranks}.values()
    energy, power = _all(ranks, "energy_j"), _all(ranks, "power_w")
    utilization, shares = _all(ranks, "device_utilization"), _all(hosts, "host_cpu_share")
    cpu_energy, sent = _all(hosts, "cpu_energy_j"), _all(hosts, "network_sent_bytes")
    longest = max(rank["window_s"] for rank in ranks)
    # Of the whole window, as its energy is.
    samples = sum(rank["window_steps"] for rank in ranks) * point.micro_batch * point.accumulation
    return {
        "device_utilization": float(np.mean(utilization)) if utilization else None,
        "power_w": sum(power) if power else None,
        "energy_j": sum(energy) if energy else None,
        "energy_j_per_sample": sum(energy) / samples if energy else None,
        "cpu_energy_j": sum(cpu_energy) if cpu_energy else None,
        "host_cpu_share": max(shares) if shares else None,
        "network_bytes_per_s": sum(sent) / longest if sent else None,
    }


def _all(ranks: Iterable[Outcome], name: str) -> list[float]:
    """A value of each rank, or nothing where one does not know it."""
    values = [rank.get(name) for rank in ranks]
    return [] if None in values else values  # type: ignore[return-value]  # none of them is None
