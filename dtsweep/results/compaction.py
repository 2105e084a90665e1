"""Compaction: many small files of each table are merged into few."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow as pa

from dtsweep.errors import StorageError
from dtsweep.results.merge import batches, merge_files
from dtsweep.results.parquet import replaced_by
from dtsweep.results.storage import StoredFile
from dtsweep.results.table_files import READERS, TableFiles, compacted


class Compaction:
    """Merges the files of one place, again and again."""

    def __init__(self, files: TableFiles) -> None:
        """Touch nothing yet."""
        self._files = files
        self._folder = files.folder
        self._clean: set[str] = set()
        """Compacted files that were looked at: nothing that they replace is left."""

    def run(self) -> None:
        """Merge many small files of each table into few.

        Readers see the same rows at every moment. The work grows with what was stored since the
        last compaction, not with all that is stored (`merge.batches`).

        Raises:
            StorageError: A file can't be read or written; nothing is lost, and the next compaction
                goes on.
        """
        for table in ("steps", "curves", "ranks", "trials"):
            self._drop_replaced(table)
            # Rows without a trial row are merged too: they may be of a commit that is under way.
            while any(self._merge_batch(table, names) for names in batches(self._mergeable(table))):
                continue

    def _mergeable(self, table: str) -> dict[str, int]:
        """The files of a table, with their bytes, less those that were left out."""
        sizes = self._folder.sizes(table)
        return {
            name: size
            for name, size in sizes.items()
            if f"{table}/{name}" not in self._files.damaged
        }

    def _merge_batch(self, table: str, names: Sequence[str]) -> bool:
        """Replace these files with one; False if there was nothing to merge."""
        with ThreadPoolExecutor(READERS) as pool:
            opened = pool.map(partial(self._files.checked_file, table), names)
            checked = zip(names, opened, strict=True)
            files = {name: file for name, file in checked if file is not None}
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
                        f"{self._folder.shown}/{table}/{name} came back changed; nothing was "
                        "deleted"
                    )
            [*pool.map(lambda old: self._folder.delete(table, old), files)]
        return True

    def _drop_replaced(self, table: str) -> None:
        """Delete files that a killed compaction had merged and not yet deleted."""
        sizes = self._folder.sizes(table)
        for name in set(compacted(sizes)) - self._clean:
            schema = self._folder.footer(table, name)
            try:
                if schema is None:
                    leftovers = set()
                else:
                    leftovers = replaced_by(schema) & sizes.keys()
            except ValueError:  # damaged: readers leave the file out
                continue
            # Only a file that is whole may take the place of others.
            if not leftovers or self._files.checked_file(table, name) is not None:
                for leftover in leftovers:
                    self._folder.delete(table, leftover)
                self._clean.add(name)
