"""Link measurements of `doctor`, in the folder `links` of results; no run writes or needs them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dtsweep.errors import StorageError
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
