"""One Parquet file of the results, accepted only if its bytes agree with the digest in its name."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dtsweep.errors import LABEL_SHOWN, StorageError, one_line, shortened
from dtsweep.escape import changed_texts
from dtsweep.results.local_files import OddFileError
from dtsweep.results.schema import SCHEMA_VERSION, TABLES, WORKLOAD_TYPES, table_schema
from dtsweep.sweep.values import is_storable_name

REPLACES = b"dtsweep.replaces"
"""File metadata of a compacted file: JSON list of the files whose rows it has."""

FORMAT: Mapping[str, Any] = MappingProxyType(
    {
        "compression": "zstd",
        "write_page_checksum": True,
        "use_dictionary": ["attempt_id", "trial_id"],
    }
)
"""Options with which all files are packed."""

_THREADS_FROM = 1 << 20
"""Bytes of a file from which on several threads unpack it.

For a smaller file, threads cost more than they bring.
"""

STRING_BYTES, CONTAINER_VALUES = 16 << 20, 10_000
"""Length of a text, and of a list, in what a Parquet file says of itself."""

_SENTENCES = frozenset({"reason", "gradients_reason"})
"""Columns of texts that may have several lines, in addition to `LONG` and fields of workloads.

In all other columns a newline could forge a line of a report; it is read as `\\n`.
"""

LONG = frozenset({"sources", "environment", "measure", "question", "command", "machine"})
"""Columns of long texts, in addition to the fields of workloads."""

_JSON: Mapping[str, type] = MappingProxyType(
    {
        **dict.fromkeys(("environment", "sources", "measure", "question", "machine"), dict),
        "command": list,
    }
)
"""Columns of JSON, and what each of their texts holds."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
"""Name of an environment variable: it stays a name where a command is written of it."""

_TAKEN = frozenset(column.name for column in TABLES["trials"])

_NAME = re.compile(r"(?:part-[\w-]+|compacted)-([0-9a-f]{16})\.parquet")


_NEWLINE = re.compile(rb"\n")
"""End of a line that `printable` keeps in a text; it shows all others as Python writes them."""


class CorruptPartError(OddFileError):
    """A file that is left out, with the reason."""


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn rows into columns; what a row lacks is None."""
    names = {name: None for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


def arrow_table(
    table: str,
    columns: Mapping[str, Any],
    *,
    workload_types: Mapping[str, type] = MappingProxyType({}),
) -> Any:
    """Make rows of `table` from columns; None or missing ones become nulls.

    Raises:
        ValueError: A column is unknown, or has a value that does not fit.
    """
    schema = table_schema(table, workload_types=workload_types)
    if unknown := sorted(columns.keys() - set(schema.names)):
        raise ValueError(f"{table} has no columns {unknown}")
    length = len(columns.get("attempt_id", ()))
    arrays = []
    for field in schema:
        try:
            arrays.append(_array(columns.get(field.name), field.type, length))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ValueError(f"{table}.{field.name}: {error}") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Any, kind: Any, length: int) -> Any:
    if values is None:
        return pa.nulls(length, kind)
    if pa.types.is_integer(kind):
        # With the type given, Arrow would cut 2.5 to 2 without a word; a cast refuses.
        return pa.array(values).cast(kind)
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        # A file's name or a program's output may have half a surrogate, which UTF-8 has not.
        texts = changed_texts(
            list(values), lambda text: text.encode(errors="backslashreplace").decode()
        )
        return pa.array(texts, kind)


def encode(table: Any, *, stem: str) -> tuple[str, bytes]:
    """Pack an Arrow table into a Parquet file, whose name ends in a digest of its bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **FORMAT)
    return named(stem, sink.getvalue().to_pybytes())


def named(stem: str, data: bytes) -> tuple[str, bytes]:
    """Give a Parquet file its name, which ends in a digest of its bytes."""
    name = f"{stem}-{_digest(data)}.parquet"
    if not _NAME.fullmatch(name):
        raise ValueError(f"{stem!r} is not a name for a file of results")
    return name, data


def decode(data: bytes, *, name: str, table: str, columns: Collection[str] | None = None) -> Any:
    """Unpack a file of `table` into an Arrow table, its metadata included.

    Args:
        data: its bytes.
        name: of the file.
        table: whose file it is.
        columns: names to unpack, in addition to `attempt_id` and all fields of the workload. None
            for all columns.

    Raises:
        CorruptPartError: It was changed, or is not of this table.
        StorageError: A newer dtsweep wrote it.
    """
    file = _opened(data, name=name, table=table)
    with _refused():
        names = file.schema_arrow.names
        if columns is not None:
            names = [n for n in names if n in columns or is_always_read(n, table)]
        rows = file.read(columns=names, use_threads=len(data) > _THREADS_FROM)
        # Metadata stands twice in a file: what was checked counts.
        rows = rows.replace_schema_metadata(file.schema_arrow.metadata)
        _check_rows(rows)
        for index, field in enumerate(rows.schema):
            is_name = field.name not in _SENTENCES | LONG and not _is_workload(field.name, table)
            if is_name and (texts := _in_one_line(rows[field.name])) is not None:
                rows = rows.set_column(index, field, texts)
        return rows


