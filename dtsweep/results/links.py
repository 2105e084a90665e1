"""Link measurements of `doctor`, in the folder `links` of results; predictions read them."""

from __future__ import annotations

import math
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dtsweep.errors import StorageError, error_line, one_line
from dtsweep.results.local_files import OddFileError
from dtsweep.results.parquet import parquet_file
from dtsweep.results.storage import Storage, StoredFile

FOLDER = "links"

MAX_BYTES = 16 * 2**20
"""Size of a file above which it is not one of links."""

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
    """Device model of the ranks; of several, their sorted names."""

    backend: str
    """gloo or nccl."""

    latency_s: float | None
    """None where small messages took no measurable time."""

    bandwidth_bytes_per_s: float | None
    """None where more bytes took no longer."""


def read_links(where: str | Path) -> tuple[Link, ...]:
    """Read the newest measurement of each kind of group.

    Groups of as many ranks and nodes, with the same device and backend, are of one kind. A file
    that can't be used is left out with a warning.

    Args:
        where: the results.

    Raises:
        StorageError: the place can't be read.
    """
    storage = Storage(where)
    kinds: dict[tuple[Any, ...], dict[str, Link]] = {}
    newest: dict[tuple[Any, ...], datetime] = {}
    for row in sorted(_usable_rows(storage), key=lambda row: row["measured_at"]):
        link = _link_of(row)
        kind = (link.ranks, link.nodes, link.device, link.backend)
        if newest.get(kind) != row["measured_at"]:
            newest[kind] = row["measured_at"]
            kinds[kind] = {}
        # There is a row for each size of a message.
        kinds[kind][row["nodes"]] = link
    return tuple(link for links in kinds.values() for link in links.values())


def _usable_rows(storage: Storage) -> Iterator[dict[str, Any]]:
    """Rows of all files from which a link follows."""
    for name in storage.sizes(FOLDER):
        try:
            rows = _rows_in(storage.read(FOLDER, name))
        except FileNotFoundError:  # doctor tries the place with a file that it deletes
            continue
        except (pa.ArrowException, OddFileError, OSError, ValueError, KeyError) as error:
            reason = error_line(error)
            warnings.warn(
                f"{storage.shown}/{FOLDER}/{one_line(name)} is left out: {reason}", stacklevel=4
            )
            continue
        yield from filter(_is_usable, rows)


def _rows_in(data: bytes) -> list[dict[str, Any]]:
    """Rows of a file, by the columns of `SCHEMA`."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has {len(data)} bytes, more than links have")
    table = parquet_file(data).read(columns=SCHEMA.names, use_threads=False)
    if table.column_names != SCHEMA.names:
        raise ValueError("it has other columns than links")
    rows: list[dict[str, Any]] = table.cast(SCHEMA).to_pylist()
    return rows


def _is_usable(row: dict[str, Any]) -> bool:
    """True if the row says which ranks all-reduced, and on how many nodes."""
    names = ("measured_at", "ranks", "is_within", "nodes", "device", "backend")
    if any(row[name] is None for name in names) or row["ranks"] < 2:
        return False
    return bool(row["is_within"]) or _count_of_nodes(row) > 1


def _count_of_nodes(row: dict[str, Any]) -> int:
    return len(row["nodes"].split(", "))


def _link_of(row: dict[str, Any]) -> Link:
    nodes = 1
    if not row["is_within"]:
        nodes = _count_of_nodes(row)
    return Link(
        ranks=row["ranks"],
        nodes=nodes,
        device=", ".join(sorted(row["device"].split(", "))),
        backend=row["backend"],
        latency_s=_positive(row["latency_s"]),
        bandwidth_bytes_per_s=_positive(row["bandwidth_bytes_per_s"]),
    )


def _positive(value: float | None) -> float | None:
    """The value if it is above 0 and finite; the fit of a link gives 0 for what it can't tell."""
    if value is None or not 0 < value < math.inf:
        return None
    return value


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
