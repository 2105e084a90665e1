"""Canaries of a run: their drift, and how much trials that run at once slow each other down."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dtsweep.measure.drift import Change, Level, change, level_of, median_of
from dtsweep.plan.trial import Row
from dtsweep.sweep.point import World


class CanaryLevels:
    """Levels of the canaries of a run; those measured alone and next to other trials apart."""

    def __init__(self) -> None:
        self._levels: dict[tuple[str, bool], list[tuple[frozenset[str], Level]]] = {}
        self._canaries: dict[World, str] = {}
        """Point of each world's canary; another one takes its place where it ran out of memory."""

    def add(self, world: World, row: Row, *, nodes: frozenset[str]) -> bool:
        """Add a canary that ended `ok`.

        Returns:
            True if it differs from the median of the earlier ones that ran as it did, alone or not.
        """
        self._canaries[world] = row["point_id"]
        error_s, half_width = (
            math.nan if row[name] is None else row[name]
            for name in ("step_mean_s_error", "half_width")
        )
        level = level_of(row["step_mean_s"], error_s=error_s, half_width=half_width)
        is_alone = not row["concurrent_trials"]
        earlier = self._levels.setdefault((row["point_id"], is_alone), [])
        drifts = bool(earlier) and change(level, _median([known for _, known in earlier])).is_drift
        earlier.append((nodes, level))
        return bool(drifts)

    def interference(self, world: World) -> Change | None:
        """Change of a canary's step time next to other trials from that alone, on the same nodes.

        None where the canary of this world was not measured both ways in this run.
        """
        point_id = self._canaries.get(world, "")
        for nodes, _ in self._levels.get((point_id, True), []):
            together = self._on(nodes, point_id, is_alone=False)
            if together:
                alone = self._on(nodes, point_id, is_alone=True)
                return change(_median(together), _median(alone))
        return None

    def _on(self, nodes: frozenset[str], point_id: str, *, is_alone: bool) -> list[Level]:
        """Levels of a canary on these nodes: others may be slower by themselves."""
        measured = self._levels.get((point_id, is_alone), [])
        return [level for where, level in measured if where == nodes]


def _median(levels: Sequence[Level]) -> Level:
    return median_of(Level(*np.transpose(levels)))
