"""Reader of Thrift's compact protocol, in which Parquet files describe themselves."""

from __future__ import annotations

from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_NUMBERS, _LISTS = frozenset({4, 5, 6}), frozenset({9, 10})
"""Types of values."""

_DEPTH = 16
"""Structs within structs; those of Parquet have about six."""


class ThriftReader:
    """Reads structs at a place of some bytes; maps, which Parquet has not, are refused."""

    def __init__(self, data: bytes, place: int, *, most_values: int) -> None:
        """Begin at this place, and read this many values at most."""
        self._data = data
        self._values_left = most_values
        self.place = place

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Fields of a struct by id.

        Raises:
            ValueError: there is no such struct.
        """
        if depth > _DEPTH:
            raise ValueError("its description is nested too deep")
        fields: dict[int, Any] = {}
        field = 0
        while kind := (head := self._byte()) & 0x0F:
            if delta := head >> 4:
                field += delta
            else:
                field = self._number()
            self._count()
            if kind in (_TRUE, _FALSE):
                fields[field] = kind == _TRUE
            else:
                fields[field] = self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._number()
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in _LISTS:
            return self._list(depth)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise ValueError(f"its description has a value of type {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size = head >> 4
        if size == 0x0F:
            size = self._unsigned()
        self._count(size)
        return [self._value(head & 0x0F, depth) for _ in range(size)]

    def _count(self, values: int = 1) -> None:
        self._values_left -= values
        if self._values_left < 0:
            raise ValueError("its description has too many values")

    def _bytes(self, length: int) -> bytes:
        begin, self.place = self.place, self.place + length
        if self.place > len(self._data):
            raise ValueError("its description is cut off")
        return self._data[begin : self.place]

    def _byte(self) -> int:
        if self.place >= len(self._data):
            raise ValueError("its description is cut off")
        byte = self._data[self.place]
        self.place += 1
        return byte

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("its description has a number of more than 64 bits")

    def _number(self) -> int:
        unsigned = self._unsigned()
        return (unsigned >> 1) ^ -(unsigned & 1)
