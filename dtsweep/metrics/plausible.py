"""Contradictions in the numbers of a row: with each other, its device or its cores.

Every bound is an identity of the row or follows from physics, none from what is usual: no honest
row is named. What is unknown contradicts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dtsweep.metrics.breakdown import PHASE_COLUMNS, Row
from dtsweep.metrics.rank_result import Measured, RankFacts, RankResult, samples_of
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.point import Point

_ROUNDING = 0.01
"""By which share numbers that are equal by definition may differ."""

_EDGE_S = 5.0
"""Time for a worker after its last two steps to leave its servers, on a busy machine."""

_OVER_PEAK = 1.05
"""Allowed multiple of a data sheet's dense peak.

Clocks go up to 17 % over the sheet's (H100 NVL, RTX A6000), and no training step reaches nine
tenths of what its clock allows.
"""

_CORE_FLOPS_PER_S = MappingProxyType({"fp32": 64 * 6.2e9, "bf16": 2048 * 6.2e9})
"""Upper bound of one core's FLOP/s, by precision.

It is the most operations in a cycle (two units of AVX-512, AMX) times the highest clock that is
sold. A matrix product on the same core is not a bound: another thread of the core, or threads that
wait for each other, make it slower than an honest step.
"""

_OVER_MATMUL = 4.0
"""Allowed multiple of the measured matrix product, for devices whose cores the table lacks."""

_CPU_CLOCK_S = 0.2
"""Largest error of a process's CPU time."""

JUDGED_COLUMNS = (
    *(
        "samples_per_s",
        "step_mean_s",
        "global_batch",
        "sync",
        "flags",
        "measured_steps",
        "window_s",
    ),
    "step_max_s",
    "mfu",
    "hfu",
    "peak_flops_per_s",
    "peak_source",
    "devices",
)
"""Columns of `trials` that `contradictions` reads."""


def plausibility_columns(
    point: Point, row: Row, facts: Mapping[int, RankFacts], results: Mapping[int, RankResult]
) -> Row:
    """Judge a row by itself, and by what each of its ranks measured.

    Args:
        point: what was measured.
        row: its columns of `trials`.
        facts: by rank.
        results: by rank; all of them measured, their steps with `warmup`.

    Returns:
        Columns of `trials`: `implausible`, and `flags` with that one among them.
    """
    ranks = {
        rank: result.measured
        for rank, result in sorted(results.items())
        if result.measured is not None
    }
    messages = contradictions(row)
    if point.is_asynchronous and (
        message := _asynchronous_rate(point, list(ranks.values()), row["samples_per_s"])
    ):
        messages.append(message)
    of_ranks = (
        {rank: _lost_steps(measured) for rank, measured in ranks.items()},
        {rank: _phases(measured) for rank, measured in ranks.items()},
        {rank: _memory(measured, results[rank].device_bytes) for rank, measured in ranks.items()},
        {rank: _cpu_time(measured, facts[rank]) for rank, measured in ranks.items()},
        {
            rank: _cpu_flops(point, rank, list(ranks.values()), facts[rank])
            for rank, measured in ranks.items()
        },
    )
    return _judged_columns(row["flags"], [*messages, *filter(None, map(_of_first, of_ranks))])


def _judged_columns(flags: Sequence[str] | None, messages: Sequence[str]) -> Row:
    """Columns on contradictions of a row: `implausible`, null without any, and `flags`."""
    return {
        "implausible": "; ".join(messages) or None,
        "flags": [*_listed(flags), *(["implausible"] if messages else [])],
    }


def _of_first(messages: Mapping[int, str | None]) -> str | None:
    """Message for the first affected rank, with the number of other affected ranks."""
    named = [rank for rank, message in messages.items() if message]
    if not named:
        return None
    suffix = ""
    if len(named) > 1:
        suffix = f" and {len(named) - 1} more"
    return f"rank {named[0]}{suffix}: {messages[named[0]]}"


