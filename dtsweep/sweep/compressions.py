"""The list of compressions, readable without torch: plans are made from it. Classes are in `dtsweep.compression`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CompressionInfo:
    """What a compression declares; all but the first two have defaults."""

    implementation: str
    """`module:class` of the compression."""

    exchange: str
    """How its payloads come together, one of `EXCHANGES`."""

    reads: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a point that only some compressions read, with this one's own defaults."""

    needs_matrices: bool = False
    """Whether it works on whole parameters alone, not on any piece of them."""

    can_be_coded: bool = False
    """Whether its payloads are bytes that `compression_coding` makes fewer."""


EXCHANGES = ("all_reduce", "all_gather", "all_to_all")
"""How payloads come together: they are added up on the way; every worker gets all of them; or, of values divided among
the workers, each worker gets its own share of all, and passes on their mean, compressed again."""

COMPRESSIONS: Mapping[str, CompressionInfo] = {
    "fp16": CompressionInfo(implementation="dtsweep.compression.cast:Fp16", exchange="all_reduce"),
    "bf16": CompressionInfo(implementation="dtsweep.compression.cast:Bf16", exchange="all_reduce"),
    "int8": CompressionInfo(
        implementation="dtsweep.compression.quantize:Int8", exchange="all_to_all", can_be_coded=True
    ),
    "int4": CompressionInfo(
        implementation="dtsweep.compression.quantize:Int4", exchange="all_to_all", can_be_coded=True
    ),
    "sign": CompressionInfo(implementation="dtsweep.compression.sign:Sign", exchange="all_gather", can_be_coded=True),
    "topk": CompressionInfo(
        implementation="dtsweep.compression.topk:TopK",
        exchange="all_gather",
        reads={"compression_ratio": 0.01},
        can_be_coded=True,
    ),
    "randomk": CompressionInfo(
        implementation="dtsweep.compression.randomk:RandomK", exchange="all_reduce", reads={"compression_ratio": 0.01}
    ),
    "powersgd": CompressionInfo(
        implementation="dtsweep.compression.powersgd:PowerSgd",
        exchange="all_reduce",
        reads={"compression_rank": 4},
        needs_matrices=True,
    ),
}
"""Every compression by the name that the axis uses."""

CODINGS = ("zstd",)
"""Values of the axis `compression_coding`."""

COMPRESSION_FIELDS = ("compression_coding", "compression_ratio", "compression_rank")
"""The fields of a point that only some compressions read."""


def reads_of(compression: str | None) -> Mapping[str, Any]:
    """The fields of a point that a compression reads, with its own defaults; none without one.

    >>> reads_of("topk")
    {'compression_coding': None, 'compression_ratio': 0.01}
    """
    if compression is None:
        return {}
    info = COMPRESSIONS[compression]
    return {**({"compression_coding": None} if info.can_be_coded else {}), **info.reads}
