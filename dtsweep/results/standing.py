"""Which of a trial's attempts stands for it, in the table of trials and when a run goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dtsweep.provenance.sources import changes_of_row
from dtsweep.results.statuses import FINAL


def standing(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Choose the attempt of each trial that stands for it: its newest `ok` one, else its newest.

    An `ok` one of an earlier source of the workload gives way to a final failure of a later source: the trial can't be
    measured any more.

    Args:
        rows: attempts with `trial_id`, `harness`, `role`, `status`, `workload_digest` and `sources`, the oldest first.

    Returns:
        The index of the row, by trial and harness; canaries have none. What another harness measured is another trial.
    """
    chosen: dict[tuple[str, str], tuple[int, Mapping[str, Any]]] = {}
    for index, row in enumerate(rows):
        if row["role"] == "canary":
            continue
        trial = (row["trial_id"], row["harness"])
        before = chosen[trial][1] if trial in chosen else None
        gives_way = before is None or before["status"] != "ok" or row["status"] == "ok"
        if gives_way or (before is not None and row["status"] in FINAL and changes_of_row(before, row)):
            chosen[trial] = index, row
    return {trial: index for trial, (index, _) in chosen.items()}
