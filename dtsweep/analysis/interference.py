"""Interference: by how much trials that run at the same time slow each other down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

INTERFERENCE_COLUMNS = ("interference", "interference_low", "concurrent_trials")
"""Columns of trials that are read here."""


@dataclass(frozen=True, kw_only=True)
class Interference:
    """Interference that is larger than the indifference zone."""

    share: float
    """Median over the rows, of the step time alone."""

    concurrent: int
    """Largest number of trials that ran at the same time."""

    advised: int
    """Number at which it should lie within the zone, if it grows with the number of the others."""


def interference_over(rows: Iterable[Mapping[str, Any]], *, zone: float) -> Interference | None:
    """Interference of trials, if it is more than chance and exceeds the indifference zone.

    Args:
        rows: with `INTERFERENCE_COLUMNS`; null where it is not known.
        zone: indifference zone, as a share.

    >>> row = {"interference": 0.08, "interference_low": 0.06, "concurrent_trials": 3}
    >>> interference_over([row], zone=0.03)
    Interference(share=0.08, concurrent=4, advised=2)
    >>> interference_over([row], zone=0.10)
    """
    known = [row for row in rows if row["interference"] is not None]
    known = [row for row in known if not np.isnan(row["interference"])]
    if not known:
        return None
    share = float(np.median([row["interference"] for row in known]))
    low = float(np.median([row["interference_low"] for row in known]))
    if share <= zone or low <= 0:
        return None
    # The canary that was measured alone has the result, too.
    others = max(1, *(int(row["concurrent_trials"] or 0) for row in known))
    return Interference(share=share, concurrent=others + 1, advised=1 + int(others * zone / share))
