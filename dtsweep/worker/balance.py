"""Shares of samples in proportion to the measured speeds of workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.sync.mode import Job

WARMUP_STEPS = 5
"""Least steps of a warm-up that speeds are measured in, by a median of its passes.

The first pass, which may take much longer than others, moves the median of five little.
"""

GAIN = 0.05
"""Least expected gain, as a share of the slowest worker's pass, for which shares are changed.

Speeds that differ by noise alone leave them as they are.
"""


def shares_for(speeds: ArrayLike, total: int) -> list[int]:
    """Deal out samples in proportion to speeds, by largest remainder, at least 1 to each worker.

    Args:
        speeds: (workers,) samples per second.
        total: samples, at least one per worker.

    Returns:
        (workers,) samples; their sum is `total`.

    >>> shares_for([2.0, 1.0], 32)
    [21, 11]
    >>> shares_for([99.0, 1.0, 1.0], 6)
    [4, 1, 1]
    """
    rates = np.asarray(speeds, dtype=np.float64)
    quotas = rates / rates.sum() * total
    shares = np.maximum(np.floor(quotas), 1).astype(np.int64)
    while shares.sum() < total:
        shares[np.argmax(quotas - shares)] += 1
    # Where a worker has its 1 sample although less is its part.
    while shares.sum() > total:
        shares[np.argmax(np.where(shares > 1, shares - quotas, -np.inf))] -= 1
    return [int(share) for share in shares]


def better_shares(shares: Sequence[int], passes_s: ArrayLike) -> list[int] | None:
    """Shares for which the slowest pass is expected to be shorter by `GAIN`; None without any.

    Args:
        shares: (workers,) samples per pass.
        passes_s: (workers,) times of such passes, in seconds.

    >>> better_shares([16, 16], [1.0, 2.0])
    [21, 11]
    >>> better_shares([16, 16], [1.0, 1.02]) is None
    True
    """
    seconds = np.asarray(passes_s, dtype=np.float64)
    if not (seconds > 0).all():
        return None
    speeds = np.asarray(shares) / seconds
    dealt = shares_for(speeds, sum(shares))
    if np.max(dealt / speeds) > (1 - GAIN) * seconds.max():
        return None
    return dealt


def balanced_shares(job: Job) -> list[int] | None:
    """Better shares by the passes since the last call, equal on all ranks; None without any.

    Called on all ranks, between runs of steps.
    """
    passes_s = np.zeros(len(job.shares))
    passes_s[job.data_rank] = job.pass_time.take()
    return better_shares(job.shares, max_over_ranks(job.device, *passes_s))
