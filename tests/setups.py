"""Setups of plain data parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.predict.setups import NOTHING, Setups


def setups_of(
    *,
    workers: Any,
    nodes: Any = 1,
    micro_batch: Any = 1,
    accumulation: Any = 1,
    categories: Mapping[str, Any] = NOTHING,
    numbers: Mapping[str, Any] = NOTHING,
) -> Setups:
    """Make setups of plain synchronous data parallelism; single values stand for all."""
    count = len(workers)

    def column(values: Any, kind: Any = np.float64) -> NDArray[Any]:
        return np.array(np.broadcast_to(np.asarray(values, dtype=kind), (count,)))

    return Setups(
        workers=column(workers),
        participants=column(workers),
        nodes=column(nodes),
        micro_batch=column(micro_batch),
        accumulation=column(accumulation),
        period=column(1),
        payload=column(1),
        servers=column(0),
        is_asynchronous=column(values=False, kind=np.bool_),
        exchanges_each_pass=column(values=False, kind=np.bool_),
        slowness=column(1),
        categories={name: column(values, object) for name, values in categories.items()},
        numbers={name: column(values) for name, values in numbers.items()},
    )
