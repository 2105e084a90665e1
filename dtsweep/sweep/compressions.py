"""The list of compressions, readable without torch: plans are made from it.

Classes are in `dtsweep.compression`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CompressionInfo:
    """Declaration of a compression; all fields but the first two have defaults."""

    implementation: str
    """`module:class` of the compression."""

    exchange: str
    """Way to combine its payloads, one of `EXCHANGES`."""

    reads: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a point that only some compressions read, with this one's own defaults."""

    needs_matrices: bool = False
    """True if it works on whole parameters alone, not on any piece of them."""

    has_feedback: bool = False
    """True if what a payload leaves out is added to the next values."""

    payload: str = "unknown"
    """Bytes that travel for N values: a formula in the symbols of docs/sync-modes.md."""

    sends: str = "unknown"
    """Bytes that a worker of `ddp` sends per step: a formula like `payload`."""

    bytes_per_value: Callable[[Mapping[str, Any]], float] | None = None
    """From the fields of a point to the bytes of a payload per value.

    None where they depend on the shapes of the parameters.
    """


EXCHANGES = ("all_reduce", "all_gather", "all_to_all")
"""Ways to combine payloads: sum them on the way, send each to every worker, or reduce by shards.

By shards, each worker gets its own share of all values, and passes on their mean, compressed again.
"""

COMPRESSIONS: Mapping[str, CompressionInfo] = {
    "fp16": CompressionInfo(
        implementation="dtsweep.compression.cast:Fp16",
        exchange="all_reduce",
        payload="2 N bytes",
        sends="(n−1)/n S",
        bytes_per_value=lambda _: 2,
    ),
    "bf16": CompressionInfo(
        implementation="dtsweep.compression.cast:Bf16",
        exchange="all_reduce",
        payload="2 N bytes",
        sends="(n−1)/n S",
        bytes_per_value=lambda _: 2,
    ),
    "int8": CompressionInfo(
        implementation="dtsweep.compression.quantize:Int8",
        exchange="all_to_all",
        payload="N + N/64: a scale (4 bytes) for 256 values, and a byte each",
        sends="2 (n−1)/n 0.254 S",
        bytes_per_value=lambda _: 1 + 1 / 64,
    ),
    "int4": CompressionInfo(
        implementation="dtsweep.compression.quantize:Int4",
        exchange="all_to_all",
        payload="N/2 + N/64",
        sends="2 (n−1)/n 0.129 S",
        bytes_per_value=lambda _: 1 / 2 + 1 / 64,
    ),
    "sign": CompressionInfo(
        implementation="dtsweep.compression.sign:Sign",
        exchange="all_gather",
        has_feedback=True,
        payload="N/8 + N/64: a bit each, a scale (4 bytes) for 256 values; and a bit for each row",
        sends="(n−1) 0.035 S",
        bytes_per_value=lambda _: 1 / 8 + 1 / 64,
    ),
    "topk": CompressionInfo(
        implementation="dtsweep.compression.topk:TopK",
        exchange="all_gather",
        reads={"compression_ratio": 0.01},
        has_feedback=True,
        payload="r N times 8: positions and values",
        sends="2 (n−1) r S",
        bytes_per_value=lambda fields: 8 * float(fields["compression_ratio"]),
    ),
    "randomk": CompressionInfo(
        implementation="dtsweep.compression.randomk:RandomK",
        exchange="all_reduce",
        reads={"compression_ratio": 0.01},
        has_feedback=True,
        payload="r N times 4: values",
        sends="2 (n−1)/n r S",
        bytes_per_value=lambda fields: 4 * float(fields["compression_ratio"]),
    ),
    "powersgd": CompressionInfo(
        implementation="dtsweep.compression.powersgd:PowerSgd",
        exchange="all_reduce",
        reads={"compression_rank": 4},
        needs_matrices=True,
        has_feedback=True,
        payload="4 k (rows + columns) of each matrix, in two rounds; all of the rest",
        sends="2 (n−1)/n of that",
    ),
}
"""Every compression by the name that the axis uses."""

COMPRESSION_FIELDS = ("compression_ratio", "compression_rank")
"""The fields of a point that only some compressions read."""


def reads_of(compression: str | None) -> Mapping[str, Any]:
    """The fields of a point that a compression reads, with its own defaults; none without one.

    >>> reads_of("topk")
    {'compression_ratio': 0.01}
    """
    if compression is None:
        return {}
    return COMPRESSIONS[compression].reads


def compressions_reading(field: str) -> list[str]:
    """Name the compressions that read a field of `COMPRESSION_FIELDS`.

    >>> compressions_reading("compression_rank")
    ['powersgd']
    """
    return [name for name in COMPRESSIONS if field in reads_of(name)]
