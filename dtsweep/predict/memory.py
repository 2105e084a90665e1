"""Need of memory: measured peaks of equal settings grow linearly with the micro-batch."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping


def need_bytes(peaks: Mapping[int, float], micro_batch: int) -> float | None:
    """Give the peak of a worker with this micro-batch, by peaks of settings equal in all else.

    It lies on the line through the nearest two micro-batches that were measured. The peak is the
    most of several moments of a step, so one line through all would miss a bend.

    Args:
        peaks: largest measured peak in bytes, by micro-batch.
        micro_batch: samples of a worker's pass.

    Returns:
        Bytes; None where neither this micro-batch nor two others were measured.

    >>> need_bytes({1: 10.0, 2: 10.0, 4: 30.0}, 8)
    70.0
    """
    if micro_batch in peaks:
        return peaks[micro_batch]
    if len(peaks) < 2:
        return None
    sizes = sorted(peaks)
    upper = min(max(bisect(sizes, micro_batch), 1), len(sizes) - 1)
    low, high = sizes[upper - 1], sizes[upper]
    # More samples never need less: a lower peak is noise.
    slope = max(0.0, (peaks[high] - peaks[low]) / (high - low))
    return max(0.0, peaks[low] + slope * (micro_batch - low))
