"""Results: three Parquet data sets, written by the driver alone.

An attempt's row of `trials` is written last and commits it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dtsweep.errors import one_line
from dtsweep.results import run_record
from dtsweep.results.compaction import Compaction
from dtsweep.results.lease import LiveRun, holder, leased
from dtsweep.results.local_files import OddFileError
from dtsweep.results.pack import attempt_files
from dtsweep.results.parquet import is_always_read
from dtsweep.results.run_record import RunRecord, StoredRun
from dtsweep.results.storage import Storage, StoredFile
from dtsweep.results.table_files import READERS, TableFiles

SCATTERED_FROM = 64
"""Commits after which their files are merged: so many are left after a kill."""

ORDER = ["row_number", "started_at"]
"""Columns by which rows are ordered from the oldest: clocks of machines differ, numbers don't."""

MOST_NAMED = 10
"""Files left out that are named; further ones are counted."""


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
        self._files = TableFiles(self._folder, keeps_rows=keeps_files)
        self._compaction = Compaction(self._files)
        self._since_compaction = 0
        self._ended_runs: dict[str, RunRecord] = {}
        """Records of runs that have ended, by name of the file."""
        self._read_once: dict[str, Any] | None = None
        """Trials and records of runs that a snapshot has read; None where each read looks again."""

    def snapshot(self) -> Results:
        """Open the same place for one look: its trials and records of runs are read once."""
        results = copy.copy(self)
        results._read_once = {}
        return results

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
        if self._read_once is None:
            return self._stored_runs()
        if "runs" not in self._read_once:
            self._read_once["runs"] = self._stored_runs()
        return list(self._read_once["runs"])

    def _stored_runs(self) -> list[StoredRun]:
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
            self._files.damaged[f"{run_record.FOLDER}/{name}"] = one_line(str(error))
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
        return sorted({**self._folder.odd, **self._files.damaged}.items())

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
        return [rows[index] for index in in_order(trials)]

    def trials(self, columns: Collection[str]) -> Any:
        """Read some columns of `trials` as an Arrow table, in the order of their `row_number`.

        Args:
            columns: names to read, in addition to `attempt_id` and the fields of workloads. Those
                that no row has are null, or missing where the schema does not have them.
        """
        trials = self._rows("trials", {*columns, "row_number", "started_at"})
        return trials.take(pa.array(in_order(trials), pa.int64()))

    def _rows(self, table: str, columns: Collection[str] | None = None) -> Any:
        """Read all rows of a table, those of commits under way among them."""
        if self._read_once is None or table != "trials":
            return self._files.rows(table, columns)
        if table not in self._read_once:
            self._read_once[table] = self._files.rows(table)
        rows = self._read_once[table]
        if columns is None:
            return rows
        names = rows.column_names
        return rows.select([n for n in names if n in columns or is_always_read(n, table)])

    def compact(self) -> None:
        """Merge many small files of each table into few, as `Compaction` does.

        Raises:
            StorageError: A file can't be read or written; nothing is lost, and the next compaction
                goes on.
        """
        self._since_compaction = 0
        self._compaction.run()


def in_order(trials: Any) -> list[int]:
    """Indices of the rows from the oldest, by their number; clocks of machines differ.

    Where two runs measured at once and gave the same numbers, the start decides.
    """
    numbers = trials["row_number"].to_pylist()
    starts = trials["started_at"].cast(pa.int64()).to_pylist()
    keys = [(number or 0, start or 0) for number, start in zip(numbers, starts, strict=True)]
    return sorted(range(len(starts)), key=keys.__getitem__)
