"""Shares of what devices can do, by one measure for a whole sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_SAME_DEVICE = ("env_id", "precision", "cpus_per_worker")
"""A peak that was measured holds for these: hardware and software, number format, threads."""


def by_best_peak(trials: pd.DataFrame) -> pd.DataFrame:
    """Relate what devices did to the best peaks of all trials, where peaks are measured.

    Each process measures its own peak, once: those of one machine lie some percent apart, and lower
    where workers with several threads measure at once. Two points of a sweep would differ by that
    and not by what they compute.

    Args:
        trials: one row per trial, as `dtsweep.load` gives it.

    Returns:
        The same, `mfu`, `hfu` and `compute_share` times the trial's measured peak over the highest
        of its environment, precision and CPUs per worker; `memory_share` the same with
        `peak_bytes_per_s`, of as many workers, who share a memory. The peaks themselves stay those
        of the trial.
    """
    peaks = trials["peak_flops_per_s"].where(trials["peak_source"] == "measured")
    computing = _share_of_best(peaks, [trials[name] for name in _SAME_DEVICE])
    moving = _share_of_best(
        trials["peak_bytes_per_s"], [trials[name] for name in (*_SAME_DEVICE, "workers")]
    )
    shares = {
        "mfu": computing,
        "hfu": computing,
        "compute_share": computing,
        "memory_share": moving,
    }
    return trials.assign(**{name: trials[name] * share for name, share in shares.items()})


def _share_of_best(peaks: pd.Series[float], groups: list[pd.Series[Any]]) -> pd.Series[float]:
    """Each peak as a share of the highest of its group; 1 where it is unknown."""
    return (peaks / peaks.groupby(groups, dropna=False).transform("max")).fillna(1.0)
