"""Reads tables, translates their rows, and stores those that are new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.foreign_tables.identify import STORED_COLUMNS, identified, new_attempts
from dtsweep.foreign_tables.map_file import SOURCE, Map, bound
from dtsweep.foreign_tables.ray_tune import REPORTS, rows_of_experiment
from dtsweep.foreign_tables.table import MOST_ROWS, MOST_TEXT, Record, rows_of_file
from dtsweep.foreign_tables.translate import UNKNOWN_MODE, Translated, translated
from dtsweep.provenance.versions import versions
from dtsweep.results.pack import unmeasured_files
from dtsweep.results.schema import IMPORTED
from dtsweep.results.store import Results
from dtsweep.sweep.modes import MODES

_ROWS_OF_A_FILE = 5_000


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Counts of an import."""

    source: str
    """Name of the environment."""

    rows: int
    """Rows of the tables."""

    kept: int
    """Rows that are results of the status that their table gives."""

    flagged: Mapping[str, Sequence[str]]
    """Places of rows whose numbers can't all be true, by what is wrong: stored, not used."""

    skipped: Mapping[str, Sequence[str]]
    """Places of rows that are not stored, by the reason."""

    added: int
    """Attempts that were stored; the others were there."""

    replaced: int
    """Those of them that replace an earlier import of the row."""

    points: int
    """Points of the rows that were kept."""


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
        tables: files of CSV, Parquet or JSON lines, or folders of Ray Tune. They are of one
            environment.
        table_map: which of their columns give which of results.
        results: folder or URI of the results.
        say: takes lines for the user: on sync modes that are not known, and while another run
            holds the place.

    Raises:
        SweepError: a table or a cell can't be read.
        StorageError: the results can't be written.
    """
    source = str(table_map.constants.get(SOURCE) or _source_of(Path(tables[0])))
    kept: list[Translated] = []
    skipped: dict[str, list[str]] = {}
    count = 0
    for outcome, place in _translated_rows(tables, table_map, workload=source):
        count += 1
        if isinstance(outcome, str):
            skipped.setdefault(outcome, []).append(place)
        else:
            kept.append(outcome)
    _say_unknown_modes(kept, say)
    flagged: dict[str, list[str]] = {}
    for row in kept:
        if row.contradiction is not None:
            flagged.setdefault(row.contradiction, []).append(row.place)
    named = identified(kept, source=source)
    version = {"dtsweep_version": versions()["dtsweep_version"]}
    trials = [
        {**trial, **_fixed_columns(row), **version} for trial, row in zip(named, kept, strict=True)
    ]
    store = Results(results)
    with store.leased(say):
        added = _store(store, trials)
    return Imported(
        source=source,
        rows=count,
        kept=len(kept) - sum(map(len, flagged.values())),
        flagged=flagged,
        skipped=skipped,
        added=len(added),
        replaced=sum(trial["attempt"] > 1 for trial in added),
        points=len({trial["point_id"] for trial in trials if trial["implausible"] is None}),
    )


def _say_unknown_modes(rows: Iterable[Translated], say: Callable[[str], None]) -> None:
    """Say of which sync modes dtsweep does not know the semantics."""
    modes = {row.values["sync"] for row in rows if row.values["semantics"] == "unknown"}
    for mode in sorted(modes - {UNKNOWN_MODE}):
        hint = did_you_mean(mode, MODES)
        say(
            f"dtsweep has no sync mode {quoted(mode)}, so the semantics of its rows are unknown; "
            f"give them, as --set semantics=exact, or another mode; {hint}"
        )


def _source_of(table: Path) -> str:
    """Name of the folder that a table lies in, of an experiment its own; never a home folder's."""
    table = table.resolve()
    folder = table if table.is_dir() else table.parent
    if table.name == REPORTS:
        folder = table.parent.parent
    if folder in (Path.home(), Path(folder.anchor)):
        return table.stem
    return folder.name


def _translated_rows(
    tables: Sequence[str | Path], table_map: Map, *, workload: str
) -> Iterator[tuple[Translated | str, str]]:
    """Yield each row, or why it is left out, with its place."""
    rows_left, text_left = MOST_ROWS, MOST_TEXT
    for table in tables:
        records, characters = _records(Path(table), rows_left, text_left)
        rows_left -= len(records)
        text_left -= characters
        columns = dict.fromkeys(name for record in records for name in record.values)
        table_bound = bound(table_map, columns)
        for record in records:
            yield translated(record, table_bound, workload=workload), record.place


