"""Reads tables, translates their rows, and stores those that are new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.foreign_tables.identify import STORED_COLUMNS, identified, new_attempts
from dtsweep.foreign_tables.map_file import Map
from dtsweep.foreign_tables.table import MOST_ROWS, REPORTS, read_table, too_large
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
        tables: files of CSV, Parquet or JSON, or folders of Ray Tune. They are of one
            environment.
        table_map: which of their columns give which of results.
        results: folder or URI of the results.
        say: takes lines for the user: on sync modes that are not known, and while another run
            holds the place.

    Raises:
        SweepError: a table or a cell can't be read.
        StorageError: the results can't be written.
    """
    source = str(table_map.constants.get("source") or _source_of(Path(tables[0])))
    kept: list[Translated] = []
    flagged: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    count = 0
    for table in tables:
        frame = read_table(Path(table), table_map.read)
        count += len(frame)
        if count > MOST_ROWS:
            raise too_large(Path(table))
        for place, row in translated(frame, table_map, workload=source):
            if isinstance(row, str):
                skipped.setdefault(row, []).append(place)
                continue
            kept.append(row)
            if row.contradiction is not None:
                flagged.setdefault(row.contradiction, []).append(place)
    _say_unknown_modes(kept, say)
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
    types = _workload_types(store, new)
    for begin in range(0, len(new), _ROWS_OF_A_FILE):
        rows = [
            {**_with_text(trial, types), "row_number": number + begin + place}
            for place, trial in enumerate(new[begin : begin + _ROWS_OF_A_FILE], start=1)
        ]
        store.write(unmeasured_files(rows, workload_types=types))
    return new


def _workload_types(store: Results, trials: Iterable[Mapping[str, Any]]) -> dict[str, type]:
    """Type of each setting of the table's own that has a value: text where it has several.

    Raises:
        SweepError: a setting is text here and a number in the results, or the reverse.
    """
    import pyarrow as pa

    kinds: dict[str, set[type]] = {}
    for trial in trials:
        for name, value in trial.items():
            if name.startswith("workload_") and value is not None:
                kinds.setdefault(name.removeprefix("workload_"), set()).add(type(value))
    common = {frozenset([int]): int, frozenset([float]): float, frozenset([bool]): bool}
    common[frozenset([int, float])] = float
    types = {name: common.get(frozenset(types), str) for name, types in kinds.items()}
    schema = store.trials({"trial_id"}).schema
    for name, kind in types.items():
        place = schema.get_field_index(f"workload_{name}")
        if place >= 0 and (kind is str) != pa.types.is_string(schema.field(place).type):
            raise SweepError(
                f"setting {quoted(name)} is {kind.__name__} in the tables, and "
                f"{schema.field(place).type} in {store}; rename it in [settings] of the map"
            )
    return types


def _with_text(trial: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """Row whose settings have the type of their column."""
    texts = {f"workload_{name}" for name, kind in types.items() if kind is str}
    return {
        name: str(value) if name in texts and value is not None else value
        for name, value in trial.items()
    }
