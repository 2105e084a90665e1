"""Goals: what a configuration should be best at, and what it has to keep to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Goal: the objective of a configuration, and its limits."""

    maximize: str | None = None
    """A column of points; either this or `minimize`."""
    minimize: str | None = None
    where: str = ""
    """A condition, as `parse_condition` reads it."""
    allow: tuple[str, ...] = ()
    """Semantics in addition to exact ones."""
    least_rate: float = 0.0
    """Least `samples_per_s`, as a share of the highest among the candidates."""


GOALS = {
    "throughput": Goal(maximize="samples_per_s"),
    "fast-validation": Goal(minimize="latency_s", least_rate=0.5),
    "energy": Goal(minimize="energy_j_per_sample"),
}
"""Goals by name."""
