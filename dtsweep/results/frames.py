"""Rows of results as tables and frames; warnings and errors where rows are missing."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dtsweep.errors import StorageError, SweepError, one_line
from dtsweep.results.current_attempt import CHOOSING, current_attempts
from dtsweep.results.parquet import arrow_table, columns_of, is_name_of_ours
from dtsweep.results.schema import TABLES
from dtsweep.results.store import Results, in_order

if TYPE_CHECKING:
    import pandas as pd


def damage_of(store: Results) -> str | None:
    """Say which file of `trials` has changed since dtsweep wrote it, and the way out; or None."""
    for name, reason in store.quarantined:
        if name.startswith("trials/") and is_name_of_ours(name.partition("/")[2]):
            return (
                f"results in {store} are damaged: {one_line(name)}: {reason}; put that file back "
                "from a copy, or delete it to measure its trials again"
            )
    return None


def attempts_of(results: Results) -> pa.Table:
    """Read every attempt, the oldest first, canaries included.

    Warnings and errors are as in `dtsweep.load`.
    """
    stored = _stored(results, "trials")
    return stored.take(pa.array(in_order(stored), pa.int64()))


def trials_of(
    attempts: pa.Table, *, canaries: bool = False, superseded: Collection[str] = ()
) -> pd.DataFrame:
    """Choose the attempt that stands for each trial and harness.

    Args:
        attempts: as `attempts_of` gives them.
        canaries: add every canary.
        superseded: `attempt_id` of attempts that are left out.
    """
    rows = attempts.select(CHOOSING).to_pylist()
    chosen = list(current_attempts(rows, superseded=superseded).values())
    if canaries:
        chosen += [index for index, row in enumerate(rows) if row["role"] == "canary"]
    chosen = [index for index in chosen if rows[index]["attempt_id"] not in superseded]
    return frame_of(attempts.take(pa.array(sorted(chosen), pa.int64())))


def trials_of_rows(
    rows: Sequence[Mapping[str, Any]], *, workload_types: Mapping[str, type]
) -> pd.DataFrame:
    """As `trials_of`, with every canary, of rows that are not stored yet or were read as dicts.

    Args:
        rows: attempts with the columns of `trials`, the oldest first; those left out are null.
        workload_types: type of each workload field, as `column_types` gives it.
    """
    table = arrow_table("trials", columns_of(rows), workload_types=workload_types)
    return trials_of(table, canaries=True)


def steps(where: str | Path) -> pd.DataFrame:
    """Read one row per rank and step of every attempt.

    Types, warnings and errors are as in `dtsweep.load`.
    """
    return frame_of(_stored(Results(where).snapshot(), "steps"))


def curves(where: str | Path) -> pd.DataFrame:
    """Read one row per evaluation of every training to a target; as `steps` does."""
    return frame_of(_stored(Results(where).snapshot(), "curves"))


def _stored(store: Results, table: str) -> Any:
    rows = store.table(table)
    for line in store.left_out():
        warnings.warn(line, stacklevel=3)
    if not rows.num_rows and not store.attempts():
        if (damage := damage_of(store)) is not None:
            raise StorageError(damage)
        raise SweepError(nothing_in(store))
    return rows


def nothing_in(store: Results) -> str:
    """Say what a place without results is, and what to do."""
    folder = Path(str(store))
    if folder.is_file():
        return (
            f"{store} is a file; results are a folder, made with: dtsweep run SWEEP.py --results "
            "FOLDER"
        )
    if folder.name in TABLES and folder.is_dir():
        return f"no results in {store}, a part of some; did you mean {folder.parent}?"
    below = [str(part.parent) for depth in ("*", "*/*") for part in folder.glob(f"{depth}/trials")]
    if below:
        return f"no results in {store}; there are some in {', '.join(sorted(below)[:3])}: name one"
    return f"no results in {store}; make some with: dtsweep run SWEEP.py --results {store}"


def frame_of(rows: Any) -> pd.DataFrame:
    """Turn Arrow rows into a frame, with the types that `dtsweep.load` names."""
    import pandas as pd

    types = {
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        # Rows are read one by one: Arrow makes a Python string at each look.
        pa.string(): pd.StringDtype("python", na_value=float("nan")),
    }
    frame: pd.DataFrame = rows.to_pandas(types_mapper=types.get)
    return frame
