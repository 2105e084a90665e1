"""The place where results lie: each file there appears whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from dtsweep.errors import (
    StorageError,
    SweepError,
)
from dtsweep.results.local_files import Entry, check_size, entries, read_file
from dtsweep.results.object_stores import (
    TOKEN_S,
    ObjectStore,
    open_store,
    reason_of,
    refuses,
)
from dtsweep.results.time_limit import call_within
from dtsweep.secret import without_credentials

_T = TypeVar("_T")

_PROBE_BYTES = 2**20
"""Of the file that shows whether results can be written."""

_REACHED_S = 15.0
"""Time limit for a place to answer for the first time."""

CALL_S = 30.0
"""Time limit for a call of an object store, next to the time that its bytes take."""

_SLOWEST_BYTES_PER_S = 64 * 2**10
"""Of a network that still works."""

_AGAIN_FOR_S = 8.0
"""Time in which a failed call is repeated; a library that tried for longer has done so itself."""

_AGAIN_PAUSE_S = 0.2

_UNFINISHED = "_unfinished"
"""Folder of files that are being written, in stores that show a file before it is whole."""


_PAGE = 1000
"""Files in a page of a listing, or a multiple of it."""

_FILE_BYTES = 1 << 30
"""Of a file; a larger one is not read. Steps of a thousand ranks for hours are smaller."""

RECORD_BYTES = 16 << 20
"""Likewise of a file that is JSON: the record of a run, or a lease."""

_READS = 5
"""Attempts to read a file that another process writes meanwhile."""


class _ChangedError(OSError):
    """A file came back with another size than it has."""


@dataclass(frozen=True)
class StoredFile:
    """A file for the results: a reader sees all of it or nothing."""

    folder: str
    """Below the results, such as `trials`."""

    name: str
    data: bytes
    is_private: bool = False
    """True if in a local folder nobody else may read it."""


class Storage:
    """A folder on this machine or in an object store."""

    def __init__(self, where: str | Path) -> None:
        """Open it without touching it; `where` is a path or a URI such as s3://bucket/folder."""
        self.shown = without_credentials(str(where))
        """`where` without credentials, for messages."""
        store = _opened(str(where), self.shown)
        self._files, self._root = store.files, store.root
        self._opened_again = store.opened_again
        self._token_until = 0.0
        """By the monotonic clock."""
        self.is_local = isinstance(self._files, pafs.LocalFileSystem)
        self.odd: dict[str, str] = {}
        """Entries that are not plain files: kind by path below the results."""
        self.identity = hashlib.sha256(store.address.encode()).hexdigest()[:16]
        """A name of this place, the same in every process."""

    @property
    def local_root(self) -> str | None:
        """Path of the folder on this machine; None of an object store."""
        return str(Path(self._root).absolute()) if self.is_local else None

    def reach(self) -> None:
        """Wait until the place answers, at most `_REACHED_S`.

        Raises:
            StorageError: it did not in this time, or refused.
        """
        if self.is_local:
            return
        try:
            call_within(_REACHED_S, lambda: self.sizes("trials"))
        except TimeoutError as error:
            raise StorageError(
                f"results in {self.shown} can't be reached: {error}; check "
                "the network and the address, and run the same command again",
                may_pass=True,
            ) from None

    def sizes(self, table: str) -> dict[str, int]:
        """List the Parquet files of a table with their bytes, by name.

        Empty if the folder does not exist.
        """
        with self._storage("read"):
            files = self._listed(table, suffix=".parquet")
        return {file.name: file.size for file in sorted(files)}

    def read(self, table: str, name: str) -> bytes:
        """Read a whole file.

        Raises:
            FileNotFoundError: it has been deleted.
            OddFileError: it is not a plain file, or larger than any of dtsweep.
        """
        with self._storage("read"):
            try:
                return self._whole(self._path(table, name))
            except FileNotFoundError as error:
                not_found = error
        raise not_found

    def footer(self, table: str, name: str) -> Any:
        """Read only the schema of a Parquet file, unchecked.

        None if the file is gone or its schema can't be read.
        """
        path = self._path(table, name)

        def schema() -> Any:
            with self._files.open_input_file(path) as file:
                return pq.read_schema(file)

        try:
            return self._call(schema)
        except (pa.ArrowException, OSError):
            return None

    def write(self, file: StoredFile) -> None:
        """Write a whole file: a reader sees all of it or nothing, after a power cut too."""
        with self._storage("write"):
            path = self._path(file.folder, file.name)
            if self.is_local:
                write_local(Path(path), file.data, is_private=file.is_private)
            else:
                self._write_object(path, file.data)

    def ages(self, folder: str, *, since: str | None = None) -> dict[str, float]:
        """List the files of a folder with the seconds since their last change.

        Args:
            folder: below the results.
            since: a file there, whose last change counts as now: both times are then by the clock
                of the place. By default now is by this machine's clock.
        """
        with self._storage("read"):
            files = self._listed(folder)
        changed = {file.name: file.mtime_ns for file in files if file.mtime_ns}
        now_ns = time.time_ns()
        if since is not None:
            now_ns = changed.get(since, now_ns)
        return {name: (now_ns - time_ns) / 1e9 for name, time_ns in changed.items()}

    def try_writing(self, table: str) -> None:
        """Write a file, and delete it again if that is allowed.

        If files can't be deleted, results stay in many files.

        Raises:
            StorageError: it can't be written.
        """
        # Readers of Parquet folders leave out what begins with an underscore.
        name = f"_probe-{uuid.uuid4().hex}"
        # As large as the rows of a trial are: a disk that is nearly full has room for a few bytes.
        self.write(StoredFile(table, name, os.urandom(_PROBE_BYTES)))
        with suppress(StorageError):
            self.delete(table, name)

    def delete(self, table: str, name: str) -> None:
        """Delete a file; do nothing if it is gone already."""
        with self._storage("write"):
            try:
                self._call(lambda: self._files.delete_file(self._path(table, name)))
            except FileNotFoundError:
                return

    def _path(self, *parts: str) -> str:
        return "/".join((self._root, *parts))

    def _listed(self, folder: str, *, suffix: str = "") -> list[Entry]:
        """List plain files with this suffix; other entries of such names are put in `odd`.

        Raises:
            StorageError: the folder is a link.
        """
        if self.is_local:
            if Path(self._path(folder)).is_symlink():
                raise StorageError(
                    f"{self._path(folder)} is a link, which is not followed; put the folder there"
                )
            listed = list(entries(self._path(folder)))
        else:
            listed = [_entry_of(info) for info in self._infos(folder)]
        files = []
        for entry in listed:
            if not entry.name.endswith(suffix):
                continue
            if entry.odd is None:
                files.append(entry)
            elif entry.name.endswith((".parquet", ".json")):
                self.odd[f"{folder}/{entry.name}"] = f"it is {entry.odd}, not a file"
        return files

    def _infos(self, folder: str) -> list[Any]:
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True)
        infos: list[Any] = self._call(lambda: self._files.get_file_info(selector))
        if len(infos) % _PAGE == 0:
            # An answer that is cut before its length passes for an empty page.
            again: list[Any] = self._call(lambda: self._files.get_file_info(selector))
            infos = max(infos, again, key=len)
        return infos

    def _whole(self, path: str) -> bytes:
        """Read a file; one that was written again meanwhile is read again.

        Arrow asks for the size and then for so many bytes, which may be those of another file.
        """
        most_bytes = _FILE_BYTES if path.endswith(".parquet") else RECORD_BYTES
        if self.is_local:
            return read_file(path, most_bytes=most_bytes)
        # Those are written once, under the name of their digest.
        is_fixed = path.endswith(".parquet")
        for attempt in range(_READS):
            try:
                data = self._bytes_of(path, most_bytes)
            except _ChangedError:
                continue
            except FileNotFoundError:
                if is_fixed or attempt == _READS - 1:
                    raise
                continue
            if is_fixed or len(data) == self._call(partial(self._files.get_file_info, path)).size:
                return data
        raise _ChangedError(f"{path} changes while it is read")

    def _bytes_of(self, path: str, most_bytes: int) -> bytes:
        file = self._call(lambda: self._files.open_input_file(path))
        size = self._call(file.size)
        check_size(size, most_bytes)
        data = self._call(lambda: bytes(file.read()), size)
        self._call(file.close)
        if len(data) != size:  # a connection was cut, and the library took that for the end
            raise _ChangedError(f"{path} came back with {len(data)} of {size} bytes")
        return data

    def _write_object(self, path: str, data: bytes) -> None:
        """Write an object; a reader sees all of it or nothing."""
        # In Azure's store a file is seen, empty, while it is written.
        if self._files.type_name != "abfs":
            self._call(lambda: self._stream(path, data), len(data))
            return
        unfinished = self._call(lambda: self._unfinished(data), len(data))
        try:
            self._call(lambda: self._files.copy_file(unfinished, path), len(data))
        finally:
            with suppress(OSError, pa.ArrowException):  # one file too many, which nobody reads
                self._call(lambda: self._files.delete_file(unfinished))

    def _unfinished(self, data: bytes) -> str:
        """Upload data under a name of this attempt alone, and return its path.

        An attempt that took too long may still go on, and empty the file that it writes.
        """
        path = self._path(_UNFINISHED, uuid.uuid4().hex)
        self._stream(path, data)
        return path

    def _stream(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(data)

    def _call(self, call: Callable[[], _T], size: int = 0) -> _T:
        """Call the file system, within a time limit for so many bytes.

        A call that fails soon is repeated for a moment: libraries give up when an answer is cut.
        """
        if self.is_local:
            return call()
        limit_s = CALL_S + size / _SLOWEST_BYTES_PER_S
        again_until = time.monotonic() + _AGAIN_FOR_S
        while True:
            try:
                return call_within(limit_s, partial(self._with_token, call))
            except TimeoutError:
                raise
            except (OSError, pa.ArrowException) as error:
                if refuses(error) or time.monotonic() > again_until:
                    raise
            time.sleep(_AGAIN_PAUSE_S)

    def _with_token(self, call: Callable[[], _T]) -> _T:
        """Call the file system, with a new token if one is due."""
        if self._opened_again is not None and time.monotonic() > self._token_until:
            self._files = self._opened_again()
            self._token_until = time.monotonic() + TOKEN_S
        return call()

    @contextmanager
    def _storage(self, verb: str) -> Iterator[None]:
        try:
            yield
        # Arrow has no OSError for credentials that can't be had.
        except (OSError, pa.ArrowException) as error:
            raise StorageError(
                f"can't {verb} results in {self.shown}: {reason_of(error)}; "
                "put that right and run the same command again",
                may_pass=not self.is_local and not refuses(error),
            ) from error


def _entry_of(info: Any) -> Entry:
    """An entry of a listing of Arrow."""
    odd = None
    if info.type != pafs.FileType.File:
        odd = "a folder"
    return Entry(info.base_name, info.size or 0, info.mtime_ns or 0, odd)


def absolute_place(where: str) -> str:
    """A place of results that stays the same when the working directory changes.

    >>> absolute_place("s3://bucket/results")
    's3://bucket/results'

    Raises:
        SweepError: it is not a place.
    """
    _refuse_malformed(where, without_credentials(where))
    if "://" in where:
        return where
    return str(Path(where).expanduser().absolute())


def write_local(path: Path, data: bytes, *, is_private: bool) -> None:
    """Write a local file: a reader sees all of it or nothing, after a power cut too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # DuckDB and Polars read every *.parquet, hidden ones too.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        with open(temporary, "wb", opener=_private if is_private else None) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _refuse_malformed(where: str, shown: str) -> None:
    if not where:
        raise SweepError(
            "results '' is not a place; give a folder or a URI such as s3://bucket/folder"
        )
    if match := re.fullmatch(r"(s3|gs|gcs|abfss?)://(/.*)?", where):
        raise SweepError(f"results {shown!r} name no bucket; give {match[1]}://bucket/folder")
    if "://" in where:
        return
    if match := re.match(r"(s3|gs|gcs|abfss?|hdfs):/*", where):
        raise SweepError(
            f"results {shown!r} is not a folder; did you mean {match[1]}://{shown[match.end() :]}?"
        )


def _opened(where: str, shown: str) -> ObjectStore:
    _refuse_malformed(where, shown)
    if "://" not in where:
        folder = str(Path(where).expanduser().absolute())
        return ObjectStore(pafs.LocalFileSystem(), folder, folder)
    try:
        return open_store(where)
    except (pa.ArrowException, ValueError) as error:
        reason = without_credentials(str(error).replace(where, shown))
        next_step = ""
        if isinstance(error, pa.ArrowException):
            next_step = "; give a folder or s3://…, gs://…, abfs://ACCOUNT@CONTAINER/…"
        raise SweepError(f"results {shown!r} can't be opened: {reason}{next_step}") from None
    except OSError as error:
        raise StorageError(
            f"results {shown!r} can't be opened: {error}; check the network, the credentials and "
            "the name of the bucket"
        ) from error
