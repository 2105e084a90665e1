"""Reads tables, translates their rows, and stores those that are new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, quoted
from dtsweep.foreign_tables.identify import STORED_COLUMNS, new_attempts, place_of
from dtsweep.foreign_tables.map_file import Map
from dtsweep.foreign_tables.table import MOST_ROWS, read_table
from dtsweep.foreign_tables.translate import SETTING, completed, translated
from dtsweep.provenance.versions import versions
from dtsweep.results.pack import unmeasured_files
from dtsweep.results.schema import IMPORTED
from dtsweep.results.store import Results

if TYPE_CHECKING:
    import pandas as pd

_ROWS_OF_A_FILE = 5_000

_NUMBER_AS_SETTING = (
    r"0|-?[1-9][0-9]{0,14}|-?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]{1,3})?"
    r"|-?[0-9]+[eE][+-][0-9]{1,3}|-?[1-9]e[1-9][0-9]?"
)
"""Texts that are a number as a setting: 0012 is a name, and 77e4321 and 5e00 are commits."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Counts of an import."""

    source: str
    rows: int
    kept: int
    """Rows that are results of the status that their table gives."""

    flagged: Mapping[str, Sequence[str]]
    """Places of rows whose numbers can't all be true, by what is wrong: stored, not used."""

    skipped: Mapping[str, Sequence[str]]
    """Places of rows that are not stored, by the reason."""

    added: int
    replaced: int
    """Rows of `added` that replace an earlier import of their repeat."""

    points: int


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
        tables: files, or folders of Ray Tune. They are of one environment.
        table_map: which of their columns give which of results.
        results: folder or URI of the results.
        say: takes lines for the user, while another run holds the place.

    Raises:
        SweepError: a table or a cell can't be read.
        StorageError: the results can't be written.
    """
    import pandas as pd

    source = str(table_map.constants.get("source") or _source_of(Path(tables[0])))
    read = [read_table(Path(table), table_map.read) for table in tables]
    count = sum(map(len, read))
    if count > MOST_ROWS:
        raise SweepError(f"the tables have more than {MOST_ROWS:,} rows; split them into parts")
    store = Results(results)
    frame, types = _typed(pd.concat([translated(table, table_map) for table in read]), store)
    rows = []
    flagged: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    for place, cells in zip(frame.index, frame.to_dict("records"), strict=True):
        row = {"workload": source, "imported_from": place}
        row |= {str(name): cell for name, cell in cells.items() if pd.notna(cell)}
        reason = completed(row)
        if reason is not None:
            skipped.setdefault(reason, []).append(place)
            continue
        rows.append(row)
        if "implausible" in row:
            flagged.setdefault(row["implausible"], []).append(place)
    with store.leased(say):
        added = _store(store, rows, types, source=source)
    kept = [row for row in rows if "implausible" not in row]
    return Imported(
        source=source,
        rows=count,
        kept=len(kept),
        flagged=flagged,
        skipped=skipped,
        added=len(added),
        replaced=sum(trial["attempt"] > 1 for trial in added),
        points=len({place_of(row, source)[0] for row in kept}),
    )


def _source_of(table: Path) -> str:
    """Name of the folder that a table lies in, of an experiment its own; never a home folder's."""
    table = table.resolve()
    folder = table if table.is_dir() else table.parent
    if folder in (Path.home(), Path(folder.anchor)):
        return table.stem
    return folder.name


def _typed(frame: pd.DataFrame, store: Results) -> tuple[pd.DataFrame, dict[str, type]]:
    """Frame whose settings are numbers where all values of a column are, and their types.

    Raises:
        SweepError: a setting is text here and a number in the results.
    """
    import pyarrow as pa

    schema = store.trials({"trial_id"}).schema
    stored = dict(zip(schema.names, schema.types, strict=True))
    types: dict[str, type] = {}
    for name in [name for name in frame.columns if name.startswith(SETTING)]:
        cells = frame[name].dropna().astype("str")
        if cells.empty:
            continue
        setting = name.removeprefix(SETTING)
        types[setting] = str
        frame[name] = frame[name].astype("str")
        is_text = name in stored and pa.types.is_string(stored[name])
        if not is_text and cells.str.fullmatch(_NUMBER_AS_SETTING).all():
            numbers = frame[name].astype("float64")
            types[setting] = float
            frame[name] = numbers
            if (numbers.isna() | ((numbers % 1 == 0) & (numbers.abs() < 1 << 53))).all():
                types[setting] = int
                frame[name] = numbers.astype("Int64")
        elif name in stored and not is_text:
            raise SweepError(
                f"setting {quoted(setting)} is text in the tables, and {stored[name]} in {store}; "
                "rename it in [settings] of the map"
            )
    return frame, types


def _store(
    store: Results, rows: Iterable[dict[str, Any]], types: Mapping[str, type], *, source: str
) -> list[dict[str, Any]]:
    """Store the rows that are new; returns them."""
    stored = store.attempts(STORED_COLUMNS)
    earlier = [row for row in stored if row["harness"] == IMPORTED]
    new = new_attempts(rows, earlier, source=source)
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
    for begin in range(0, len(new), _ROWS_OF_A_FILE):
        part = new[begin : begin + _ROWS_OF_A_FILE]
        store.write(unmeasured_files(part, workload_types=types))
    return new
