"""Reads tables, translates their rows, and stores those that are new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, quoted
from dtsweep.foreign_tables.identify import new_trials, point_of
from dtsweep.foreign_tables.map_file import Map
from dtsweep.foreign_tables.table import MOST_ROWS, read_table
from dtsweep.foreign_tables.translate import SETTING, completed, translated
from dtsweep.provenance.versions import versions
from dtsweep.results.lease import leased
from dtsweep.results.pack import unmeasured_files
from dtsweep.results.schema import IMPORTED
from dtsweep.results.store import Results

if TYPE_CHECKING:
    import pandas as pd

_NUMBER_AS_SETTING = (
    r"0|-?[1-9][0-9]{0,14}|-?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]{1,3})?"
    r"|-?[0-9]+[eE][+-][0-9]{1,3}|-?[1-9]e[1-9][0-9]?"
)
"""Texts that are a number as a setting: 0012 is a name, and 77e4321 and 5e00 are commits."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Counts of an import."""

    rows: int
    kept: int
    points: int
    """Points of the rows that are kept."""

    added: int
    """Rows that were not stored before."""

    flagged: Mapping[str, Sequence[str]]
    """Places of rows whose numbers can't all be true, by what is wrong: stored, not used."""

    skipped: Mapping[str, Sequence[str]]
    """Places of rows that are not stored, by the reason."""


def import_tables(
    tables: Sequence[str | Path],
    table_map: Map,
    *,
    results: str | Path,
    say: Callable[[str], None] = print,
) -> Imported:
    """Import tables as results of the harness `imported`.

    All tables are read before anything is stored.

    Args:
        tables: files. They are of one environment.
        table_map: which of their columns give which of results.
        results: folder or URI of the results.
        say: takes lines for the user, while another run holds the place.

    Raises:
        SweepError: a table or a cell can't be read.
        StorageError: the results can't be written.
    """
    import pandas as pd

    source = table_map.constants.get("source", Path(tables[0]).stem)
    table = pd.concat([read_table(Path(table), table_map.read) for table in tables])
    if len(table) > MOST_ROWS:
        raise SweepError(f"the tables have more than {MOST_ROWS:,} rows; split them into parts")
    store = Results(results)
    frame, types = _typed(translated(table, table_map), store)
    rows = []
    flagged: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    for place, cells in zip(frame.index, frame.to_dict("records"), strict=True):
        row = {"workload": source, "imported_from": place, "status": "ok"}
        row |= {str(name): cell for name, cell in cells.items() if pd.notna(cell)}
        reason = completed(row)
        if reason is not None:
            skipped.setdefault(reason, []).append(place)
            continue
        rows.append(row)
        if "implausible" in row:
            flagged.setdefault(row["implausible"], []).append(place)
    with leased(store.storage, say):
        added = _store(store, rows, types, source=source)
    kept = [row for row in rows if "implausible" not in row]
    return Imported(
        rows=len(table),
        kept=len(kept),
        points=len(set(map(point_of, kept))),
        added=added,
        flagged=flagged,
        skipped=skipped,
    )


def _typed(frame: pd.DataFrame, store: Results) -> tuple[pd.DataFrame, dict[str, type]]:
    """Frame whose settings are numbers where all values of a column are, and their types.

    Raises:
        SweepError: a setting is text here and a number in the results.
    """
    schema = store.trials({"trial_id"}).schema
    stored = {name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)}
    types: dict[str, type] = {}
    for name in frame.columns[frame.columns.str.startswith(SETTING)]:
        texts = frame[name].astype("str")
        if texts.isna().all():
            continue
        setting = name.removeprefix(SETTING)
        earlier = stored.get(name, "null")
        is_number = texts.str.fullmatch(_NUMBER_AS_SETTING, na=True).all()
        if not is_number and earlier not in ("null", "string"):
            raise SweepError(
                f"setting {quoted(setting)} is text in the tables, and {earlier} in {store}; "
                "rename it in [settings] of the map"
            )
        types[setting] = str
        frame[name] = texts
        if is_number and earlier != "string":
            types[setting] = float
            frame[name] = texts.astype("float64").convert_dtypes()
            if frame[name].dtype == "Int64":
                types[setting] = int
    return frame, types


def _store(
    store: Results, rows: Sequence[dict[str, Any]], types: Mapping[str, type], *, source: str
) -> int:
    """Store the rows that are new; returns their number."""
    stored = store.attempts({"trial_id", "harness", "row_number", "point_id", "env_id", "hosts"})
    earlier = [row for row in stored if row["harness"] == IMPORTED]
    new = new_trials(rows, earlier, source=source)
    first = max((row["row_number"] or 0 for row in stored), default=0) + 1
    version = versions()["dtsweep_version"]
    for number, row in enumerate(new, start=first):
        row |= {"harness": IMPORTED, "role": "trial", "dtsweep_version": version, "flags": []}
        row["row_number"] = number
        if "implausible" in row:
            reason = "its numbers can't all be true: see the column implausible"
            row |= {"status": "skipped", "reason": reason, "flags": ["implausible"]}
        if row["workers"] > 1 and "comm_share" not in row:
            row["comm_reason"] = "the imported table says nothing of the exchange"
    if new:
        store.write(unmeasured_files(new, workload_types=types))
    return len(new)