def checked(data: bytes, *, name: str, table: str) -> Any:
    """Open a file of `table` whose rows were all unpacked and checked once.

    Raises:
        CorruptPartError: It was changed, or is not of this table.
        StorageError: A newer dtsweep wrote it.
    """
    file = _opened(data, name=name, table=table)
    with _refused():
        _check_rows(file.read())
    return file


def _opened(data: bytes, *, name: str, table: str) -> Any:
    """Open a file of `table` whose bytes and columns are right; its rows are not unpacked.

    Raises:
        CorruptPartError: It was changed, or is not of this table.
        StorageError: A newer dtsweep wrote it.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise CorruptPartError("its name is not one that dtsweep gives")
    if match[1] != _digest(data):
        raise CorruptPartError("its bytes differ from the digest in its name: truncated or changed")
    with _refused():
        return _checked(data, name, table)


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptPartError(
            f"it is not such a Parquet file: {' '.join(str(error).split())}"
        ) from error


def _checked(data: bytes, name: str, table: str) -> Any:
    file = pq.ParquetFile(
        pa.BufferReader(data),
        page_checksum_verification=True,
        thrift_string_size_limit=STRING_BYTES,
        thrift_container_size_limit=CONTAINER_VALUES,
    )
    schema = file.schema_arrow
    version = int((schema.metadata or {}).get(b"dtsweep.schema_version", b""))
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{table}/{name} has schema version {version}, this dtsweep reads up to "
            f"{SCHEMA_VERSION}: "
            "update dtsweep, or choose another --results"
        )
    _check_columns(schema.remove_metadata(), table)
    replaced_by(schema)
    return file


def _check_rows(rows: Any) -> None:
    """Refuse rows that can't be read as dtsweep's."""
    rows.validate(full=True)
    if rows["attempt_id"].null_count:
        raise ValueError("rows without attempt_id")
    for name in _JSON.keys() & set(rows.column_names):
        for text in pc.unique(rows[name]).to_pylist():
            if text is not None and not _is_json(name, text):
                raise ValueError(f"column {name} has a text that is not its JSON")


def _is_json(column: str, text: str) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if column == "environment" and isinstance(value, dict):
        return all(map(_VARIABLE.fullmatch, value))
    return isinstance(value, _JSON[column])


def _in_one_line(column: Any) -> Any:
    """Texts or lists of texts without newlines; None if there are none in them."""
    texts = column
    if pa.types.is_list(column.type):
        texts = pc.list_flatten(column)
    if not pa.types.is_string(texts.type) or not any(map(_has_newline, texts.chunks)):
        return None
    if pa.types.is_list(column.type):
        lines = [
            value and [text and one_line(text) for text in value] for value in column.to_pylist()
        ]
        return pa.chunked_array([pa.array(lines, column.type)])
    return pa.chunked_array(map(_texts_in_one_line, column.chunks), column.type)


def _texts_in_one_line(texts: Any) -> Any:
    """Texts without newlines; each is looked at once, as rows share theirs."""
    encoded = texts.dictionary_encode()
    lines = [one_line(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(lines, pa.string()).take(encoded.indices)


def _has_newline(texts: Any) -> bool:
    """True if a newline is in the memory of texts, which those of other rows may share."""
    memory = texts.buffers()[2]
    return memory is not None and _NEWLINE.search(memory) is not None


@lru_cache(maxsize=64)
def _check_columns(schema: Any, table: str) -> None:
    declared = {column.name: column.type for column in TABLES[table]}
    for field in schema:
        if not is_storable_name(field.name.removeprefix("workload_")):
            name = shortened(one_line(field.name), LABEL_SHOWN)
            raise ValueError(f"column '{name}' is not a column of {table}")
        if field.name in declared:
            allowed = [declared.pop(field.name)]
        else:
            allowed = []
            if _is_workload(field.name, table):
                allowed = list(WORKLOAD_TYPES.values())
        if field.type not in allowed:
            raise ValueError(f"column {field.name} of type {field.type} is not a column of {table}")
    if "attempt_id" in declared:
        raise ValueError("rows without attempt_id")


def _is_workload(name: str, table: str) -> bool:
    return table == "trials" and name.startswith("workload_") and name not in _TAKEN


def is_always_read(column: str, table: str) -> bool:
    """True for a column that is read whatever columns are asked for."""
    return column == "attempt_id" or _is_workload(column, table)


def replaced_by(schema: Any) -> set[str]:
    """Name the files whose rows the file of this schema has in their place."""
    names = json.loads((schema.metadata or {}).get(REPLACES, b"[]"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{REPLACES.decode()} is not a list of names")
    return set(names)


def is_name_of_ours(name: str) -> bool:
    """True for a name that dtsweep gives to a file of results."""
    return _NAME.fullmatch(name) is not None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
