"""Tables of other tools, as rows of results' columns."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.foreign_tables.complete import RATES, SHARES, TIMES
from dtsweep.foreign_tables.serving_json import serving_row
from dtsweep.results.local_files import OddFileError, read_file
from dtsweep.results.parquet import arrow_table
from dtsweep.sweep.point_axes import AXES
from dtsweep.sweep.values import is_storable_name

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 10_000
_MOST_BYTES = 1 << 26

SETTING = "workload_"
"""Prefix of the columns of a table's own settings."""

OF_A_POINT = (
    *AXES,
    "workload",
    "semantics",
    "backend",
    "parameters",
    "flops_per_sample",
    "global_batch",
    "data_parallel",
    "model_parallel",
    "cpus_per_worker",
    "gpus_per_worker",
)
"""Columns of results by which points differ, in addition to a table's own settings."""

_GIVEN = (
    *OF_A_POINT,
    *TIMES,
    *RATES,
    *SHARES,
    "hosts",
    "devices",
    "pass_s",
    "exchange_isolated_s",
    "bytes_sent_per_step",
    "memory_peak_bytes",
    "power_w",
    "energy_j_per_sample",
    "usd_per_hour",
    "loss_last",
    "first_token_s",
    "per_token_s",
    "requests_lost",
)
"""Columns of results that a table can give."""

_KINDS = {
    "Int64": int,
    "Float64": float,
    "boolean": bool,
}
"""Type of a setting by pandas' dtype; of all others it is str."""


def read_table(
    table: Path, names: Mapping[str, str]
) -> tuple[list[dict[str, Any]], dict[str, type]]:
    """Read a CSV, JSON, JSON lines or Parquet file, as its ending says.

    Args:
        table: the file.
        names: columns of the table, by the column of results that each gives.

    Returns:
        Rows without what is unknown, with `imported_from`, such as `runs.csv:17`; and types of
        their settings.

    Raises:
        SweepError: it can't be read, has no or too many rows, a column that is none of results, or
            a cell of another type.
    """
    try:
        frame = _frame(read_file(str(table.resolve()), most_bytes=_MOST_BYTES), table.suffix)
        if not 0 < len(frame) <= _MOST_ROWS:
            raise ValueError(f"it has {len(frame)} rows, and 1 to {_MOST_ROWS:,} are read at once")
        frame = _renamed(frame, names).dropna(axis="columns", how="all").convert_dtypes()
        kinds = {str(name): _KINDS.get(str(dtype), str) for name, dtype in frame.dtypes.items()}
        types = {name.removeprefix(SETTING): kinds[name] for name in kinds if name not in _GIVEN}
        cells = frame.astype(object).where(frame.notna(), None)
        columns = {name: cells[name].tolist() for name in kinds}
        columns["imported_from"] = [f"{table.name}:{number}" for number in frame.index]
        rows = arrow_table(
            "trials", {**columns, "attempt_id": columns["imported_from"]}, workload_types=types
        )
    except (OddFileError, OSError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SweepError(f"table {str(table)!r} can't be read: {reason}") from error
    unknown = (None, math.inf, -math.inf)
    return [
        {name: cell for name, cell in row.items() if cell not in unknown}
        for row in rows.select([*columns]).to_pylist()
    ], types


def _frame(data: bytes, ending: str) -> pd.DataFrame:
    """Read a file's bytes; the index has the numbers of lines, objects or rows."""
    import pandas as pd

    if ending == ".csv":
        # Blank lines count.
        frame = pd.read_csv(io.BytesIO(data), skip_blank_lines=False, low_memory=False)
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows have more cells than the header")
        frame.index += 2
        return frame.dropna(how="all")
    if ending in (".jsonl", ".ndjson"):
        frame = pd.DataFrame([json.loads(line) for line in data.split(b"\n") if line.strip()])
    elif ending == ".json":
        frame = pd.DataFrame([serving_row(data)])
    elif ending == ".parquet":
        frame = pd.read_parquet(io.BytesIO(data)).reset_index(drop=True)
    else:
        raise ValueError("its ending is none of .csv, .json, .jsonl, .ndjson, .parquet")
    frame.index += 1
    return frame


def _renamed(frame: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Name columns as results do; refuse those that a table can't give."""
    frame.columns = frame.columns.map(str)
    for ours, theirs in names.items():
        if theirs not in frame:
            hint = did_you_mean(theirs, frame.columns)
            raise SweepError(f"--name {ours}: the table has no column {quoted(theirs)}; {hint}")
    frame = frame.rename(columns={theirs: ours for ours, theirs in names.items()})
    for name in frame.columns:
        is_setting = name.startswith(SETTING) and is_storable_name(name)
        if name not in _GIVEN and not is_setting:
            raise SweepError(
                f"column {quoted(name)} is none that a table can give; --name OURS={name} renames "
                f"it, to {SETTING}NAME if it is a setting; leave out all other columns"
            )
    if not frame.columns.is_unique:
        raise ValueError(f"two columns of {', '.join(frame.columns)} have one name")
    return frame
