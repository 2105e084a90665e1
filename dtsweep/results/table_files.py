"""Parquet files of the three data sets, read; what is damaged is left out, with the reason."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from dtsweep.errors import StorageError
from dtsweep.results.local_files import OddFileError
from dtsweep.results.merge import merged
from dtsweep.results.parquet import CorruptPartError, checked, decode, replaced_by
from dtsweep.results.storage import Storage

_T = TypeVar("_T")

READERS = 8
"""Threads that wait for storage."""

MAX_BYTES, MEMORY_PARTS = 4 << 30, 4
"""The rows of a table take at most these bytes, or such a part of the memory if that is more.

Frames of them are copies.
"""

READ_AHEAD, READ_AHEAD_BYTES = 64, 256 << 20
"""Files whose bytes are held in memory before they are unpacked, and these bytes."""


class TableFiles:
    """Files of the data sets in one place."""

    def __init__(self, folder: Storage) -> None:
        """Touch nothing yet."""
        self.folder = folder
        self.damaged: dict[str, str] = {}
        """Files that were left out, each with the reason."""

    def rows(self, table: str, columns: Collection[str] | None = None) -> Any:
        """Read all rows of a table, those of commits under way among them.

        Args:
            table: one of `trials`, `ranks`, `steps`.
            columns: as `decode` takes them.
        """
        for _ in range(100):
            sizes = self.folder.sizes(table)
            try:
                rows = self._rows_of(table, sizes, columns)
            except FileNotFoundError:  # compacted by another process since it was listed
                continue
            # A listing takes time: it can miss both a compacted file, not yet there, and its parts,
            # just deleted.
            if compacted(sizes) == compacted(self.folder.sizes(table)):
                return rows
        raise StorageError(
            f"files in {self.folder.shown}/{table} vanish while they are read; is something "
            "deleting them?"
        )

    def _rows_of(
        self, table: str, sizes: Mapping[str, int], columns: Collection[str] | None
    ) -> Any:
        first = {name: sizes[name] for name in compacted(sizes)}
        account = _Account(f"{self.folder.shown}/{table}")
        merged_rows = dict(account.of(self._decoded(table, first, columns)))
        replaced = {name for rows in merged_rows.values() for name in replaced_by(rows.schema)}
        live = [rows for name, rows in merged_rows.items() if name not in replaced]
        rest = {name: sizes[name] for name in sorted(set(sizes) - merged_rows.keys() - replaced)}
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
        with ThreadPoolExecutor(READERS) as pool:
            for batch in _read_ahead(names):
                for name, data in zip(
                    batch, pool.map(partial(self._bytes_of, table), batch), strict=True
                ):
                    unpack = partial(decode, name=name, table=table, columns=columns)
                    if (rows := self._unless_corrupt(table, name, data, unpack)) is not None:
                        yield name, rows

    def _bytes_of(self, table: str, name: str) -> bytes | None:
        """Read a file; None if it is none that dtsweep wrote."""
        try:
            return self.folder.read(table, name)
        except OddFileError as error:
            self.damaged[f"{table}/{name}"] = str(error)
            return None

    def _unless_corrupt(
        self, table: str, name: str, data: bytes | None, unpack: Callable[[bytes], _T]
    ) -> _T | None:
        """Unpack a file; None if it was not read or is not valid."""
        if data is None:
            return None
        try:
            return unpack(data)
        except CorruptPartError as error:
            reason = str(error)
        if not self.folder.is_local:
            # An answer that was cut may have a wrong size, which nothing else shows.
            with suppress(OddFileError):
                return unpack(self.folder.read(table, name))
        self.damaged[f"{table}/{name}"] = reason
        return None

    def checked_file(self, table: str, name: str) -> Any:
        """Open a file; None if it is not valid, or gone because another process has merged it."""
        with suppress(FileNotFoundError):
            data = self._bytes_of(table, name)
            return self._unless_corrupt(table, name, data, partial(checked, name=name, table=table))
        return None


class _Account:
    """Memory that the rows of a table take."""

    def __init__(self, shown: str) -> None:
        self._words = shown
        self._most = max(MAX_BYTES, _memory_bytes() // MEMORY_PARTS)
        self._bytes = 0

    def of(self, files: Iterable[tuple[str, _T]]) -> Iterator[tuple[str, _T]]:
        """Yield rows by name of their file, and add them up.

        Raises:
            StorageError: they take more than they may.
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


def compacted(names: Iterable[str]) -> list[str]:
    """Select the names of files that others were merged into."""
    return [name for name in names if name.startswith("compacted-")]
