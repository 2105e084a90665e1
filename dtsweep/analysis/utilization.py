"""Shares of what devices can do, by one measure for a whole sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_SAME_DEVICE = ("env_id", "precision", "cpus_per_worker")
"""A peak that was measured holds for these: hardware and software, number format, threads."""


def by_best_peak(trials: pd.DataFrame) -> pd.DataFrame:
    """Relate `mfu` and `hfu` to the best peak of all trials, where peaks are measured and not looked up.

    Each process measures its own peak, once: those of one machine lie some percent apart, and lower where workers with
    several threads measure at once. Two points of a sweep would differ by that and not by what they compute.

    Args:
        trials: one row per trial, as `dtsweep.load` gives it.

    Returns:
        The same, `mfu` and `hfu` times the trial's measured peak over the highest of its environment, precision and
        CPUs per worker. `peak_flops_per_s` stays that of the trial.
    """
    peaks = trials["peak_flops_per_s"].where(trials["peak_source"] == "measured")
    best = peaks.groupby([trials[name] for name in _SAME_DEVICE], dropna=False).transform("max")
    share = (peaks / best).fillna(1.0)
    return trials.assign(**{name: trials[name] * share for name in ("mfu", "hfu")})
