"""Noise behind an answer: drift, windows that ended too early, and variances of launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dtsweep.measure.stopping import LIMITS

if TYPE_CHECKING:
    import pandas as pd


class Noise(NamedTuple):
    """Noise that a quieter machine or longer windows would lower."""

    drift: float
    """Drift that canaries show, as a share; 0 where they show none."""
    imprecise: int
    """Trials whose window reached a limit before the precision that was asked for."""
    trials: int
    """All trials, those included."""
    has_turns: bool
    """True if some windows are made of turns."""
    limit: str
    """Setting of `Measure` that ended most of these windows; empty without any."""

    @property
    def is_mostly_imprecise(self) -> bool:
        """True if more than half of the trials are imprecise."""
        return 2 * self.imprecise > self.trials


def noise_of(trials: pd.DataFrame, *, drift: float | None) -> Noise:
    """Count the trials whose windows were too short."""
    is_flagged = trials["flags"].map(lambda flags: flags is not None and "imprecise" in flags)
    ends = trials.loc[is_flagged.astype("bool"), "stop_reason"]
    limits = ends[ends.isin(LIMITS)]
    limit = ""
    if len(limits):
        limit = str(limits.value_counts().index[0])
    return Noise(
        drift=drift or 0.0,
        imprecise=len(limits),
        trials=len(trials),
        has_turns=bool(trials["turn_group"].notna().any()),
        limit=limit,
    )
