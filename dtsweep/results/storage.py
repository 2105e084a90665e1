"""The place where results lie: each file there appears whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from dtsweep.errors import StorageError, SweepError, did_you_mean, without_credentials

_S3_OPTIONS = ("endpoint_override", "region", "scheme")

PROBE_BYTES = 2**20
"""Of the file that shows whether results can be written."""

S3_ATTEMPTS = 6
"""Of a request to an object store, within some seconds."""

REACHED_S = 15.0
"""Time limit for a place to answer for the first time."""

_REFUSALS = re.compile(
    "ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|"
    "INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|HTTP status 40[0134]|No such bucket",
    re.IGNORECASE,
)
"""Words of an object store that refuses: the same call will not succeed later."""


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
        self._files, self._root = _file_system(str(where), self.shown)
        self.is_local = isinstance(self._files, pafs.LocalFileSystem)
        place = self._root
        if not self.is_local:
            place = f"{self.shown} {os.environ.get('AWS_ENDPOINT_URL', '')}"
        self.identity = hashlib.sha256(place.encode()).hexdigest()[:16]
        """A name of this place, the same in every process."""

    def reach(self) -> None:
        """Wait until the place answers, at most `REACHED_S`.

        Raises:
            StorageError: it did not in this time, or refused.
        """
        if self.is_local:
            return
        answer: list[StorageError | None] = []

        def ask() -> None:
            try:
                self.sizes("trials")
            except StorageError as error:
                answer.append(error)
            else:
                answer.append(None)

        # On a thread: what an SDK tries again and again can't be given a time limit.
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(REACHED_S)
        if not answer:
            raise StorageError(
                f"results in {self.shown} can't be reached: no answer in {REACHED_S:.0f} s; check "
                "the network and the address, and run the same command again",
                may_pass=True,
            )
        if answer[0] is not None:
            raise answer[0]

    def sizes(self, table: str) -> dict[str, int]:
        """List the Parquet files of a table with their bytes, by name.

        Empty if the folder does not exist.
        """
        with self._storage("read"):
            try:
                infos = self._files.get_file_info(
                    pafs.FileSelector(self._path(table), allow_not_found=True)
                )
            except FileNotFoundError:  # made by another process while Arrow looked at it
                infos = []
        parquet = [info for info in infos if info.base_name.endswith(".parquet")]
        return {
            info.base_name: info.size or 0
            for info in sorted(parquet, key=lambda info: str(info.base_name))
        }

    def read(self, table: str, name: str) -> bytes:
        """Read a whole file.

        Raises:
            FileNotFoundError: it has been deleted.
        """
        with self._storage("read"):
            try:
                with self._files.open_input_file(self._path(table, name)) as file:
                    return bytes(file.read())
            except FileNotFoundError as error:
                not_found = error
        raise not_found

    def footer(self, table: str, name: str) -> Any:
        """Read only the schema of a Parquet file, unchecked.

        None if the file is gone or its schema can't be read.
        """
        try:
            with self._files.open_input_file(self._path(table, name)) as file:
                return pq.read_schema(file)
        except (pa.ArrowException, OSError):
            return None

    def write(self, file: StoredFile) -> None:
        """Write a whole file: a reader sees all of it or nothing, after a power cut too."""
        with self._storage("write"):
            path = self._path(file.folder, file.name)
            if self.is_local:
                write_local(Path(path), file.data, is_private=file.is_private)
            else:
                with self._files.open_output_stream(path) as stream:
                    stream.write(file.data)

    def ages(self, folder: str, *, since: str | None = None) -> dict[str, float]:
        """List the files of a folder with the seconds since their last change.

        Args:
            folder: below the results.
            since: a file there, whose last change counts as now: both times are then by the clock
                of the place. By default now is by this machine's clock.
        """
        with self._storage("read"):
            infos = self._files.get_file_info(
                pafs.FileSelector(self._path(folder), allow_not_found=True)
            )
        changed = {info.base_name: info.mtime_ns for info in infos if info.mtime_ns is not None}
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
        self.write(StoredFile(table, name, os.urandom(PROBE_BYTES)))
        with suppress(StorageError):
            self.delete(table, name)

    def delete(self, table: str, name: str) -> None:
        """Delete a file; do nothing if it is gone already."""
        with self._storage("write"):
            try:
                self._files.delete_file(self._path(table, name))
            except FileNotFoundError:
                return

    def _path(self, *parts: str) -> str:
        return "/".join((self._root, *parts))

    @contextmanager
    def _storage(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"can't {verb} results in {self.shown}: {' '.join(str(error).split())}; "
                "put that right and run the same command again",
                may_pass=not self.is_local and not _REFUSALS.search(str(error)),
            ) from error


def absolute_place(where: str) -> str:
    """A place of results that stays the same when the working directory changes.

    >>> absolute_place("s3://bucket/results")
    's3://bucket/results'

    Raises:
        SweepError: it is no place.
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
    if "://" in where:
        return
    if match := re.match(r"(s3|gs|gcs|abfss?|hdfs):/*", where):
        raise SweepError(
            f"results {shown!r} is not a folder; did you mean {match[1]}://{shown[match.end() :]}?"
        )


def _file_system(where: str, shown: str) -> tuple[Any, str]:
    _refuse_malformed(where, shown)
    if "://" not in where:
        return pafs.LocalFileSystem(), str(Path(where).expanduser().absolute())
    try:
        if where.startswith("s3://"):
            return _s3(where)
        files, root = pafs.FileSystem.from_uri(where)
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).replace(where, shown)
        raise SweepError(
            f"results {shown!r} can't be opened: {reason}; give a folder or s3://…, gs://…"
        ) from None
    except OSError as error:
        raise StorageError(f"results {shown!r} can't be opened: {error}") from error
    return files, root.rstrip("/")


def _s3(where: str) -> tuple[Any, str]:
    uri = urlsplit(where)
    options = dict(parse_qsl(uri.query))
    for name in options:
        if name not in _S3_OPTIONS:
            raise ValueError(f"option {name!r} is unknown, {did_you_mean(name, _S3_OPTIONS)}")
    if (
        "@" not in uri.netloc
        and without_credentials(where).partition("?")[0] != where.partition("?")[0]
    ):
        raise ValueError("a slash in the secret key is written %2F")
    bucket = uri.netloc.rpartition("@")[2]
    options.setdefault("endpoint_override", os.environ.get("AWS_ENDPOINT_URL", ""))
    if not options["endpoint_override"]:
        del options["endpoint_override"]
        options["region"] = options.get("region") or pafs.resolve_s3_region(bucket)
    files = pafs.S3FileSystem(
        access_key=unquote(uri.username) if uri.username else None,
        secret_key=unquote(uri.password) if uri.password else None,
        # The default, three attempts within a second, gives up on a store that is merely busy.
        # Longer outages are the outbox's business, which says so.
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS),
        connect_timeout=3.0,
        request_timeout=10.0,
        **options,
    )
    return files, f"{bucket}{uri.path}".rstrip("/")
