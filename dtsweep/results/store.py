"""Results: three Parquet data sets, written by the driver alone; a trial's row is written last and is its commit."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dtsweep.errors import StorageError, SweepError
from dtsweep.results.parquet import (
    MAX_BYTES,
    REPLACES,
    CorruptPartError,
    arrow_table,
    columns_of,
    decode,
    encode,
    replaced_by,
)
from dtsweep.results.standing import standing
from dtsweep.results.statuses import STATUSES
from dtsweep.results.storage import Storage

if TYPE_CHECKING:
    import pandas as pd


class Results:
    """The results of a sweep in a folder or an object store; nothing is touched before the first call."""

    def __init__(self, where: str | Path) -> None:
        """Name the place.

        Args:
            where: A folder, or a URI: s3://bucket/folder, with ?endpoint_override=HOST:PORT&scheme=http (or
                AWS_ENDPOINT_URL) for a store that is not Amazon's; gs://….
        """
        self._folder = Storage(where)
        self._quarantined: dict[str, str] = {}

    def __str__(self) -> str:
        """Where they lie, without credentials."""
        return self._folder.shown

    @property
    def quarantined(self) -> list[tuple[str, str]]:
        """Files that were left out of what was read so far, each with the reason."""
        return sorted(self._quarantined.items())

    def commit(
        self,
        trial: Mapping[str, Any],
        *,
        ranks: Sequence[Mapping[str, Any]] = (),
        steps: Mapping[str, Any] | None = None,
        workload_types: Mapping[str, type] = MappingProxyType({}),
    ) -> None:
        """Store one attempt; it exists for readers once all of it is stored. Doing it again changes nothing.

        Args:
            trial: Columns of `trials`, `workload_<field>` among them; those left out are null.
            ranks: One row per worker; `attempt_id` and `trial_id` are filled in.
            steps: Columns of `steps`, arrays of one length; None or left out is a column of nulls.
            workload_types: Type of each scalar workload field (without `workload_`): bool, int, float or str.

        Raises:
            StorageError: Nothing was committed; the call can be repeated.
            ValueError: A column or status is unknown, or a value does not fit its column.
        """
        if trial.get("status") not in STATUSES:
            raise ValueError(f"status {trial.get('status')!r} is none of {sorted(STATUSES)}")
        ids = {name: trial[name] for name in ("attempt_id", "trial_id")}
        step_columns = dict(steps or {"rank": []})
        step_columns |= {name: [value] * len(step_columns["rank"]) for name, value in ids.items()}
        tables = {
            "steps": arrow_table("steps", step_columns),
            "ranks": arrow_table("ranks", columns_of([{**row, **ids} for row in ranks])),
            "trials": arrow_table("trials", columns_of([trial]), workload_types=workload_types),
        }
        for table, rows in tables.items():
            if rows.num_rows:
                self._folder.write(table, *encode(rows, stem=f"part-{ids['attempt_id']}"))

    def try_writing(self) -> None:
        """Write something and delete it again, before anything is measured for nothing.

        Raises:
            StorageError: the place can't be written to.
        """
        self._folder.try_writing("trials")

    def write_log(self, name: str, text: str) -> None:
        """Store the end of a rank's log as logs/<name>.log; `name` is `<session>/<rank>`.

        Raises:
            StorageError: It can't be written.
        """
        folder, _, rank = f"logs/{name}".rpartition("/")
        self._folder.write(folder, f"{rank}.log", text.encode())

    def write_profile(self, name: str, trace: bytes, table: Mapping[str, Any] | None) -> str:
        """Store a profile as profiles/<name>.json.gz, and its table as profiles/<name>.json.

        Args:
            name: `<session>/<trial>-<rank>`.
            trace: a Chrome trace, packed by gzip.
            table: seconds by class, and kernels; None where there is none.

        Returns:
            Where the trace lies.

        Raises:
            StorageError: It can't be written.
        """
        folder, _, file = f"profiles/{name}".rpartition("/")
        self._folder.write(folder, f"{file}.json.gz", trace)
        if table is not None:
            self._folder.write(folder, f"{file}.json", json.dumps(table, indent=2).encode())
        return f"{self}/{folder}/{file}.json.gz"

    def table(self, name: str, *, attempts: Collection[str] | None = None) -> Any:
        """Read committed rows of `trials`, `ranks` or `steps` as an Arrow table.

        Args:
            name: of the table.
            attempts: Whose rows; all where nothing is said.

        Raises:
            StorageError: The place can't be read, or a newer dtsweep wrote to it.
        """
        trials = _merge("trials", self._read("trials")[0].values())
        if attempts is not None:
            trials = trials.filter(pc.is_in(trials["attempt_id"], value_set=pa.array(sorted(attempts), pa.string())))
        if name == "trials":
            return trials
        rows = _merge(name, self._read(name)[0].values())
        return rows.filter(pc.is_in(rows["attempt_id"], value_set=trials["attempt_id"].combine_chunks()))

    def has_files(self, table: str) -> bool:
        """Whether any file of a table is there."""
        return bool(self._folder.names(table))

    def attempts(self) -> list[dict[str, Any]]:
        """Read all rows of `trials` but their `started_at`, the oldest first; none where nothing is stored yet."""
        trials = self.table("trials")
        # Arrow imports pandas to make times, as it does in pa.array(…): a plan should not wait for that.
        rows: list[dict[str, Any]] = trials.drop_columns(["started_at"]).to_pylist()
        return [rows[index] for index in _by_start(trials)]

    def compact(self) -> None:
        """Merge the many small files of each table into one; what readers see stays the same at every moment."""
        for table in ("steps", "ranks", "trials"):
            self._compact(table)

    def _compact(self, table: str) -> None:
        # Rows without a trial row stay too: they may be of a commit that is under way.
        files, replaced = self._read(table)
        if len(files) > 1 and sum(rows.nbytes for rows in files.values()) <= MAX_BYTES:
            rows = _merge(table, files.values())
            metadata = {**rows.schema.metadata, REPLACES: json.dumps(sorted(files)).encode()}
            name, data = encode(rows.replace_schema_metadata(metadata), stem="compacted")
            self._folder.write(table, name, data)
            with suppress(FileNotFoundError):  # another process has compacted it further
                if name not in self._decoded(table, [name]):
                    raise StorageError(f"{self}/{table}/{name} came back changed; nothing was deleted")
            replaced |= files.keys()
        for name in replaced:
            self._folder.delete(table, name)

    def _read(self, table: str) -> tuple[dict[str, Any], set[str]]:
        """Read the valid files of a table by name, and name those that compacted ones replace."""
        for _ in range(100):
            names = self._folder.names(table)
            try:
                found = self._read_listed(table, names)
            except FileNotFoundError:  # compacted by another process since it was listed
                continue
            # A listing takes time: it can miss both a compacted file, not yet there, and its parts, just deleted.
            if _compacted(names) == _compacted(self._folder.names(table)):
                return found
        raise StorageError(f"files in {self}/{table} vanish while they are read; is something deleting them?")

    def _read_listed(self, table: str, names: Sequence[str]) -> tuple[dict[str, Any], set[str]]:
        compacted = self._decoded(table, _compacted(names))
        replaced = {name for rows in compacted.values() for name in replaced_by(rows)}
        parts = self._decoded(table, sorted(set(names) - compacted.keys() - replaced))
        live = {name: rows for name, rows in (compacted | parts).items() if name not in replaced}
        return live, replaced & set(names)

    def _decoded(self, table: str, names: Sequence[str]) -> dict[str, Any]:
        def read(name: str) -> Any:
            try:
                return decode(self._folder.read(table, name), name=name, table=table)
            except CorruptPartError as error:
                self._quarantined[f"{table}/{name}"] = str(error)
                return None

        with ThreadPoolExecutor(8) as pool:
            found = zip(names, pool.map(read, names), strict=True)
            return {name: rows for name, rows in found if rows is not None}


def newest_trials(results: Results | str | Path, *, canaries: bool = False) -> pd.DataFrame:
    """Read one row per trial and harness as it was stored; `dtsweep.load` has the words for it."""
    stored = _stored(results, "trials")
    rows = stored.take(pa.array(_by_start(stored), pa.int64()))
    columns = ["trial_id", "harness", "role", "status", "workload_digest", "sources"]
    attempts = rows.select(columns).to_pylist()
    chosen = list(standing(attempts).values())
    if canaries:
        chosen += [index for index, row in enumerate(attempts) if row["role"] == "canary"]
    return _frame(rows.take(pa.array(sorted(chosen), pa.int64())))


def steps(results: Results | str | Path) -> pd.DataFrame:
    """Read one row per rank and step of every attempt; types, warnings and errors as in `dtsweep.load`.

    A warning also says of how many attempts the steps are gone.
    """
    return _frame(_stored(results, "steps"))


def _stored(results: Results | str | Path, table: str) -> Any:
    store = results if isinstance(results, Results) else Results(results)
    rows = store.table(table)
    for name, reason in store.quarantined:
        warnings.warn(f"{store}/{name} is left out: {reason}", stacklevel=3)
    if not rows.num_rows and not store.attempts():
        raise SweepError(f"no results in {store}; make some with: dtsweep run SWEEP.py --results {store}")
    if gone := _without_steps(store, table, rows):
        way_out = "put its files back, or measure them again with --rerun all"
        warnings.warn(f"{store}/steps has lost the steps of {gone} attempts; {way_out}", stacklevel=3)
    return rows


def _without_steps(store: Results, table: str, rows: Any) -> int:
    """Count the attempts that were timed and have no steps any more.

    With the trials alone that is told only where no file of steps is left: else all of them had to be read.
    """
    if table == "trials" and store.has_files("steps"):
        return 0
    trials = rows if table == "trials" else store.table("trials")
    timed = trials.filter(pc.greater(trials["measured_steps"], 0))["attempt_id"].to_pylist()
    return len(set(timed) - set(pc.unique(rows["attempt_id"]).to_pylist() if table == "steps" else ()))


def _frame(rows: Any) -> pd.DataFrame:
    import pandas as pd

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = rows.to_pandas(types_mapper=nullable.get)
    return frame


def _compacted(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith("compacted-")]


def _by_start(trials: Any) -> list[int]:
    """Number the rows from the oldest; those that never started come first."""
    starts = trials["started_at"].cast(pa.int64()).to_pylist()
    return sorted(range(len(starts)), key=lambda index: starts[index] or 0)


def _merge(table: str, files: Iterable[Any]) -> Any:
    """Join files, whose columns may differ; an attempt that several have counts once.

    A field of the workload that has had another type since (a number, then a number or a list) is text in all rows.
    """
    seen: set[str] = set()
    kept = [arrow_table(table, {})]
    for rows in files:
        attempts = set(pc.unique(rows["attempt_id"]).to_pylist())
        if attempts & seen:
            new = pa.array(sorted(attempts - seen), pa.string())
            kept.append(rows.filter(pc.is_in(rows["attempt_id"], value_set=new)))
        else:
            kept.append(rows)
        seen |= attempts
    try:
        return pa.concat_tables(kept, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.concat_tables([_as_text(rows, _mixed_fields(kept)) for rows in kept], promote_options="permissive")


def _mixed_fields(tables: Iterable[Any]) -> set[str]:
    """Columns of workload fields that have several types."""
    found: dict[str, set[Any]] = {}
    for field in (field for rows in tables for field in rows.schema if field.name.startswith("workload_")):
        found.setdefault(field.name, set()).add(field.type)
    return {name for name, types in found.items() if len(types) > 1}


def _as_text(rows: Any, columns: Set[str]) -> Any:
    for name in columns & set(rows.column_names):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.string()))
    return rows
