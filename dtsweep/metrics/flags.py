"""What a reader should know before trusting a trial's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from dtsweep.measure.statistics import Series, is_bimodal
from dtsweep.metrics.breakdown import Row
from dtsweep.metrics.rank_result import Measured

SPIKY, CORRELATED_STEPS, INPUT_BOUND = 0.01, 5.0, 0.05
"""From which on a row is flagged: share of spikes, steps that resemble each other, share of a step spent on data."""


def flags(
    row: Row, steps: Series, periods: Series, ranks: Sequence[Measured], *, half_width: float | None
) -> list[str]:
    """Name what a reader should know of these numbers, each once.

    Args:
        row: the trial's columns so far.
        steps: (steps,) seconds of the window's steps.
        periods: (periods,) seconds, mean steps of the window's sync periods.
        ranks: what each rank measured, its own `flags` among it.
        half_width: how well the mean should be known, as a share of it.
    """
    wide = half_width is not None and (row["half_width"] is None or row["half_width"] > half_width)
    data_share = (row["data_s"] or 0.0) / row["step_mean_s"]
    correlated = row["effective_steps"] and len(steps) / row["effective_steps"] > CORRELATED_STEPS
    found = {
        "imprecise": wide and row["stop_reason"] != "dominated",
        "drift": row["steady_class"] in ("slowdown", "none"),
        "spiky": row["spike_share"] > SPIKY,
        "bimodal": is_bimodal(periods),
        "autocorrelated": bool(correlated),
        "input_bound": data_share > INPUT_BOUND,
    }
    seen = [flag for rank in ranks for flag in rank.flags]
    return list(dict.fromkeys([*(flag for flag, is_so in found.items() if is_so), *seen]))
