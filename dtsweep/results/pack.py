"""Files of results, packed in memory: what an attempt or a log is stored as."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dtsweep.errors import STORED, shortened
from dtsweep.results.parquet import LONG, arrow_table, columns_of, encode
from dtsweep.results.schema import TABLES
from dtsweep.results.statuses import STATUSES
from dtsweep.results.storage import StoredFile

_NO_TYPES: Mapping[str, type] = MappingProxyType({})


def attempt_files(
    trial: Mapping[str, Any],
    *,
    ranks: Sequence[Mapping[str, Any]] = (),
    steps: Mapping[str, Any] | None = None,
    curves: Sequence[Mapping[str, Any]] = (),
    workload_types: Mapping[str, type] = _NO_TYPES,
) -> list[StoredFile]:
    """Pack one attempt; readers see it once all of its files are stored, in this order.

    Args:
        trial: Columns of `trials`, `workload_<field>` among them; those left out are null.
        ranks: One row per worker; `attempt_id` and `trial_id` are filled in.
        steps: Columns of `steps`, arrays of one length; None or left out is a column of nulls.
        curves: One row per evaluation; `attempt_id` and `trial_id` are filled in.
        workload_types: Type of each scalar workload field (without `workload_`): bool, int, float
            or str.

    Raises:
        ValueError: A column or status is unknown, or a value does not fit its column.
    """
    if trial.get("status") not in STATUSES:
        raise ValueError(f"status {trial.get('status')!r} is none of {sorted(STATUSES)}")
    ids = {name: trial[name] for name in ("attempt_id", "trial_id")}
    step_columns = dict(steps or {"rank": []})
    step_columns |= {name: [value] * len(step_columns["rank"]) for name, value in ids.items()}
    tables = {
        "steps": arrow_table("steps", step_columns),
        "curves": arrow_table("curves", columns_of([{**row, **ids} for row in curves])),
        "ranks": arrow_table("ranks", columns_of([_cut("ranks", row) | ids for row in ranks])),
        "trials": arrow_table(
            "trials", columns_of([_cut("trials", trial)]), workload_types=workload_types
        ),
    }
    return _packed(tables, stem=f"part-{ids['attempt_id']}")


def unmeasured_files(
    trials: Sequence[Mapping[str, Any]], *, workload_types: Mapping[str, type] = _NO_TYPES
) -> list[StoredFile]:
    """Pack attempts that have only their rows of `trials` into one file.

    Args:
        trials: as `attempt_files` takes each of them.
        workload_types: likewise.

    Raises:
        ValueError: A column is unknown, or a value does not fit its column.
    """
    rows = arrow_table(
        "trials", columns_of([_cut("trials", row) for row in trials]), workload_types=workload_types
    )
    return _packed({"trials": rows}, stem=f"part-{trials[0]['attempt_id']}")


def as_read(
    trials: Sequence[Mapping[str, Any]], *, workload_types: Mapping[str, type] = _NO_TYPES
) -> list[dict[str, Any]]:
    """Rows of `trials` as `Results.attempts` reads them: with all columns but `started_at`."""
    table = arrow_table("trials", columns_of(trials), workload_types=workload_types)
    rows: list[dict[str, Any]] = table.drop_columns(["started_at"]).to_pylist()
    # The names of so many columns would take more memory than a row's values.
    return [{sys.intern(name): value for name, value in row.items()} for row in rows]


def log_file(name: str, text: str) -> StoredFile:
    """Pack a part of a rank's log as logs/<name>.log; `name` is `<session>/<log's name>`."""
    folder, _, rank = f"logs/{name}".rpartition("/")
    data = text.encode(errors="backslashreplace")
    return StoredFile(folder, f"{rank}.log", data, is_private=True)


def _cut(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose texts are as long as readers take them."""
    names = {column.name for column in TABLES[table]} - LONG
    return {
        name: shortened(value, STORED) if name in names and isinstance(value, str) else value
        for name, value in row.items()
    }


def _packed(tables: Mapping[str, Any], *, stem: str) -> list[StoredFile]:
    """Pack tables that have rows into a file each."""
    files = []
    for table, rows in tables.items():
        if rows.num_rows:
            name, data = encode(rows, stem=stem)
            files.append(StoredFile(table, name, data))
    return files
