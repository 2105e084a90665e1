"""Results: three Parquet data sets, written by the driver alone.

An attempt's row of `trials` is written last and commits it.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from dtsweep.errors import StorageError, SweepError, one_line
from dtsweep.results import run_record
from dtsweep.results.current_attempt import CHOOSING, current_attempts
from dtsweep.results.lease import LiveRun, holder, leased
from dtsweep.results.local_files import OddFileError
from dtsweep.results.merge import batches, merge_files, merged
from dtsweep.results.pack import attempt_files
from dtsweep.results.parquet import (
    MAX_BYTES,
    CorruptPartError,
    arrow_table,
    checked,
    columns_of,
    decode,
    is_name_of_ours,
    replaced_by,
)
from dtsweep.results.run_record import RunRecord, StoredRun
from dtsweep.results.storage import Storage, StoredFile

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

SCATTERED_FROM = 64
"""Commits after which their files are merged: so many are left after a kill."""

ORDER = ["row_number", "started_at"]
"""Columns by which rows are ordered from the oldest: clocks of machines differ, numbers don't."""

READERS = 8
"""Threads that wait for storage."""

MOST_NAMED = 10
"""Files left out that are named; further ones are counted."""

MEMORY_PARTS = 4
"""The rows of a table take at most such a part of the memory; frames of them are copies."""

READ_AHEAD, READ_AHEAD_BYTES = 64, 256 << 20
"""Files whose bytes are held in memory before they are unpacked, and these bytes."""


