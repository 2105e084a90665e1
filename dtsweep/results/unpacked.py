"""Memory that a Parquet file takes once it is unpacked, known before it is.

The footer of a file states sizes, which may be wrong. A reader allocates what the header of each
page states, so these headers are added up. Arrow ends the process where a footer contradicts
itself, so it is not asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dtsweep.results.thrift import ThriftReader

VALUE_BYTES = 8
"""Of a number, or of the offset of a text, also where it is null."""

FOOTER_VALUES, HEADER_VALUES = 4_000_000, 10_000
"""Most values of a footer, which has some thousands for each group of rows, and of a header."""

MOST_PAGES = 100_000
"""Most pages of a file; a million rows of a table have some thousands."""

_DICTIONARY_PAGE = 2
"""Of the format's `PageType`."""

_BYTES, _FIXED_BYTES = 6, 7
"""Of the format's `Type`: values of any length, and of one length."""

_TAIL = 8
"""Bytes at the end of a file: the footer's length and `PAR1`."""


@dataclass(frozen=True)
class _Page:
    """Header of a page."""

    is_dictionary: bool
    unpacked_bytes: int
    packed_bytes: int
    values: int


def unpacked_bytes(data: bytes, schema: Any, columns: Collection[str], *, most: int) -> int:
    """Bytes that some columns of a Parquet file take as an Arrow table, or an upper limit.

    Args:
        data: bytes of the file.
        schema: Arrow's schema of the file.
        columns: names of columns.
        most: nothing is unpacked to count further than this.

    Raises:
        ValueError: the footer or a page has no valid header.
    """
    total = count = 0
    texts: set[str] = set()
    try:
        chunks = list(_chunks(data))
        if sum(chunk[7] for _, chunk in chunks) > len(data):
            raise ValueError("its columns are larger than the file")
        for name, chunk in chunks:
            if name not in columns:
                continue
            pages = list(itertools.islice(_pages(data, chunk), MOST_PAGES + 1 - count))
            count += len(pages)
            if count > MOST_PAGES:
                raise ValueError(f"it has more than {MOST_PAGES} pages")
            values = sum(page.values for page in pages if not page.is_dictionary)
            total += sum(page.unpacked_bytes for page in pages) + VALUE_BYTES * values
            dictionaries = [page.unpacked_bytes for page in pages if page.is_dictionary]
            kind = schema.field(name).type
            if dictionaries and _is_text(kind):
                texts.add(name)
            elif dictionaries and chunk[1] == _FIXED_BYTES and not pa.types.is_nested(kind):
                total += values * kind.byte_width
            elif dictionaries and chunk[1] in (_BYTES, _FIXED_BYTES):
                # No value is longer than all of them.
                total += values * max(dictionaries)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"its description lacks {error}") from error
    if total > most:
        return total
    return total + _text_bytes(data, sorted(texts))


def _is_text(kind: Any) -> bool:
    """True for an Arrow type whose values Arrow can read as indices of a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_kind = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(is_of(kind) for is_of in (*is_kind, pa.types.is_large_binary))


def _text_bytes(data: bytes, columns: Sequence[str]) -> int:
    """Bytes of the texts of columns with dictionaries, in which each text counts once."""
    if not columns:
        return 0
    total = 0
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=columns)
    for group, name in itertools.product(range(file.num_row_groups), columns):
        for chunk in file.read_row_group(group, columns=[name])[name].chunks:
            if not pa.types.is_dictionary(chunk.type):
                total += chunk.nbytes
                continue
            lengths = pc.binary_length(chunk.dictionary)
            total += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
    return total


def _chunks(data: bytes) -> Iterator[tuple[str, dict[int, Any]]]:
    """Name and `ColumnMetaData` of each column, in each group of rows."""
    length = int.from_bytes(data[-_TAIL : -_TAIL + 4], "little")
    footer = ThriftReader(data, len(data) - _TAIL - length, most_values=FOOTER_VALUES).struct()
    for row_group in footer[4]:
        for column in row_group[1]:
            path = column[3][3]
            yield path[0].decode(), column[3]


def _pages(data: bytes, chunk: dict[int, Any]) -> Iterator[_Page]:
    """Headers of the pages of a column, in a group of rows."""
    packed_bytes, place, dictionary = chunk[7], chunk[9], chunk.get(11, 0)
    if 0 < dictionary < place:
        place = dictionary
    if min(place, packed_bytes) < 0:
        raise ValueError("a column has a negative place")
    end = place + packed_bytes
    while place < end:
        page, length = _header(data, place)
        yield page
        place += length + page.packed_bytes


def _header(data: bytes, place: int) -> tuple[_Page, int]:
    """Read the header of a page, and its length."""
    reader = ThriftReader(data, place, most_values=HEADER_VALUES)
    fields = reader.struct()
    details = fields.get(5) or fields.get(7) or fields.get(8) or {1: 0}
    page = _Page(fields[1] == _DICTIONARY_PAGE, fields[2], fields[3], details[1])
    if min(page.unpacked_bytes, page.packed_bytes, page.values) < 0:
        raise ValueError("a page has a negative size")
    return page, reader.place - place
