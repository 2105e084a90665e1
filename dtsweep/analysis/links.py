"""Links that `doctor` measured, as the performance model takes them, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtsweep.model.links import AllReduce
from dtsweep.model.parameters import seconds

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.results.links import Link


def links_of_trials(links: Sequence[Link], trials: pd.DataFrame) -> tuple[Link, ...]:
    """Select the links of the trials' backends and devices.

    Args:
        links: of the results.
        trials: measured trials of one environment.
    """
    backends = set(trials["backend"].dropna())
    devices = set(trials["devices"].dropna())
    return tuple(link for link in links if link.backend in backends and link.device in devices)


def all_reduces_of(links: Sequence[Link], gradient_bytes: float) -> list[AllReduce]:
    """Times of links for the gradients of a worker."""
    return [
        AllReduce(
            workers=link.ranks,
            nodes=link.nodes,
            latency_s=link.latency_s,
            transfer_s=link.bandwidth_bytes_per_s and gradient_bytes / link.bandwidth_bytes_per_s,
        )
        for link in links
    ]


def link_words(links: Sequence[Link]) -> list[str]:
    """Name each link that the model began with."""
    lines = []
    for link in links:
        where = "within a node"
        if link.nodes > 1:
            where = f"between {link.nodes} nodes"
        line = f"doctor's all-reduce of {link.ranks} ranks {where}: {seconds(link.latency_s)}"
        if link.bandwidth_bytes_per_s:
            line += f" + size / {link.bandwidth_bytes_per_s / 1e9:.2g} GB/s"
        lines.append(f"{line} ({link.backend})")
    return lines
