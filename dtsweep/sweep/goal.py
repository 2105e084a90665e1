"""Goals: what a configuration should be best at, and what it has to keep to."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from dtsweep.errors import SweepError


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


@dataclass(frozen=True, kw_only=True)
class Question:
    """Question that a sweep is measured for until it is decided."""

    goal: Goal | None = None
    """None asks which points are on the frontier."""
    indifference: float = 0.03
    """Indifference zone: difference of two points that makes no practical difference, as a share.

    Points within it count as equal.
    """
    confidence: float = 0.95
    """Probability of a right answer, over all looks at the data."""
    max_launches: int = 8
    """Launches of a point, at most."""

    def __post_init__(self) -> None:
        """Refuse numbers that can't be meant."""
        if not 0 < self.indifference < 1:
            raise SweepError(
                f"indifference={self.indifference:g} must be above 0 and below 1: a share, such as "
                "0.03",
                word="indifference",
            )
        if not 0.5 <= self.confidence < 1:
            raise SweepError(
                f"confidence={self.confidence:g} must be at least 0.5 and below 1: a probability, "
                "such as 0.95",
                word="confidence",
            )
        if self.max_launches < 2:
            raise SweepError(
                f"max_launches={self.max_launches} must be at least 2: one launch of each point "
                "decides nothing; Measure(repeats=1) measures a plain grid",
                word="max_launches",
            )

    def as_json(self) -> str:
        """Write it as the column `question` of `trials`.

        >>> Question.from_json(Question(max_launches=3).as_json())
        Question(goal=None, indifference=0.03, confidence=0.95, max_launches=3)
        """
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Question:
        """Read what `as_json` wrote."""
        values = json.loads(text)
        if values["goal"] is not None:
            goal = values["goal"]
            values["goal"] = Goal(**{**goal, "allow": tuple(goal["allow"])})
        return cls(**values)


GOALS = {
    "throughput": Goal(maximize="samples_per_s"),
    "fast-validation": Goal(minimize="latency_s", least_rate=0.5),
    "energy": Goal(minimize="energy_j_per_sample"),
}
"""Goals by name."""
