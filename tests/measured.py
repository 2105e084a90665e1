"""Rows of rounds, measured on a machine that is made up: the rates of points are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtsweep import Sweep
from dtsweep.metrics.rows import point_row
from dtsweep.plan.policy import Policy, Round
from dtsweep.provenance.versions import versions
from dtsweep.results.schema import TRIALS
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.task import trial_name

USUAL: Mapping[str, Any] = {
    **{"status": "ok", "role": "trial", "harness": "ray", "attempt": 1, "hosts": 1, "env_id": "e"},
    **{"window_s": 1.0, "trial_s": 2.0, "overhead_s": 0.1, "startup_s": 5.0},
    **{"model_digest": "m", "flops_per_sample": 1.0, "memory_peak_bytes": 1000},
}
"""What all rows have."""


@dataclass
class Machine:
    """Measures rounds of a sweep."""

    sweep: Sweep
    rate: Callable[[Point], float]
    """True samples per second of a point."""
    noise: float = 0.005
    """Standard deviation of a launch of a point, as a share."""
    window: float = 0.002
    """Standard error within a launch, as a share."""
    columns: Callable[[Point], dict[str, Any]] = lambda point: {}
    """Further columns of a point's rows."""
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(0)

    @property
    def points(self) -> list[Point]:
        return [each.point for each in candidates(self.sweep) if each.reason is None]

    def left_of(self, one: Round) -> list[Point]:
        """Points of a round that have no row of it."""
        done = {row["trial_id"] for row in self.rows}
        names = [(trial_name(self.sweep, each, repeat=one.repeat), each) for each in one.points]
        return [point for name, point in names if name not in done]

    def measure(self, one: Round, points: Iterable[Point] | None = None) -> None:
        """Add the rows of a round, or of some of its points."""
        for point in one.points if points is None else points:
            self.rows.append(self._row(point, one.repeat))

    def finish(self, policy: Policy) -> list[Round]:
        """Measure until a policy asks for no more; return its rounds."""
        for _ in range(30):
            rounds = policy.rounds(self.points, self.rows)
            left = self.left_of(rounds[-1])
            if not left:
                return list(rounds)
            self.measure(rounds[-1], left)
        raise AssertionError("the policy asks for more and more")

    def _row(self, point: Point, repeat: int) -> dict[str, Any]:
        rate = self.rate(point) * float(np.exp(self.rng.normal(0, self.noise)))
        latency_s = point.global_batch / rate
        number = len(self.rows) + 1
        values: Sequence[tuple[str, float]] = [
            ("samples_per_s", rate),
            *((name, latency_s) for name in ("latency_s", "step_mean_s", "step_p50_s")),
        ]
        question = self.sweep.question
        measured: dict[str, Any] = {}
        for name, value in values:
            measured |= {
                name: value,
                f"{name}_low": value * (1 - 1.96 * self.window),
                f"{name}_high": value * (1 + 1.96 * self.window),
                f"{name}_error": value * self.window,
            }
        return {
            **{column.name: None for column in TRIALS},
            **point_row(self.sweep, point),
            **versions(),
            "attempt_id": f"a{number}",
            "trial_id": trial_name(self.sweep, point, repeat=repeat),
            "point_id": identity(point),
            "repeat": repeat,
            "row_number": number,
            "session": f"s{repeat}",
            "semantics": point.semantics,
            "global_batch": point.global_batch,
            **USUAL,
            "flags": [],
            "question": question and question.as_json(),
            **measured,
            **self.columns(point),
        }
