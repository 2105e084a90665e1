"""The place where results lie: each file there appears whole or not at all."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from dtsweep.errors import StorageError, SweepError, did_you_mean, without_credentials

_S3_OPTIONS = ("endpoint_override", "region", "scheme")


class Storage:
    """A folder on this machine or in an object store."""

    def __init__(self, where: str | Path) -> None:
        """Open it without touching it; `where` is a path or a URI such as s3://bucket/folder."""
        self.shown = without_credentials(str(where))
        """`where` without credentials, for messages."""
        self._files, self._root = _file_system(str(where), self.shown)

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

    def write(self, table: str, name: str, data: bytes, *, is_private: bool = False) -> None:
        """Write a whole file: a reader sees all of it or nothing, after a power cut too.

        Args:
            table: its folder.
            name: of the file.
            data: what it holds.
            is_private: whether in a local folder nobody else may read it.
        """
        with self._storage("write"):
            path = self._path(table, name)
            if isinstance(self._files, pafs.LocalFileSystem):
                _write_local(Path(path), data, is_private=is_private)
            else:
                with self._files.open_output_stream(path) as file:
                    file.write(data)

    def try_writing(self, table: str) -> None:
        """Write a file, and delete it again if that is allowed.

        If files can't be deleted, results stay in many files.

        Raises:
            StorageError: it can't be written.
        """
        # Readers of Parquet folders leave out what begins with an underscore.
        name = f"_probe-{uuid.uuid4().hex}"
        self.write(table, name, b"probe")
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
                "put that right and run the same command again"
            ) from error


def _write_local(path: Path, data: bytes, *, is_private: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # DuckDB and Polars read every *.parquet, hidden ones too.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
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


def _file_system(where: str, shown: str) -> tuple[Any, str]:
    if not where:
        raise SweepError(
            "results '' is not a place; give a folder or a URI such as s3://bucket/folder"
        )
    if "://" not in where:
        if match := re.match(r"(s3|gs|gcs|abfss?|hdfs):/*", where):
            raise SweepError(
                f"results {shown!r} is not a folder; did you mean "
                f"{match[1]}://{shown[match.end() :]}?"
            )
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
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=10),
        **options,
    )
    return files, f"{bucket}{uri.path}".rstrip("/")
