"""Link measurements of `doctor`, in the folder `links` of results; no run writes or needs them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dtsweep.errors import StorageError, error_line
from dtsweep.results.storage import Storage, StoredFile

FOLDER = "links"

SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"unit": unit, "meaning": meaning})
        for name, kind, unit, meaning in (
            ("measured_at", pa.timestamp("us", tz="UTC"), "", "when doctor stored it"),
            ("is_within", pa.bool_(), "", "whether all ranks were on one node"),
            ("nodes", pa.string(), "", "names of the ranks' nodes, with a comma between them"),
            ("device", pa.string(), "", "device model of the ranks"),
            ("backend", pa.string(), "", "gloo or nccl"),
            ("ranks", pa.int64(), "", "that all-reduced"),
            ("size_bytes", pa.int64(), "bytes", "of the message"),
            (
                "time_s",
                pa.float64(),
                "s",
                "of one all-reduce of float32 sums, mean over repetitions and ranks",
            ),
            ("times", pa.int64(), "", "repetitions"),
            ("algbw_bytes_per_s", pa.float64(), "bytes/s", "size over time"),
            (
                "busbw_bytes_per_s",
                pa.float64(),
                "bytes/s",
                "that times 2(n-1)/n, what a link of a ring carries",
            ),
            (
                "latency_s",
                pa.float64(),
                "s",
                "alpha of time = alpha + size/beta, over all sizes of these ranks",
            ),
            (
                "bandwidth_bytes_per_s",
                pa.float64(),
                "bytes/s",
                "beta of the same; null if unknown",
            ),
        )
    ]
)


@dataclass(frozen=True, kw_only=True)
class Link:
    """All-reduce of a group of ranks: time = latency + size / bandwidth."""

    ranks: int
    nodes: int
    """Number of the ranks' nodes."""

    device: str
    """Device model of the ranks."""

    backend: str
    """gloo or nccl."""

    latency_s: float
    bandwidth_bytes_per_s: float | None
    """None where more bytes took no longer."""


def read_links(where: str | Path) -> tuple[Link, ...]:
    """Read the newest measurement of each group of ranks.

    Args:
        where: the results.

    Raises:
        StorageError: the place can't be read.
    """
    storage = Storage(where)
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    rows = [
        row for name in storage.sizes(FOLDER) for row in _rows_in(storage.read(FOLDER, name), name)
    ]
    for row in sorted(rows, key=lambda row: row["measured_at"]):
        newest[row["nodes"], row["ranks"], row["device"], row["backend"]] = row
    return tuple(
        Link(
            ranks=row["ranks"],
            nodes=1 if row["is_within"] else len(row["nodes"].split(", ")),
            **{name: row[name] for name in _AS_STORED},
        )
        for row in newest.values()
    )


_AS_STORED = ("device", "backend", "latency_s", "bandwidth_bytes_per_s")


def _rows_in(data: bytes, name: str) -> list[dict[str, Any]]:
    """Rows of a file of links."""
    try:
        table = pq.read_table(pa.BufferReader(data), schema=SCHEMA)
    except pa.ArrowException as error:
        raise StorageError(
            f"{FOLDER}/{name} is damaged: {error_line(error)}; delete it and run doctor again"
        ) from None
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def store_links(where: str | Path, links: Sequence[Mapping[str, Any]]) -> str:
    """Store measured links.

    Args:
        where: the results.
        links: one per group of ranks: columns of `SCHEMA`, those of single sizes in `all_reduces`.

    Returns:
        The name of the file.

    Raises:
        StorageError: it can't be written.
    """
    now = datetime.now(UTC)
    rows = [
        {"measured_at": now, **link, **all_reduce}
        for link in links
        for all_reduce in link["all_reduces"]
    ]
    name = f"links-{uuid.uuid4().hex}.parquet"
    Storage(where).write(StoredFile(FOLDER, name, _parquet(rows)))
    return name


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist(rows, schema=SCHEMA),
        sink,
        compression="zstd",
        write_page_checksum=True,
    )
    return bytes(sink.getvalue().to_pybytes())


def try_place(where: str | Path) -> list[str]:
    """Write, list and delete a file where results are to lie; list the problems.

    Each problem has the next step. The file has columns of links and no rows, so that readers of
    the folder accept it if it has to stay.
    """
    name = f"probe-{uuid.uuid4().hex}.parquet"
    try:
        storage = Storage(where)
        storage.write(StoredFile(FOLDER, name, _parquet([])))
    except StorageError as error:
        return [f"results: {error}"]
    problems = []
    try:
        if name not in storage.sizes(FOLDER):
            problems.append(
                f"results: what was written to {storage.shown} is not listed there; use another "
                "place"
            )
    except StorageError as error:
        problems.append(f"results: {error}")
    try:
        storage.delete(FOLDER, name)
    except StorageError as error:
        problems.append(
            "results: written, but not deleted, so they stay in many small files; allow it: "
            f"{error}"
        )
    return problems
