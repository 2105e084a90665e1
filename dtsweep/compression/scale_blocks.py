"""Values as rows of blocks, and each has a scale of its own."""

from __future__ import annotations

from torch import Tensor

BLOCK = 256
"""Values that share a scale of 4 bytes."""

CHUNK = 2**16
"""Number of values that a CPU processes at a time, so that they fit into a core's cache.

A multiple of `BLOCK`.
"""


def blocks_in(numel: int) -> int:
    """Number of blocks of so many values; the last one may be shorter."""
    return -(-numel // BLOCK)


def in_chunks(values: Tensor) -> list[slice]:
    """Cut values, on a CPU a few at a time: whole blocks, but for the last one."""
    if values.device.type == "cpu":
        step = CHUNK
    else:
        step = max(len(values), 1)
    size = len(values)
    return [slice(begin, min(begin + step, size)) for begin in range(0, size, step)]


def in_rows(values: Tensor) -> list[tuple[slice, slice, Tensor]]:
    """Cut values as `in_chunks` does; a last block that is shorter comes by itself.

    Returns:
        Which values, which blocks, and a view of the values: (blocks, values of a block).
    """
    end = len(values) // BLOCK * BLOCK
    cuts = [
        *in_chunks(values[:end]),
        *([slice(end, len(values))] if end < len(values) else []),
    ]
    return [
        (
            cut,
            slice(cut.start // BLOCK, blocks_in(cut.stop)),
            values[cut].view(-1, min(BLOCK, cut.stop - cut.start)),
        )
        for cut in cuts
    ]


def largest_of(rows: Tensor) -> Tensor:
    """The largest magnitude of each row; NaN where a row has one."""
    return rows.amax(dim=1).maximum(rows.amin(dim=1).neg_())
