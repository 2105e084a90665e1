"""Results: three Parquet data sets, written by the driver alone.

An attempt's row of `trials` is written last and commits it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dtsweep.errors import one_line
from dtsweep.results import run_record
from dtsweep.results.compaction import Compaction
from dtsweep.results.local_files import OddFileError
from dtsweep.results.merge import of_attempts
from dtsweep.results.pack import attempt_files
from dtsweep.results.parquet import is_always_read
from dtsweep.results.run_record import RunRecord, StoredRun
from dtsweep.results.storage import Storage, StoredFile
from dtsweep.results.table_files import READERS, TableFiles

SCATTERED_FROM = 64
"""Commits after which their files are merged: so many are left after a kill."""

ORDER = ["row_number", "started_at"]
"""Columns by which rows are ordered from the oldest: clocks of machines differ, numbers don't."""

_MOST_NAMED = 10
"""Files left out that are named; further ones are counted."""


class Results:
    """Results of a sweep in a folder or an object store.

    Nothing is touched before the first call.
    """

    def __init__(self, where: str | Path) -> None:
        """Name the place.

        Args:
            where: A folder, or a URI: s3://bucket/folder, with
                ?endpoint_override=HOST:PORT&scheme=http (or AWS_ENDPOINT_URL) for a store that is
                not Amazon's; gs://…; abfs://account@container/folder.
        """
        self.storage = Storage(where)
        """The place itself: whether it answers, its lease, its name."""
        self._files = TableFiles(self.storage)
        self._compaction = Compaction(self._files)
        self._since_compaction = 0
        self._read_once: dict[str, Any] | None = None
        """Trials and records of runs that a snapshot has read; None where each read looks again."""

    def snapshot(self) -> Results:
        """Open the same place for one look: its trials and records of runs are read once."""
        results = copy.copy(self)
        results._read_once = {}
        return results

    def __str__(self) -> str:
        """Give the place of the results, without credentials."""
        return self.storage.shown

    def run_records(self) -> list[StoredRun]:
        """Read the records of all runs, those that began first at first.

        What is not a record is among `quarantined`.
        """
        runs: list[StoredRun] = self._once("runs", self._stored_runs)
        return runs

    def _once(self, name: str, read: Callable[[], Any]) -> Any:
        """Read something, in a snapshot once."""
        if self._read_once is None:
            return read()
        if name not in self._read_once:
            self._read_once[name] = read()
        return self._read_once[name]

    def _stored_runs(self) -> list[StoredRun]:
        ages = self.storage.ages(run_record.FOLDER)
        names = sorted(name for name in ages if name.endswith(run_record.SUFFIX))
        with ThreadPoolExecutor(READERS) as pool:
            records = zip(names, pool.map(self._run_record, names), strict=True)
            runs = [StoredRun(record, ages[name]) for name, record in records if record is not None]
        return sorted(runs, key=lambda run: run.record.started_at)

    def _run_record(self, name: str) -> RunRecord | None:
        """Read the record of a run; None if it is gone or none."""
        try:
            return RunRecord.from_json(self.storage.read(run_record.FOLDER, name))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError, OddFileError) as error:
            self._files.damaged[f"{run_record.FOLDER}/{name}"] = one_line(str(error))
            return None

    @property
    def quarantined(self) -> list[tuple[str, str]]:
        """Files that were left out of what was read so far, each with the reason."""
        return sorted({**self.storage.odd, **self._files.damaged}.items())

    def left_out(self, *, known: Collection[tuple[str, str]] = ()) -> list[str]:
        """Describe the files of `quarantined`, a line each; of many the last line has the count.

        Args:
            known: files of `quarantined` that were described before.
        """
        files = [file for file in self.quarantined if file not in known]
        lines = [
            f"{self}/{one_line(name)} is left out: {reason}" for name, reason in files[:_MOST_NAMED]
        ]
        if len(files) > _MOST_NAMED:
            lines.append(f"{len(files) - _MOST_NAMED:,} more files of {self} are left out")
        return lines

    def commit(
        self,
        trial: Mapping[str, Any],
        *,
        ranks: Sequence[Mapping[str, Any]] = (),
        steps: Mapping[str, Any] | None = None,
        curves: Sequence[Mapping[str, Any]] = (),
        workload_types: Mapping[str, type] = MappingProxyType({}),
    ) -> None:
        """Store one attempt, as `attempt_files` packs it.

        Readers see it once all of it is stored. A repeated call changes nothing.

        Raises:
            StorageError: Nothing was committed; the call can be repeated.
            ValueError: A column or status is unknown, or a value does not fit its column.
        """
        self.write(
            attempt_files(
                trial, ranks=ranks, steps=steps, curves=curves, workload_types=workload_types
            )
        )

    def write(self, files: Iterable[StoredFile]) -> None:
        """Store files, one after the other; a repeated call changes nothing.

        Raises:
            StorageError: Not all of them were stored; the call can be repeated.
        """
        for file in files:
            self.storage.write(file)
            if file.folder == "trials":
                self._since_compaction += 1

    @property
    def is_scattered(self) -> bool:
        """True if enough was committed since the last compaction to be worth another one."""
        return self._since_compaction >= SCATTERED_FROM

    def table(self, name: str, *, attempts: Collection[str] | None = None) -> Any:
        """Read committed rows of a data set as an Arrow table.

        Args:
            name: of the table.
            attempts: Whose rows; all where nothing is said.

        Raises:
            StorageError: The place can't be read, or a newer dtsweep wrote to it.
        """
        trials = self._rows("trials")
        if attempts is not None:
            trials = of_attempts(trials, attempts)
        if name == "trials":
            return trials
        rows = self._rows(name)
        return rows.filter(
            pc.is_in(rows["attempt_id"], value_set=trials["attempt_id"].combine_chunks())
        )

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

    def _rows(self, table: str, columns: Collection[str] | None = None) -> Any:
        """Read all rows of a table, those of commits under way among them."""
        if self._read_once is None or table != "trials":
            return self._files.rows(table, columns)
        rows = self._once(table, lambda: self._files.rows(table))
        if columns is None:
            return rows
        read = [
            name for name in rows.column_names if name in columns or is_always_read(name, table)
        ]
        return rows.select(read)

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