class Results:
    """Results of a sweep in a folder or an object store.

    Nothing is touched before the first call.
    """

    def __init__(self, where: str | Path, *, keeps_files: bool = False) -> None:
        """Name the place.

        Args:
            where: A folder, or a URI: s3://bucket/folder, with
                ?endpoint_override=HOST:PORT&scheme=http (or AWS_ENDPOINT_URL) for a store that is
                not Amazon's; gs://…; abfs://account@container/folder.
            keeps_files: Keep in memory what was read, so that the next read fetches new files only.
                For one that reads the same columns again and again.
        """
        self._folder = Storage(where)
        self._quarantined: dict[str, str] = {}
        self._since_compaction = 0
        self._clean: set[str] = set()
        """Compacted files that were looked at: nothing that they replace is left."""
        self._keeps_files = keeps_files
        self._kept: dict[Any, dict[str, Any]] = {}
        """Rows of the files that were read last, by table and columns. A file never changes."""
        self._ended_runs: dict[str, RunRecord] = {}
        """Records of runs that have ended, by name of the file."""

    def __str__(self) -> str:
        """Give the place of the results, without credentials."""
        return self._folder.shown

    @property
    def identity(self) -> str:
        """A name of the place, the same in every process."""
        return self._folder.identity

    def leased(
        self, say: Callable[[str], None], *, run_id: str | None = None
    ) -> AbstractContextManager[None]:
        """Hold the lease on the place: no other run measures there meanwhile (`lease.leased`)."""
        return leased(self._folder, say, run_id=run_id)

    def holder(self) -> LiveRun | None:
        """The run that holds the lease on the place; None without one."""
        return holder(self._folder)

    def run_records(self) -> list[StoredRun]:
        """Read the records of all runs, those that began first at first.

        What is not a record is among `quarantined`.
        """
        ages = self._folder.ages(run_record.FOLDER)
        names = sorted(name for name in ages if name.endswith(run_record.SUFFIX))
        with ThreadPoolExecutor(READERS) as pool:
            records = zip(names, pool.map(self._run_record, names), strict=True)
            runs = [StoredRun(record, ages[name]) for name, record in records if record is not None]
        return sorted(runs, key=lambda run: run.record.started_at)

    def _run_record(self, name: str) -> RunRecord | None:
        """Read the record of a run, once if the run has ended; None if it is gone or none."""
        if name in self._ended_runs:
            return self._ended_runs[name]
        try:
            record = RunRecord.from_json(self._folder.read(run_record.FOLDER, name))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError, OddFileError) as error:
            self._quarantined[f"{run_record.FOLDER}/{name}"] = one_line(str(error))
            return None
        if record.ended_at is not None:
            self._ended_runs[name] = record
        return record

    def reach(self) -> None:
        """Wait until the place answers.

        Raises:
            StorageError: it does not answer in time, or refuses.
        """
        self._folder.reach()

    @property
    def quarantined(self) -> list[tuple[str, str]]:
        """Files that were left out of what was read so far, each with the reason."""
        return sorted({**self._folder.odd, **self._quarantined}.items())

    def left_out(self, *, known: Collection[tuple[str, str]] = ()) -> list[str]:
        """Describe the files of `quarantined`, a line each; of many the last line has the count.

        Args:
            known: files of `quarantined` that were described before.
        """
        files = [file for file in self.quarantined if file not in known]
        lines = [
            f"{self}/{one_line(name)} is left out: {reason}" for name, reason in files[:MOST_NAMED]
        ]
        if len(files) > MOST_NAMED:
            lines.append(f"{len(files) - MOST_NAMED:,} more files of {self} are left out")
        return lines

    def commit(
        self,
        trial: Mapping[str, Any],
        *,
        ranks: Sequence[Mapping[str, Any]] = (),
        steps: Mapping[str, Any] | None = None,
        workload_types: Mapping[str, type] = MappingProxyType({}),
    ) -> None:
        """Store one attempt, as `attempt_files` packs it.

        Readers see it once all of it is stored. A repeated call changes nothing.

        Raises:
            StorageError: Nothing was committed; the call can be repeated.
            ValueError: A column or status is unknown, or a value does not fit its column.
        """
        self.write(attempt_files(trial, ranks=ranks, steps=steps, workload_types=workload_types))

    def write(self, files: Iterable[StoredFile]) -> None:
        """Store files, one after the other; a repeated call changes nothing.

        Raises:
            StorageError: Not all of them were stored; the call can be repeated.
        """
        for file in files:
            self._folder.write(file)
            if file.folder == "trials":
                self._since_compaction += 1

    @property
    def is_scattered(self) -> bool:
        """True if enough was committed since the last compaction to be worth another one."""
        return self._since_compaction >= SCATTERED_FROM

    def try_writing(self) -> None:
        """Write something and delete it again, before anything is measured for nothing.

        Raises:
            StorageError: the place can't be written to.
        """
        self._folder.try_writing("trials")

    def table(self, name: str, *, attempts: Collection[str] | None = None) -> Any:
        """Read committed rows of `trials`, `ranks` or `steps` as an Arrow table.

        Args:
            name: of the table.
            attempts: Whose rows; all where nothing is said.

        Raises:
            StorageError: The place can't be read, or a newer dtsweep wrote to it.
        """
        trials = self._rows("trials")
        if attempts is not None:
            trials = trials.filter(
                pc.is_in(trials["attempt_id"], value_set=pa.array(sorted(attempts), pa.string()))
            )
        if name == "trials":
            return trials
        rows = self._rows(name)
        return rows.filter(
            pc.is_in(rows["attempt_id"], value_set=trials["attempt_id"].combine_chunks())
        )

    def state(self) -> tuple[tuple[str, int], ...]:
        """Files of `trials` with their bytes: another value once there are new rows.

        Empty if nothing is stored yet.

        Raises:
            StorageError: The place can't be read.
        """
        return tuple(self._folder.sizes("trials").items())

    def distinct(self, table: str, column: str) -> list[str]:
        """Read the different texts of a column of text; nothing else is unpacked.

        Raises:
            StorageError: The place can't be read, or a newer dtsweep wrote to it.
        """
        texts: list[str | None] = pc.unique(self._rows(table, {column})[column]).to_pylist()
        return [text for text in texts if text is not None]

    def files(self, table: str) -> int:
        """Count the files of a table."""
        return len(self._folder.sizes(table))

    def attempts(self, columns: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Read rows of `trials` without their `started_at`, in the order of their `row_number`.

        Empty if nothing is stored yet.

        Args:
            columns: names to read, in addition to `attempt_id` and the fields of workloads. All by
                default.
        """
        trials = self._rows("trials", columns and {*columns, "row_number", "started_at"})
        # Arrow imports pandas to make times, as it does in pa.array(…): a plan should not wait for
        # that.
        rows: list[dict[str, Any]] = trials.drop_columns(["started_at"]).to_pylist()
        return [rows[index] for index in _in_order(trials)]

    def trials(self, columns: Collection[str]) -> Any:
        """Read some columns of `trials` as an Arrow table, in the order of their `row_number`.

        Args:
            columns: names to read, in addition to `attempt_id` and the fields of workloads. Those
                that no row has are null, or missing where the schema does not have them.
        """
        trials = self._rows("trials", {*columns, "row_number", "started_at"})
        return trials.take(pa.array(_in_order(trials), pa.int64()))

    def compact(self) -> None:
        """Merge many small files of each table into few.

        Readers see the same rows at every moment. The work grows with what was stored since the
        last compaction, not with all that is stored (`merge.batches`).

        Raises:
            StorageError: A file can't be read or written; nothing is lost, and the next compaction
                goes on.
        """
        self._since_compaction = 0
        for table in ("steps", "ranks", "trials"):
            self._drop_replaced(table)
            # Rows without a trial row are merged too: they may be of a commit that is under way.
            while any(self._merge_batch(table, names) for names in batches(self._mergeable(table))):
                continue

    def _mergeable(self, table: str) -> dict[str, int]:
        """The files of a table, with their bytes, less those that were left out."""
        sizes = self._folder.sizes(table)
        return {
            name: size for name, size in sizes.items() if f"{table}/{name}" not in self._quarantined
        }

    def _merge_batch(self, table: str, names: Sequence[str]) -> bool:
        """Replace these files with one; False if there was nothing to merge."""
        with ThreadPoolExecutor(READERS) as pool:
            checked = dict(
                zip(names, pool.map(lambda name: self._valid(table, name), names), strict=True)
            )
            files = {name: file for name, file in checked.items() if file is not None}
            if len(files) < 2:
                return False
            try:
                name, data = merge_files(table, files)
            except pa.ArrowInvalid:
                # A number is too large for the type that another file has made of its column, or
                # the rows are too many for one file.
                return False
            self._folder.write(StoredFile(table, name, data))
            with suppress(FileNotFoundError):  # another process has merged it further
                # An answer that was cut may have a wrong size, which nothing else shows.
                reads = 1 if self._folder.is_local else 2
                if all(self._folder.read(table, name) != data for _ in range(reads)):
                    raise StorageError(
                        f"{self}/{table}/{name} came back changed; nothing was deleted"
                    )
            [*pool.map(lambda old: self._folder.delete(table, old), files)]
        return True

    def _valid(self, table: str, name: str) -> Any:
        """Open a file; None if it is not valid, or gone because another process has merged it."""
        with suppress(FileNotFoundError):
            data = self._bytes_of(table, name)
            return self._unless_corrupt(table, name, data, partial(checked, name=name, table=table))
        return None

    def _drop_replaced(self, table: str) -> None:
        """Delete files that a killed compaction had merged and not yet deleted."""
        sizes = self._folder.sizes(table)
        for name in set(_compacted(sizes)) - self._clean:
            schema = self._folder.footer(table, name)
            try:
                if schema is None:
                    leftovers = set()
                else:
                    leftovers = replaced_by(schema) & sizes.keys()
            except ValueError:  # damaged: readers leave the file out
                continue
            # Only a file that is whole may take the place of others.
            if not leftovers or self._valid(table, name) is not None:
                for leftover in leftovers:
                    self._folder.delete(table, leftover)
                self._clean.add(name)

    def _rows(self, table: str, columns: Collection[str] | None = None) -> Any:
        """Read all rows of a table, those of commits under way among them."""
        for _ in range(100):
            sizes = self._folder.sizes(table)
            try:
                rows = self._rows_of(table, sizes, columns)
            except FileNotFoundError:  # compacted by another process since it was listed
                continue
            # A listing takes time: it can miss both a compacted file, not yet there, and its parts,
            # just deleted.
            if _compacted(sizes) == _compacted(self._folder.sizes(table)):
                return rows
        raise StorageError(
            f"files in {self}/{table} vanish while they are read; is something deleting them?"
        )

    def _rows_of(
        self, table: str, sizes: Mapping[str, int], columns: Collection[str] | None
    ) -> Any:
        kept = self._kept_rows(table, columns)
        for name in kept.keys() - set(sizes):  # merged into another file
            del kept[name]
        first = {name: sizes[name] for name in _compacted(sizes)}
        account = _Account(self, table)
        compacted = dict(account.of(self._decoded(table, first, columns)))
        replaced = {name for rows in compacted.values() for name in replaced_by(rows.schema)}
        live = [rows for name, rows in compacted.items() if name not in replaced]
        rest = {name: sizes[name] for name in sorted(set(sizes) - compacted.keys() - replaced)}
        parts = account.of(self._decoded(table, rest, columns))
        return merged(table, itertools.chain(live, (rows for _, rows in parts)))

    def _decoded(
        self, table: str, names: Mapping[str, int], columns: Collection[str] | None
    ) -> Iterator[tuple[str, Any]]:
        """Read some files at a time, and unpack them one after the other.

        Threads that unpack small files are slower.

        Args:
            table: whose files they are.
            names: of the files, with their bytes.
            columns: as `decode` takes them.
        """
        kept = self._kept_rows(table, columns)
        yield from ((name, kept[name]) for name in names if name in kept)
        new = {name: names[name] for name in names if name not in kept}
        with ThreadPoolExecutor(READERS) as pool:
            for batch in _read_ahead(new):
                for name, data in zip(
                    batch, pool.map(partial(self._bytes_of, table), batch), strict=True
                ):
                    unpack = partial(decode, name=name, table=table, columns=columns)
                    if (rows := self._unless_corrupt(table, name, data, unpack)) is not None:
                        if self._keeps_files:
                            kept[name] = rows
                        yield name, rows

    def _bytes_of(self, table: str, name: str) -> bytes | None:
        """Read a file; None if it is none that dtsweep wrote."""
        try:
            return self._folder.read(table, name)
        except OddFileError as error:
            self._quarantined[f"{table}/{name}"] = str(error)
            return None

    def _kept_rows(self, table: str, columns: Collection[str] | None) -> dict[str, Any]:
        """Rows that were kept, by file."""
        read = None
        if columns is not None:
            read = frozenset(columns)
        return self._kept.setdefault((table, read), {})

    def _unless_corrupt(
        self, table: str, name: str, data: bytes | None, unpack: Callable[[bytes], T]
    ) -> T | None:
        """Unpack a file; None if it was not read or is not valid."""
        if data is None:
            return None
        try:
            return unpack(data)
        except CorruptPartError as error:
            reason = str(error)
        if not self._folder.is_local:
            # An answer that was cut may have a wrong size, which nothing else shows.
            with suppress(OddFileError):
                return unpack(self._folder.read(table, name))
        self._quarantined[f"{table}/{name}"] = reason
        return None


class _Account:
    """Memory that the rows of a table take."""

    def __init__(self, results: Results, table: str) -> None:
        self._words = f"{results}/{table}"
        self._most = max(MAX_BYTES, _memory_bytes() // MEMORY_PARTS)
        self._bytes = 0

    def of(self, files: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
        """Yield rows by name of their file, and add them up.

        Raises:
            StorageError: they take more than `MAX_BYTES`, and than a part of this machine's memory.
        """
        for name, rows in files:
            self._bytes += rows.nbytes  # type: ignore[attr-defined]  # an Arrow table
            if self._bytes > self._most:
                raise StorageError(
                    f"{self._words} unpacks to more than {self._most / 2**30:.3g} GiB, which is "
                    "not read here; read it on a machine with more memory, or move a part of its "
                    "files to another folder"
                )
            yield name, rows


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_ahead(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Divide files into batches that are held in memory before they are unpacked."""
    batch: list[str] = []
    held = 0
    for name, size in sizes.items():
        if batch and (len(batch) == READ_AHEAD or held + size > READ_AHEAD_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(name)
        held += size
    if batch:
        yield batch


def damage_of(store: Results) -> str | None:
    """Say which file of `trials` has changed since dtsweep wrote it, and the way out; or None."""
    for name, reason in store.quarantined:
        if name.startswith("trials/") and is_name_of_ours(name.partition("/")[2]):
            return (
                f"results in {store} are damaged: {one_line(name)}: {reason}; put that file back "
                "from a copy, or delete it to measure its trials again"
            )
    return None


def attempts_of(results: Results | str | Path) -> pa.Table:
    """Read every attempt, the oldest first, canaries included.

    Warnings and errors are as in `dtsweep.load`.
    """
    stored = _stored(results, "trials")
    return stored.take(pa.array(_in_order(stored), pa.int64()))


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


def steps(results: Results | str | Path) -> pd.DataFrame:
    """Read one row per rank and step of every attempt.

    Types, warnings and errors are as in `dtsweep.load`. Another warning counts the attempts whose
    steps are lost.
    """
    return frame_of(_stored(results, "steps"))


def _stored(results: Results | str | Path, table: str) -> Any:
    if isinstance(results, Results):
        store = results
    else:
        store = Results(results)
    rows = store.table(table)
    for line in store.left_out():
        warnings.warn(line, stacklevel=3)
    if not rows.num_rows and not store.attempts():
        if (damage := damage_of(store)) is not None:
            raise StorageError(damage)
        raise SweepError(nothing_in(store))
    if lost := _without_steps(store, table, rows):
        way_out = "put its files back, or measure them again with --rerun all"
        warnings.warn(
            f"{store}/steps has lost the steps of {lost} attempts; {way_out}", stacklevel=3
        )
    return rows


def nothing_in(store: Results) -> str:
    """Say what a place without results is, and what to do."""
    folder = Path(str(store))
    if folder.is_file():
        return (
            f"{store} is a file; results are a folder, made with: dtsweep run SWEEP.py --results "
            "FOLDER"
        )
    if folder.name in ("trials", "ranks", "steps") and folder.is_dir():
        return f"no results in {store}, a part of some; did you mean {folder.parent}?"
    below = [str(part.parent) for depth in ("*", "*/*") for part in folder.glob(f"{depth}/trials")]
    if below:
        return f"no results in {store}; there are some in {', '.join(sorted(below)[:3])}: name one"
    return f"no results in {store}; make some with: dtsweep run SWEEP.py --results {store}"


def _without_steps(store: Results, table: str, rows: Any) -> int:
    """Count the attempts that were timed and have no steps any more.

    If `table` is `trials`, they are counted only when no file of steps is left. Otherwise all steps
    would have to be read.
    """
    if table == "trials" and store.files("steps"):
        return 0
    if table == "trials":
        trials = rows
    else:
        trials = store.table("trials")
    timed = trials.filter(pc.greater(trials["measured_steps"], 0))["attempt_id"].to_pylist()
    return len(
        set(timed) - set(pc.unique(rows["attempt_id"]).to_pylist() if table == "steps" else ())
    )


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


def _compacted(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("compacted-")]


def _in_order(trials: Any) -> list[int]:
    """Indices of the rows from the oldest, by their number; clocks of machines differ.

    Where two runs measured at once and gave the same numbers, the start decides.
    """
    numbers = trials["row_number"].to_pylist()
    starts = trials["started_at"].cast(pa.int64()).to_pylist()
    keys = [(number or 0, start or 0) for number, start in zip(numbers, starts, strict=True)]
    return sorted(range(len(starts)), key=keys.__getitem__)
