"""Flags: warnings to the reader of a trial's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np

from dtsweep.measure.statistics import Series, is_bimodal, students_t
from dtsweep.measure.stopping import FEWEST_PERIODS
from dtsweep.measure.warmup import is_spiky
from dtsweep.metrics.breakdown import Row, slowest_phase_s
from dtsweep.metrics.rank_result import Measured, trained_in_window

_CORRELATED_STEPS = 5.0
_INPUT_BOUND = 0.05
"""From which on a row is flagged: steps that resemble each other, share of a step spent on data."""

_STALLED = 0.5
"""Share of a window from which on a single step of it is flagged."""

_LEFT_OUT = 0.25
"""Share of a window's time from which on a row is flagged if it is left out as warm-up."""

_JUDGED = (
    "imprecise",
    "few_steps",
    "drift",
    "unstable",
    "stalled",
    "slow_start",
    "spiky",
    "bimodal",
    "autocorrelated",
    "input_bound",
)
"""Flags that are found here; ranks and the driver notice the others."""

BUSY, LOW_CLOCK = 0.5, 0.9
"""Utilization from which on a device is busy; its least clock, as a share of the others'."""

_FEWEST_STALLED = 2
"""Windows of so many steps have none that takes the longer part for no reason."""

_FEWEST_BLOCKS = 3
"""Least number of blocks after the window for an interval of their mean."""


def flags(
    row: Row, steps: Series, periods: Series, ranks: Sequence[Measured], *, wanted: float | None
) -> list[str]:
    """Flags of these numbers for the reader, each once.

    Args:
        row: the trial's columns so far.
        steps: (steps,) seconds of the window's steps.
        periods: (periods,) seconds, mean steps of the window's sync periods.
        ranks: what each rank measured, its own `flags` among it.
        wanted: half-width that the mean should have, as a share of it.
    """
    is_short = row["stop_reason"] == "max_seconds" and len(periods) < FEWEST_PERIODS
    wide = wanted is not None and (row["half_width"] is None or row["half_width"] > wanted)
    trained = [*trained_in_window(ranks).values()]
    data_share = (slowest_phase_s(trained, "data_s") or 0.0) / row["step_mean_s"]
    correlated = row["effective_steps"] and len(steps) / row["effective_steps"] > _CORRELATED_STEPS
    conditions = (
        wide or is_short,
        is_short,
        row["steady_class"] in ("slowdown", "none"),
        _is_unstable(row, ranks),
        len(steps) > _FEWEST_STALLED and steps.max() > _STALLED * steps.sum(),
        max(map(_left_out, ranks), default=0.0) >= _LEFT_OUT,
        is_spiky(periods),
        is_bimodal(periods),
        bool(correlated),
        data_share > _INPUT_BOUND,
    )
    judged = [flag for flag, holds in zip(_JUDGED, conditions, strict=True) if holds]
    seen = [flag for rank in ranks for flag in rank.flags]
    return list(dict.fromkeys([*judged, *seen]))


def device_flags(
    seen: Sequence[str],
    ranks: Sequence[Measured],
    *,
    devices: Sequence[str],
    needs_energy: bool,
) -> list[str]:
    """Flags of a trial, with those of devices that one rank can't judge by itself.

    Args:
        seen: flags so far.
        ranks: what each rank measured.
        devices: the model of each rank's device.
        needs_energy: whether the sweep asks for energy; without that, short windows are usual.
    """
    judged = [flag for flag in seen if needs_energy or flag != "window_short"]
    if _has_low_clock(ranks, devices=devices):
        judged.append("clock_low")
    return judged


def _has_low_clock(ranks: Sequence[Measured], *, devices: Sequence[str]) -> bool:
    """True if a busy device's clock is below `LOW_CLOCK` of the others' median, of its model.

    Args:
        ranks: what each rank measured.
        devices: the model of each rank's device.
    """
    clocks: dict[str, list[float]] = {}
    for rank, device in zip(ranks, devices, strict=True):
        clock_hz = rank.telemetry.get("sm_clock_hz")
        utilization = rank.telemetry.get("device_utilization")
        if clock_hz and utilization is not None and utilization >= BUSY:
            clocks.setdefault(device, []).append(clock_hz)
    for of_model in clocks.values():
        slowest, *others = sorted(of_model)
        if others and slowest < LOW_CLOCK * median(others):
            return True
    return False


def _left_out(rank: Measured) -> float:
    """Share of a rank's window, in time, that is left out as warm-up."""
    left_out_s = rank.of_part("step_s", "warmup")[rank.skipped_steps :].sum()
    return float(left_out_s / (left_out_s + rank.of_part("step_s").sum()))


def _is_unstable(row: Row, ranks: Sequence[Measured]) -> bool:
    """True if the same steps took another time soon after the window, beyond the intervals of both.

    The window can't see what changes more slowly than it lasts. False where nothing was measured
    after it, or the window's own mean is not known.
    """
    blocks = _later_blocks(ranks)
    if len(blocks) < _FEWEST_BLOCKS or row["half_width"] is None:
        return False
    mean_s = row["step_mean_s"]
    error_s = blocks.std(ddof=1) / math.sqrt(len(blocks))
    half_s = students_t(len(blocks) - 1) * error_s
    return bool(abs(blocks.mean() - mean_s) > half_s + row["half_width"] * mean_s)


def _later_blocks(ranks: Sequence[Measured]) -> Series:
    """Mean step of each block with the exchange after the window: (blocks,) seconds.

    Each is the mean of the ranks. Ranks in step take equally long, except that the ends of a block
    scatter between them.
    """
    means = []
    for rank in ranks:
        blocks = rank.of_part("block", "exchange")
        times = rank.of_part("step_s", "exchange")
        means.append([times[blocks == block].mean() for block in np.unique(blocks)])
    later: Series = np.mean(means, axis=0)
    return later
