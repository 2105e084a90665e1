"""Reads the table of trials, without rows that newer ones supersede."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.analysis.superseded import superseded
from dtsweep.results.store import Results, attempts_of, trials_of
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd


def load(results: Results | str | Path, *, canaries: bool = False) -> pd.DataFrame:
    """Read one row per trial and harness, oldest first.

    It is the newest `ok` attempt, else the newest attempt.

    Whole numbers are Int64 and truth values boolean, with or without nulls. All others are float64
    (null is NaN), text, and UTC times.

    Rows of an older source of a workload, its packages or its data are left out, as are launches of
    a point in an older environment of the sweep's resources: an interrupted `--rerun all` leaves
    them. A warning says how many, and another one names each file that can't be read.

    Args:
        results: the place.
        canaries: add a row for every canary that was measured (`role` says so).

    Raises:
        SweepError: Nothing is stored there.
        StorageError: It can't be read.
    """
    if isinstance(results, Results):
        store = results
    else:
        store = Results(results)
    attempts = attempts_of(store)
    frame = trials_of(attempts, canaries=canaries)
    for run in store.run_records():
        # As a text: pandas copies what it carries along with each table.
        frame.attrs["planned"] = " ".join(run.record.points)
    reasons = superseded(frame).dropna()
    if reasons.empty:
        return frame
    of_trials = reasons[frame["role"] != "canary"]
    if len(of_trials):
        changes = ", or ".join(of_trials.unique())
        warnings.warn(
            f"{count_of(len(of_trials), 'older trial')} of {store} left out, measured "
            f"{changes}; "
            "the next run measures again what its sweep has of them",
            stacklevel=2,
        )
    left_out = frame["attempt_id"][reasons.index]
    # A later attempt of a trial that is left out stands for it instead, such as a failure of the
    # newest source.
    newest = trials_of(attempts, canaries=canaries, superseded=frozenset(left_out))
    newest.attrs.update(frame.attrs)
    return newest
