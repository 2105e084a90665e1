"""Reads the table of trials, without superseded rows; treats imported rows as measured ones."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError
from dtsweep.inference.spread import POINT
from dtsweep.provenance.sources import changes, in_a_line
from dtsweep.results.frames import attempts_of, trials_of
from dtsweep.results.schema import IMPORTED
from dtsweep.results.store import ORDER, Results
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd


_FIELD = "field "
"""Prefix of the entries of `sources` that a field of the workload names."""


def superseded(frame: pd.DataFrame) -> pd.Series[Any]:
    """Give the reason why a row is superseded, as in "measured before a.py changed".

    Null where it is not.

    An interrupted `--rerun all` leaves rows of two jobs: with another source of the workload
    (`older_source`), or with other environment variables of the sweep's resources, which are not
    part of a point's name. Unknown sources and rows that are not `ok` are not superseded.
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
    rows = rows[(rows["status"] == "ok") & rows["sources"].notna()]
    # A canary never makes a trial an older one: canaries come last, whenever they were measured.
    rows = rows.assign(is_trial=rows["role"] != "canary")
    rows = rows.sort_values(["is_trial", "started_at"], kind="stable", na_position="first")[::-1]
    jobs = rows.groupby(described, dropna=False, sort=False).ngroup()

    newest: dict[str, dict[str, str]] = {}
    lines: dict[int, str | None] = {}
    for job, row in zip(jobs, rows[described].to_dict("records"), strict=True):
        if job in lines:
            continue
        values = {str(name): value for name, value in row.items()}
        entries = json.loads(row["sources"]).items()
        # Each value of a field names its data.
        sources = {_with_value(name, values): content for name, content in entries}
        newest_sources = newest.setdefault(row["workload"], sources)
        lines[job] = in_a_line(changes(sources, newest_sources), place="") or None
        if lines[job] is None:
            # One row need not name all packages and data that another one does.
            newest[row["workload"]] = sources | newest_sources
    line_by_row: list[str | None] = [None] * len(frame)
    for place, job in zip(jobs.index, jobs, strict=True):
        line_by_row[int(place)] = lines[job]
    return pd.Series(line_by_row, index=frame.index, dtype=object)


def _with_value(name: str, row: dict[str, Any]) -> str:
    if not name.startswith(_FIELD):
        return name
    # A list of paths has an entry for each: "field data[0]".
    field = name.removeprefix(_FIELD).partition("[")[0]
    return f"{name} {row.get(f'workload_{field}')}"


def load(where: str | Path, *, canaries: bool = False) -> pd.DataFrame:
    """Read one row per trial and harness, oldest first.

    It is the newest `ok` attempt, else the newest attempt.

    Whole numbers are Int64 and truth values boolean, with or without nulls. All others are float64
    (null is NaN), text, and UTC times.

    Rows of an older source of a workload, its packages or its data are left out, as are launches of
    a point in an older environment of the sweep's resources: an interrupted `--rerun all` leaves
    them. A warning says how many, and another one names each file that can't be read.

    Args:
        where: a folder, or a URI such as s3://bucket/folder.
        canaries: add a row for every canary that was measured (`role` says so).

    Raises:
        SweepError: Nothing is stored there.
        StorageError: It can't be read.
    """
    return trials_in(Results(where).snapshot(), canaries=canaries)


def trials_in(store: Results, *, canaries: bool = False) -> pd.DataFrame:
    """Read the table of trials of opened results, as `load` does."""
    attempts = attempts_of(store)
    frame = trials_of(attempts, canaries=canaries)
    known = [*store.quarantined]
    # After the trials, which another run may store meanwhile.
    runs = store.run_records()
    for line in store.left_out(known=known):
        warnings.warn(line, stacklevel=3)
    if runs:
        # As a text: pandas copies what it carries along with each table.
        frame.attrs["planned"] = " ".join(runs[-1].record.points)
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
            stacklevel=3,
        )
    left_out = frame["attempt_id"][reasons.index]
    # A later attempt of a trial that is left out stands for it instead, such as a failure of the
    # newest source.
    newest = trials_of(attempts, canaries=canaries, superseded=frozenset(left_out))
    newest.attrs.update(frame.attrs)
    return newest


def joined(frame: pd.DataFrame) -> pd.DataFrame:
    """Treat imported rows as measured in the environment of the measured rows.

    They are also of the model of the measured rows of the same workload, where that is one model.

    Raises:
        SweepError: no row is imported or none measured, or the measured ones are of several
            environments.
    """
    is_imported = frame["harness"] == IMPORTED
    measured = frame[~is_imported & (frame["status"] == "ok")]
    if measured.empty or not is_imported.any():
        lacking = "imported" if not is_imported.any() else "measured"
        raise SweepError(
            f"no trial of these results was {lacking}, so imported and measured ones can't be "
            "compared; leave --with-imported out"
        )
    environments = measured["env_id"].unique()
    if len(environments) > 1:
        raise SweepError(
            f"trials were measured in {len(environments)} environments "
            f"({', '.join(map(str, environments))}), and --with-imported needs one; leave it out"
        )
    models = measured.groupby("workload")["model_digest"].agg(["nunique", "first"])
    digests = models["first"].where(models["nunique"] == 1)
    of_workload = frame["workload"].map(digests).astype("object")
    is_of_model = is_imported & frame["model_digest"].isna() & of_workload.notna()
    return frame.assign(
        env_id=frame["env_id"].mask(is_imported, environments[0]),
        model_digest=frame["model_digest"].astype("object").mask(is_of_model, of_workload),
    )
