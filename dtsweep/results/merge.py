"""Merging of a table's files: in memory for readers, and piece by piece into a larger file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dtsweep.results.parquet import FORMAT, REPLACES, arrow_table, named

LARGE_BYTES = 64 << 20
"""A file of this size stays as it is; no merged one gets much larger."""

_SMALL_BYTES = 1 << 20
"""Files below this size are always merged: rewriting them costs nothing."""

_FILES_AT_ONCE = 128
"""Largest number of files to merge at once.

An open file takes a multiple of its bytes, since names of columns take more than a row.
"""

_PIECE_BYTES = 64 << 20
"""Size of the rows held in memory while files are merged, and of a row group.

Both are bytes of Arrow tables.
"""


MERGED_BYTES = 2 << 30
"""Size of the rows of a merged file, in bytes of Arrow tables; readers refuse twice as much."""


def batches(sizes: Mapping[str, int]) -> list[list[str]]:
    """Choose which files are worth merging into one.

    Small ones are, and a larger one where at least as much is merged with it: a row is then
    rewritten only when what it lies in doubles. So the work grows with the rows, a handful of files
    of each table is below `LARGE_BYTES`, and what is merged at once fits into memory.

    Args:
        sizes: bytes of each file of a table.

    >>> batches({"a": 70_000, "b": 60_000, "c": 3 << 20, "d": 80 << 20})
    [['b', 'a']]
    >>> batches({"a": 7 << 20, "b": 7 << 20, "c": 8 << 20})
    [['a', 'b', 'c']]
    """
    candidates = sorted((size, name) for name, size in sizes.items() if size < LARGE_BYTES)
    total = chosen = 0
    for place, (size, _) in enumerate(candidates):
        if size <= max(_SMALL_BYTES, total):
            chosen = place + 1
        total += size
    groups: list[list[str]] = []
    in_batch = 0
    for size, name in candidates[:chosen]:
        if not groups or in_batch + size > LARGE_BYTES or len(groups[-1]) == _FILES_AT_ONCE:
            groups.append([])
            in_batch = 0
        groups[-1].append(name)
        in_batch += size
    return [batch for batch in groups if len(batch) > 1]


def merge_files(table: str, files: Mapping[str, Any]) -> tuple[str, bytes]:
    """Pack the rows of files into a new file, whose metadata names the files that it replaces.

    An attempt that is in several files counts once.

    Args:
        table: whose files they are.
        files: by name, as `checked` gives them.

    Returns:
        Name and bytes of the new file.

    Raises:
        ArrowInvalid: their columns have no common type, or their rows take too much memory.
    """
    schema = merged(table, (file.schema_arrow.empty_table() for file in files.values())).schema
    schema = schema.with_metadata({**schema.metadata, REPLACES: json.dumps(sorted(files)).encode()})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **FORMAT) as writer:
        for piece in _pieces(files.values(), schema):
            writer.write_table(piece)
    return named("compacted", sink.getvalue().to_pybytes())


def _pieces(files: Iterable[Any], schema: Any) -> Iterator[Any]:
    """Yield the rows of files as tables of one schema, of a bounded size each."""
    waiting, held, total = [], 0, 0
    for rows in _new_rows(map(_row_groups, files)):
        waiting.append(_conformed(rows, schema))
        held += waiting[-1].nbytes
        total += waiting[-1].nbytes
        if total > MERGED_BYTES:
            raise pa.ArrowInvalid(f"the rows take more than {MERGED_BYTES} bytes")
        if held > _PIECE_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, held = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _new_rows(files: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """Yield the rows of files, part by part, without those of attempts that an earlier file has."""
    seen: set[str] = set()
    for parts in files:
        file_attempts: set[str] = set()
        for rows in parts:
            file_attempts |= (attempts := set(pc.unique(rows["attempt_id"]).to_pylist()))
            yield of_attempts(rows, attempts - seen) if attempts & seen else rows
        seen |= file_attempts


def of_attempts(rows: Any, attempts: Collection[str]) -> Any:
    """Select the rows of some attempts, by `attempt_id`."""
    return rows.filter(
        pc.is_in(rows["attempt_id"], value_set=pa.array(sorted(attempts), pa.string()))
    )


def _row_groups(file: Any) -> Iterator[Any]:
    return (file.read_row_group(group, use_threads=False) for group in range(file.num_row_groups))


def _conformed(rows: Any, schema: Any) -> Any:
    if rows.schema.equals(schema):
        return pa.Table.from_arrays(rows.columns, schema=schema)
    names = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def merged(table: str, files: Iterable[Any]) -> Any:
    """Join files, whose columns may differ, in memory; an attempt that several have counts once.

    A field of the workload that has had another type since (a number, then a number or a list) is
    text in all rows.

    Args:
        table: whose rows they are.
        files: decoded ones.
    """
    kept = [arrow_table(table, {}), *_new_rows([rows] for rows in files)]
    try:
        return pa.concat_tables(kept, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        mixed = _mixed_fields(kept)
        return pa.concat_tables(
            [_as_text(rows, mixed) for rows in kept], promote_options="permissive"
        )


def _mixed_fields(tables: Iterable[Any]) -> set[str]:
    """Columns of workload fields that have several types."""
    types_by_field: dict[str, set[Any]] = {}
    for rows in tables:
        for field in rows.schema:
            if field.name.startswith("workload_"):
                types_by_field.setdefault(field.name, set()).add(field.type)
    return {name for name, types in types_by_field.items() if len(types) > 1}


def _as_text(rows: Any, columns: Set[str]) -> Any:
    for name in columns & set(rows.column_names):
        rows = rows.set_column(
            rows.schema.get_field_index(name), name, rows[name].cast(pa.string())
        )
    return rows
