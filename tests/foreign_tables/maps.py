"""A map of a small table, and tables that are imported by maps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pandas as pd

import dtsweep
from dtsweep.foreign_tables import Imported, import_tables
from dtsweep.foreign_tables.map_file import read_map

MAP = """
[columns]
workers = "gpus"
micro_batch = "batch"
step_mean_s = "step_ms / 1000"
precision = "precision"
[constants]
accumulation = 1
sync = "ddp"
workload = "cnn"
"""


def write_map(folder: Path, text: str = MAP) -> Path:
    (folder / "map.toml").write_text(text)
    return folder / "map.toml"


def columns_of(known: Mapping[str, str], header: Collection[str]) -> str:
    """Lines of `[columns]` or `[settings]` for the columns that a table has."""
    return "\n".join(f'{name} = "{column}"' for name, column in known.items() if column in header)


def imported(
    folder: Path,
    table: str | bytes,
    text: str = MAP,
    *,
    name: str = "runs.csv",
    constants: Sequence[str] = (),
    results: Path | None = None,
) -> Imported:
    """Import a table of this text, by a map."""
    (folder / name).write_bytes(table if isinstance(table, bytes) else table.encode())
    table_map = read_map(str(write_map(folder, text)), constants)
    return import_tables([folder / name], table_map, results=results or folder / "results")


def stored(
    folder: Path,
    table: str | bytes,
    text: str = MAP,
    *,
    name: str = "runs.csv",
    constants: Sequence[str] = (),
) -> pd.DataFrame:
    """Results of a folder after the import of such a table."""
    imported(folder, table, text, name=name, constants=constants)
    return dtsweep.load(folder / "results")
