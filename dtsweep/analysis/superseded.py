"""Superseded rows: of an older source of the workload, or of other environment variables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dtsweep.inference.spread import POINT
from dtsweep.provenance.sources import changes, in_a_line
from dtsweep.results.store import ORDER

if TYPE_CHECKING:
    import pandas as pd

FIELD = "field "
"""Prefix of the entries of `sources` that a field of the workload names."""


def superseded(frame: pd.DataFrame) -> pd.Series[Any]:
    """Give the reason why a row is superseded, as in "measured before a.py changed".

    Null where it is not.

    An interrupted `--rerun all` leaves rows of two jobs: with another source of the workload
    (`older_source`), or with other environment variables of the sweep's resources, which are not
    part of a point's name. Unknown sources and rows that are not `ok` are not superseded.

    Args:
        frame: one row per trial, canaries included.
    """
    changes = older_source(frame)
    reasons = ("before " + changes).where(changes.notna(), None)
    is_trial = (frame["status"] == "ok") & (frame["role"] != "canary")
    ended = frame[is_trial & reasons.isna() & frame["environment"].notna()]
    ended = ended.sort_values(ORDER, kind="stable", na_position="first")
    newest = ended.groupby(list(POINT), dropna=False)["environment"].transform("last")
    older = ended.index[ended["environment"] != newest]
    reasons.loc[older] = "with another environment"
    return reasons


def older_source(frame: pd.DataFrame) -> pd.Series[Any]:
    """Say what changed between each row's source and the newest one of its workload.

    Sources are the workload's code, the packages that it imports and its data (`sources`). The
    newest one belongs to the newest `ok` trial. Workloads are distinguished by their names.

    Args:
        frame: one row per trial.

    Returns:
        One line per row; null where the source is the newest one or unknown, and where the row is
        not `ok`.
    """
    import pandas as pd

    fields = [
        column
        for column in frame.columns
        if column.startswith("workload_") and column != "workload_digest"
    ]
    described = ["workload", "workload_digest", "sources", *fields]
    rows = frame.reset_index(drop=True)
    rows = rows[(rows["status"] == "ok") & rows["workload_digest"].notna()]
    # A canary never makes a trial an older one: canaries come last, whenever they were measured.
    rows = rows.assign(is_trial=rows["role"] != "canary")
    rows = rows.sort_values(["is_trial", "started_at"], kind="stable", na_position="first")[::-1]
    jobs = rows.groupby(described, dropna=False, sort=False).ngroup()

    newest: dict[str, dict[str, str]] = {}
    lines: dict[int, str | None] = {}
    for job, row in zip(jobs, rows[described].to_dict("records"), strict=True):
        if job in lines:
            continue
        sources = _sources_of({str(name): value for name, value in row.items()})
        newest_sources = newest.setdefault(row["workload"], sources)
        lines[job] = in_a_line(changes(sources, newest_sources), place="") or None
        if lines[job] is None:
            # One row need not name all packages and data that another one does.
            newest[row["workload"]] = sources | newest_sources
    line_by_row: list[str | None] = [None] * len(frame)
    for place, job in zip(jobs.index, jobs, strict=True):
        line_by_row[int(place)] = lines[job]
    return pd.Series(line_by_row, index=frame.index, dtype=object)


def _sources_of(row: dict[str, Any]) -> dict[str, str]:
    """Entries of `sources`; those of a field have its value, since each value names its data."""
    return {_with_value(name, row): content for name, content in json.loads(row["sources"]).items()}


def _with_value(name: str, row: dict[str, Any]) -> str:
    if not name.startswith(FIELD):
        return name
    # A list of paths has an entry for each: "field data[0]".
    field = name.removeprefix(FIELD).partition("[")[0]
    return f"{name} {row.get(f'workload_{field}')}"
