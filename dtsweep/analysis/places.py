"""Number of nodes that configurations run on, by the measured ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtsweep.analysis.setting_values import text_of
from dtsweep.analysis.settings import NODES, Settings


@dataclass(frozen=True, kw_only=True)
class Places:
    """Numbers of nodes of measured trials."""

    nodes: Mapping[tuple[str, int], int]
    """Most frequent number of nodes, by placement and workers; of equal counts the smallest."""

    workers_per_node: Mapping[str, float]
    """Most workers on a node, by placement; infinite where all trials ran on one node."""

    def nodes_of(self, settings: Settings) -> int:
        """Give the number of nodes of a configuration.

        It is that in the settings, else the most frequent one of as many workers. Workers that
        were not measured fill nodes like the measured ones.
        """
        if settings.get(NODES):
            return int(settings[NODES])
        place = _place(settings)
        if place in self.nodes:
            return self.nodes[place]
        most = max(self.workers_per_node.values(), default=math.inf)
        return max(1, math.ceil(place[1] / self.workers_per_node.get(place[0], most)))


def places_of(measured: Sequence[Settings]) -> Places:
    """Count the nodes of measured trials, by their placement and workers."""
    counts: dict[tuple[str, int], Counter[int]] = {}
    for one in measured:
        if one.get(NODES):
            counts.setdefault(_place(one), Counter())[int(one[NODES])] += 1
    most: dict[str, int] = {}
    for (placement, workers), nodes in counts.items():
        most[placement] = max(most.get(placement, 0), math.ceil(workers / min(nodes)))
    several = {placement for (placement, _), nodes in counts.items() if max(nodes) > 1}
    return Places(
        nodes={place: _most_frequent(nodes) for place, nodes in counts.items()},
        workers_per_node={
            placement: count if placement in several else math.inf
            for placement, count in most.items()
        },
    )


def varies_nodes(measured: Sequence[Settings]) -> bool:
    """True if as many workers with one placement ran on different numbers of nodes."""
    pairs = {(_place(one), one.get(NODES)) for one in measured if one.get(NODES)}
    return len(pairs) > len({place for place, _ in pairs})


def _place(settings: Settings) -> tuple[str, int]:
    return text_of(settings.get("placement")), int(settings["workers"])


def _most_frequent(nodes: Counter[int]) -> int:
    return min(nodes, key=lambda count: (-nodes[count], count))
