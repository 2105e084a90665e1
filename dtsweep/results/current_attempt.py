"""Choice of the attempt that stands for a trial, in the table of trials and when a run goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dtsweep.provenance.sources import changes_of_row
from dtsweep.results.statuses import FINAL

CHOOSING = (
    "attempt_id",
    "trial_id",
    "harness",
    "role",
    "status",
    "workload_digest",
    "sources",
    "environment",
)
"""Columns that decide which attempt stands for a trial."""


def current_attempts(
    rows: Iterable[Mapping[str, Any]], *, superseded: Collection[str] = ()
) -> dict[tuple[str, str], int]:
    """Choose the current attempt of each trial: its newest `ok` attempt, else its newest.

    An `ok` attempt of an earlier source of the workload gives way to a final failure of a later
    source: the trial can't be measured any more. A superseded attempt gives way to any later one
    with another source or environment.

    Args:
        rows: attempts with the columns `CHOOSING`, the oldest first.
        superseded: `attempt_id` of the superseded attempts.

    Returns:
        Index of the row by trial and harness, without canaries. What another harness measured is
        another trial.
    """
    chosen: dict[tuple[str, str], tuple[int, Mapping[str, Any]]] = {}
    for index, row in enumerate(rows):
        if row["role"] == "canary":
            continue
        trial = (row["trial_id"], row["harness"])
        if trial not in chosen or _gives_way(chosen[trial][1], row, superseded):
            chosen[trial] = index, row
    return {trial: index for trial, (index, _) in chosen.items()}


def _gives_way(
    before: Mapping[str, Any], row: Mapping[str, Any], superseded: Collection[str]
) -> bool:
    if before["status"] != "ok" or row["status"] == "ok":
        return True
    if before["attempt_id"] in superseded and before["environment"] != row["environment"]:
        return True
    can_displace = row["status"] in FINAL or before["attempt_id"] in superseded
    return can_displace and bool(changes_of_row(before, row))