def _records(table: Path, most: int, most_text: int) -> tuple[list[Record], int]:
    """Rows of a table or an experiment, and the number of characters in their cells.

    Raises:
        SweepError: there is none, or too many.
    """
    if table.name == REPORTS:
        table = table.parent
    if not table.exists():
        raise SweepError(f"table {str(table)!r} does not exist")
    if not table.is_dir() and not table.is_file():
        raise SweepError(f"table {str(table)!r} is not a file, nor a folder of Ray Tune")
    rows = rows_of_experiment(table) if table.is_dir() else rows_of_file(table)
    records: list[Record] = []
    characters = 0
    for record in rows:
        if len(records) == most:
            raise SweepError(
                f"an import reads at most {MOST_ROWS:,} rows, and {str(table)!r} has more; split "
                "it into files of different names, and import one after the other"
            )
        characters += sum(len(cell) for cell in record.values.values() if isinstance(cell, str))
        if characters > most_text:
            raise SweepError(
                f"an import reads at most {MOST_TEXT:,} characters, and {str(table)!r} has more; "
                "split it into files of different names, and import one after the other"
            )
        records.append(record)
    if not records:
        raise SweepError(f"table {str(table)!r} has no rows")
    return records, characters


def _fixed_columns(row: Translated) -> dict[str, Any]:
    """Columns that do not come from the map."""
    columns: dict[str, Any] = {
        "harness": IMPORTED,
        "role": "trial",
        "imported_from": row.place,
        "implausible": row.contradiction,
        "flags": [],
    }
    if row.contradiction is not None:
        columns |= {
            "status": "skipped",
            "reason": "its numbers can't all be true: see the column implausible",
            "flags": ["implausible"],
        }
    if row.values["workers"] > 1 and row.values.get("comm_share") is None:
        columns["comm_reason"] = "the imported table says nothing of the exchange"
    return columns


def _store(store: Results, trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Store the rows that are new; returns them."""
    stored = store.attempts(STORED_COLUMNS)
    earlier = [row for row in stored if row["harness"] == IMPORTED]
    new = new_attempts(trials, earlier)
    number = max((row["row_number"] or 0 for row in stored), default=0)
    types = _workload_types(new)
    _check_types(store, types)
    for begin in range(0, len(new), _ROWS_OF_A_FILE):
        rows = [
            {**_with_text(trial, types), "row_number": number + begin + place}
            for place, trial in enumerate(new[begin : begin + _ROWS_OF_A_FILE], start=1)
        ]
        store.write(unmeasured_files(rows, workload_types=types))
    return new


def _check_types(store: Results, types: Mapping[str, type]) -> None:
    """Refuse a setting that is text here and a number in the results, or the reverse."""
    import pyarrow as pa

    schema = store.trials({"trial_id"}).schema
    for name, kind in types.items():
        place = schema.get_field_index(f"workload_{name}")
        if place >= 0 and (kind is str) != pa.types.is_string(schema.field(place).type):
            raise SweepError(
                f"setting {quoted(name)} is {kind.__name__} in the tables, and "
                f"{schema.field(place).type} in {store}; rename it in [settings] of the map"
            )


def _workload_types(trials: Iterable[Mapping[str, Any]]) -> dict[str, type]:
    """Type of each setting of the table's own that has a value: text where it has several."""
    types: dict[str, set[type]] = {}
    for trial in trials:
        for name, value in trial.items():
            if name.startswith("workload_") and value is not None:
                types.setdefault(name.removeprefix("workload_"), set()).add(type(value))
    return {name: _common(kinds) for name, kinds in types.items()}


def _common(kinds: set[type]) -> type:
    if kinds == {int}:
        return int
    if kinds <= {int, float}:
        return float
    if kinds == {bool}:
        return bool
    return str


def _with_text(trial: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """Row whose settings have the type of their column."""
    row = dict(trial)
    for name, kind in types.items():
        value = row.get(f"workload_{name}")
        if kind is str and value is not None:
            row[f"workload_{name}"] = str(value)
    return row
