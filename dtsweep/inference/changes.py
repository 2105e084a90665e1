"""The likeliest change of level of each of several series, tested together."""

from __future__ import annotations

import numpy as np

from dtsweep.inference.contrasts import Rows
from dtsweep.inference.variance import Numbers

_LEAST = 2
"""Values on each side of a change: a single one may be an outlier."""

_ORDERS = 2000
"""Random orders of the columns that the observed order is compared with."""


def changes_in(logs: Numbers) -> tuple[Rows, Numbers]:
    """Find the likeliest change of each series, and test it.

    Its place is the one with the largest likelihood ratio of two means to one, of normal noise of
    unknown variance (Worsley 1979). The test permutes the columns, for all series alike, and
    compares each series with the largest ratio among those that are no more significant (step-down
    maxT, Westfall and Young 1993). So the probability of any wrong change below 5 % is 5 %,
    whatever the noise's distribution and however series depend on each other, if columns without a
    change have no order. Fewer than 8 columns show none.

    Args:
        logs: (series, columns), nan where unknown; each series has a value.

    Returns:
        (series,) the first column after the change; (series,) p-values, adjusted for all.
    """
    ratios, begins = _largest_ratios(logs)
    order = np.argsort(-ratios, kind="stable")
    generator = np.random.default_rng(0)
    reached = np.ones(len(logs))
    for _ in range(_ORDERS):
        permuted, _ = _largest_ratios(generator.permutation(logs[order], axis=1))
        among_later = np.maximum.accumulate(permuted[::-1])[::-1]
        # Equal divisions are added up in another order.
        reached += among_later >= ratios[order] * (1 - 1e-9)
    p_values = np.empty(len(logs))
    p_values[order] = np.maximum.accumulate(reached / (1 + _ORDERS))
    return begins, p_values


def _largest_ratios(logs: Numbers) -> tuple[Numbers, Rows]:
    """Largest log-likelihood ratio of each series, and the column before which it changes."""
    is_known = ~np.isnan(logs)
    values = np.where(is_known, logs - np.nanmean(logs, axis=1, keepdims=True), 0.0)
    before = is_known.cumsum(axis=1)
    after = before[:, -1:] - before
    has_both = (before >= _LEAST) & (after >= _LEAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Sum of squares between the two means, as a share of all.
        shares = values.cumsum(axis=1) ** 2 * (1 / before + 1 / after)
        shares /= (values**2).sum(axis=1, keepdims=True)
    shares = np.where(has_both & np.isfinite(shares), shares, 0.0)
    ratios = -before[:, -1:] / 2 * np.log1p(-np.minimum(shares, 1 - 1e-12))
    return ratios.max(axis=1), ratios.argmax(axis=1) + 1
