"""The alpha–beta model of an exchange: a time for each message, and a time for each byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def alpha_beta(sizes: Sequence[int], times_s: Sequence[float]) -> tuple[float, float | None]:
    """Fit time = latency + bytes / bandwidth, by least squares of the relative error.

    Args:
        sizes: of the messages, in bytes.
        times_s: of one exchange of each, all above 0.

    Returns:
        Latency in s, at least 0, and bandwidth in bytes/s; None where more bytes take no longer.

    >>> sizes = [8, 10**6, 10**8]
    >>> latency, bandwidth = alpha_beta(sizes, [100e-6 + size / 1e9 for size in sizes])
    >>> round(latency * 1e6, 6), round(bandwidth)
    (100.0, 1000000000)
    """
    times = np.asarray(times_s, dtype=np.float64)
    columns = (
        np.stack([np.ones_like(times), np.asarray(sizes, dtype=np.float64)], axis=1)
        / times[:, None]
    )
    latency, per_byte = (
        float(value) for value in np.linalg.lstsq(columns, np.ones_like(times), rcond=None)[0]
    )
    if latency < 0:
        weights = columns[:, 1]
        latency = 0.0
        per_byte = float(weights.sum() / (weights**2).sum())
    return latency, 1 / per_byte if per_byte > 0 else None
