"""Tables of other tools, and their import."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import dtsweep
from dtsweep.foreign_tables import store_table

NO_NAMES: Mapping[str, str] = {}

ROW: dict[str, Any] = {
    **{"workers": 2, "micro_batch": 8, "accumulation": 1, "step_mean_s": 0.1, "sync": "ddp"},
    "workload": "cnn",
}


def imported(
    folder: Path,
    rows: Sequence[Mapping[str, Any]] | str | bytes,
    *,
    name: str = "runs.csv",
    names: Mapping[str, str] = NO_NAMES,
    results: Path | None = None,
) -> list[str]:
    """Import a table of these rows, or of this text; the lines for the user."""
    data = rows
    if not isinstance(rows, str | bytes):
        data = "\n".join(json.dumps(row) for row in rows)
        if name.endswith(".csv"):
            data = pd.DataFrame(rows).to_csv(index=False)
    (folder / name).write_bytes(data if isinstance(data, bytes) else str(data).encode())
    return store_table(folder / name, names, results=results or folder / "results")


def stored(folder: Path, rows: Sequence[Mapping[str, Any]] | str, **options: Any) -> pd.DataFrame:
    """Results of a folder after the import of such a table."""
    imported(folder, rows, **options)
    return dtsweep.load(folder / "results")
