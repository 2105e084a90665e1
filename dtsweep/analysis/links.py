"""Links of `doctor` for the performance model, and their descriptions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
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
    if not links:
        return ()
    backends = set(trials["backend"].dropna())
    devices = set(trials["devices"].dropna())
    return tuple(link for link in links if link.backend in backends and link.device in devices)


def all_reduces_of(links: Sequence[Link], gradient_bytes: float | None) -> list[AllReduce]:
    """Times of links for the gradients of a worker.

    Args:
        links: of the trials.
        gradient_bytes: bytes of a worker's gradients; None where they are unknown.
    """
    all_reduces = []
    for link in links:
        transfer_s = None
        if link.bandwidth_bytes_per_s is not None and gradient_bytes is not None:
            transfer_s = gradient_bytes / link.bandwidth_bytes_per_s
        all_reduces.append(
            AllReduce(
                workers=link.ranks,
                nodes=link.nodes,
                latency_s=link.latency_s,
                transfer_s=transfer_s,
            )
        )
    return all_reduces


def link_words(links: Sequence[Link]) -> list[str]:
    """Describe the links, a line for each number of ranks and nodes: medians."""
    kinds = defaultdict(list)
    for link in links:
        kinds[link.nodes, link.ranks, link.backend].append(link)
    lines = []
    for (nodes, ranks, backend), alike in sorted(kinds.items()):
        where = "within a node"
        if nodes > 1:
            where = f"between {nodes} nodes"
        parts = []
        latencies = [link.latency_s for link in alike if link.latency_s is not None]
        if latencies:
            parts.append(seconds(median(latencies)))
        bandwidths = [
            link.bandwidth_bytes_per_s for link in alike if link.bandwidth_bytes_per_s is not None
        ]
        if bandwidths:
            parts.append(f"size / {median(bandwidths) / 1e9:.2g} GB/s")
        if parts:
            lines.append(
                f"doctor's all-reduce of {ranks} ranks {where}: {' + '.join(parts)} ({backend})"
            )
    return lines