def contradictions(row: Mapping[str, Any], *, rounding: float = _ROUNDING) -> list[str]:
    """Contradictions in a single row, in words with the numbers.

    Args:
        row: `JUDGED_COLUMNS` of `trials`; unknown is None, nan or left out.
        rounding: by which share the rate may differ from the samples over the step time.
    """
    shares = (_utilization(row, "mfu"), _utilization(row, "hfu"))
    checks = (_rate(row, rounding), _window(row), *shares)
    return [message for message in checks if message]


def _rate(row: Mapping[str, Any], rounding: float) -> str | None:
    """Check that rate times mean step gives the samples of a step, for steps of all workers."""
    numbers = _numbers_of(row, "samples_per_s", "step_mean_s", "global_batch")
    if numbers is None:
        return None
    rate, step_s, samples = numbers
    if samples * (1 - rounding) <= rate * step_s <= samples * (1 + rounding):
        return None
    return f"samples_per_s × step_mean_s is {rate * step_s:.4g}, and global_batch {samples:.0f}"


def _window(row: Mapping[str, Any]) -> str | None:
    """Check that the measured steps take as long as the window."""
    numbers = _numbers_of(row, "measured_steps", "step_mean_s", "window_s", "step_max_s")
    if numbers is None:
        return None
    steps, mean_s, window_s, longest_s = numbers
    late_s = _EDGE_S + 2 * longest_s + window_s * _ROUNDING
    # Workers with steps of their own: it is the number of the slowest one's.
    is_short = not _is_asynchronous(row) and window_s - steps * mean_s > late_s
    if not is_short and steps * mean_s <= window_s * (1 + _ROUNDING):
        return None
    return f"{steps:.0f} steps of {mean_s:.4g} s in a window of {window_s:.4g} s"


def _is_asynchronous(row: Mapping[str, Any]) -> bool:
    """True if a step is one worker's own: then there is no global batch."""
    return row.get("sync") != AS_WRITTEN and _numbers_of(row, "global_batch") is None


def _utilization(row: Mapping[str, Any], name: str) -> str | None:
    """Check a share of the device's peak, unless the peak is only measured."""
    numbers = _numbers_of(row, name, "peak_flops_per_s")
    is_mixed = _is_asynchronous(row) and ", " in str(row.get("devices"))
    # Where fast devices do more of the work, their work is not the weakest one's.
    if (
        numbers is None
        or row.get("peak_source") not in ("given", "table")
        or is_mixed
        or numbers[0] <= _OVER_PEAK
    ):
        return None
    share, peak = numbers
    return (
        f"{name} is {share:.3g} of a dense peak of {peak / 1e12:.4g} TFLOP/s "
        f"({row['peak_source']}): are "
        "flops_per_sample, precision and peak right? Attention counts as if it were not causal"
    )


def _asynchronous_rate(point: Point, ranks: Sequence[Measured], rate: float) -> str | None:
    """Check the rate of steps that are each worker's own, by the steps that ended in common time.

    Common is the time in which all workers had steps; each may count one more step at its edges.
    """
    starts = [rank.of_part("start_s") for rank in ranks]
    ends = [start + rank.of_part("step_s") for start, rank in zip(starts, ranks, strict=True)]
    began = max(start[0] for start in starts)
    ended = min(end[-1] for end in ends)
    inside = touching = 0
    for measured, start, end in zip(ranks, starts, ends, strict=True):
        # Steps whose gradients were dropped count nothing.
        is_used = measured.is_used()
        is_inside = (start >= began) & (end <= ended)
        is_touching = (end > began) & (start < ended)
        inside += np.sum(is_used & is_inside)
        touching += np.sum(is_used & is_touching)
    done = rate * (ended - began) / samples_of(point)
    if not done < inside * (1 - _ROUNDING) and not done > touching * (1 + _ROUNDING):
        return None
    return (
        f"samples_per_s of {rate:.4g} is {done:.4g} steps in the {ended - began:.4g} s in which "
        "all workers had steps, "
        f"and these were {inside:g} to {touching:g}"
    )


