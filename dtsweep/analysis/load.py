"""The table of trials as every question begins with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.results.store import Results, newest_trials

if TYPE_CHECKING:
    import pandas as pd


def load(results: Results | str | Path, *, canaries: bool = False) -> pd.DataFrame:
    """Read one row per trial and harness: its newest `ok` attempt, else its newest; the oldest first.

    Whole numbers are Int64 and truth values boolean, with or without nulls. All others are float64 (null is NaN),
    text, and UTC times. A file that is left out is named in a warning.

    Args:
        results: the place.
        canaries: Whether every canary that was measured is a row too (`role` says so).

    Raises:
        SweepError: Nothing is stored there.
        StorageError: It can't be read.
    """
    return newest_trials(results, canaries=canaries)
