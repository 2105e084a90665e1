"""Columns of an attempt for the nodes of its workers: their types, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Charge:
    """Nodes of an attempt's workers."""

    node_types: str | None = None
    """Their types, as the column has them; None where the nodes are unknown."""

    usd_per_hour: float | None = None
    """Price of all of them for an hour; None where one has no price."""

    def columns(self, times: Mapping[str, Any]) -> dict[str, Any]:
        """Columns of its row.

        Args:
            times: columns of its row, in seconds.

        >>> times = {"startup_s": 20.0, "nodes_wait_s": 8.0, "trial_s": 6.0}
        >>> Charge(node_types="gpu:2", usd_per_hour=100.0).columns(times)
        {'node_types': 'gpu:2', 'usd_per_hour': 100.0, 'cost_usd': 0.5}
        """
        cost_usd = None
        if self.usd_per_hour is not None:
            cost_usd = self.usd_per_hour * held_s(times) / 3600
        return {
            "node_types": self.node_types,
            "usd_per_hour": self.usd_per_hour,
            "cost_usd": cost_usd,
        }


NO_CHARGE = Charge()


def held_s(row: Mapping[str, Any]) -> float:
    """Seconds for which an attempt used the nodes of its workers, by the columns of its row.

    The wait for nodes does not count, nor does the harness's own time, in which they are idle.
    """
    start_s = (row.get("startup_s") or 0.0) - (row.get("nodes_wait_s") or 0.0)
    return float(max(0.0, start_s) + (row.get("trial_s") or 0.0))