def _lost_steps(measured: Measured) -> str | None:
    """Check that every step of the window has a time."""
    is_step = np.isin(measured.steps["part"], ("warmup", "window"))
    timed = int(np.sum(is_step & (measured.steps["step_s"] >= 0))) - measured.skipped_steps
    if timed == measured.window_steps:
        return None
    return f"{timed} steps have a time in a window of {measured.window_steps}"


def _phases(measured: Measured) -> str | None:
    """Check that the phases of a step, loading data included, fit into it."""
    means = {
        name: float(measured.of_part(name).mean())
        for name in PHASE_COLUMNS
        if name in measured.steps
    }
    step_s = float(measured.of_part("step_s").mean())
    total_s = sum(means.values())
    if not total_s > step_s * (1 + _ROUNDING):
        return None
    parts = ", ".join(f"{name} {mean:.4g}" for name, mean in means.items())
    return f"the phases take {total_s:.4g} s of a step of {step_s:.4g} s ({parts})"


def _memory(measured: Measured, device_bytes: int | None) -> str | None:
    """Check a rank's memory against its device's, on a CPU its machine's.

    The sum of ranks is not checked, since they share pages.
    """
    peak_bytes = measured.memory_peak_bytes
    if device_bytes is None or peak_bytes is None or peak_bytes <= device_bytes:
        return None
    return f"memory peak {peak_bytes / 2**30:.4g} GiB on a device of {device_bytes / 2**30:.4g} GiB"


def _cpu_time(measured: Measured, facts: RankFacts) -> str | None:
    """Check CPU time against the machine's CPUs in the window.

    More than they have means that the window's clock is slow.
    """
    used_s = _cpu_s(measured)
    # A variable can make Python count fewer CPUs than the process may use.
    cpus = max(facts.machine.get(name) or 0 for name in ("cpus", "cpus_allowed"))
    if (
        not cpus
        or used_s is None
        or used_s <= cpus * measured.window_s * (1 + _ROUNDING) + _CPU_CLOCK_S
    ):
        return None
    return f"{used_s:.4g} s of CPU time in a window of {measured.window_s:.4g} s on {cpus} CPUs"


def _cpu_flops(point: Point, rank: int, ranks: Sequence[Measured], facts: RankFacts) -> str | None:
    """Check that a rank's arithmetic fits into its CPU time, unless a GPU does it.

    Nothing is known of a rank that has a part of a model.
    """
    if point.grid.model > 1:
        return None
    measured = ranks[rank]
    used_s = _cpu_s(measured)
    limit = _CORE_FLOPS_PER_S.get(point.precision)
    model_flops = ranks[0].flops_per_sample or 0.0
    flops_per_sample = max(model_flops, ranks[0].hardware_flops_per_sample or 0.0)
    if used_s is None or limit is None or facts.device_uuid is not None:
        return None
    best = max(rank.matmul_flops_per_s or 0.0 for rank in ranks) / facts.threads
    limit = max(limit, _OVER_MATMUL * best)
    done = flops_per_sample * samples_of(point) * measured.steps_with_samples
    if not done > limit * (used_s + _CPU_CLOCK_S):
        return None
    return (
        f"{done:.4g} FLOP in {used_s:.4g} s of CPU time, where a core does at most "
        f"{limit / 1e9:.4g} GFLOP/s at "
        f"{point.precision}: is flops_per_sample {flops_per_sample:.4g} right?"
    )


def _cpu_s(measured: Measured) -> float | None:
    """CPU time of the process in the window, in seconds."""
    cpus = measured.telemetry.get("process_cpus")
    if cpus is None:
        return None
    return float(cpus) * measured.window_s


def _numbers_of(row: Mapping[str, Any], *names: str) -> list[float] | None:
    """The numbers of these columns; None unless all are known."""
    values = [row.get(name) for name in names]
    numbers = [math.nan if value is None else float(value) for value in values]
    if not all(map(math.isfinite, numbers)):
        return None
    return numbers


def _listed(flags: Any) -> list[str]:
    if flags is None:
        return []
    return list(flags)
