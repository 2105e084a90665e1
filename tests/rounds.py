"""A policy for tests: every point once, then more launches of the best one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from dtsweep.plan.policy import Round
from dtsweep.plan.trial import Rows
from dtsweep.results.statuses import FINAL
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import trial_name


@dataclass(frozen=True, kw_only=True)
class BestAgain:
    """Asks for another launch of the fastest point until it has so many."""

    sweep: Sweep
    launches: int = 2
    asked: list[int] = field(default_factory=list)
    """Number of rows of each question."""

    def rounds(
        self,
        points: Sequence[Point],
        rows: Rows,
        *,
        over: Collection[str] = (),
    ) -> Sequence[Round]:
        self.asked.append(len(rows))
        measure = self.sweep.measure
        rounds = [Round(repeat=1, points=points, measure=measure)]
        final = {row["trial_id"] for row in rows if row["status"] in FINAL} | {*over}
        rates = {
            row["point_id"]: row["samples_per_s"]
            for row in rows
            if row["status"] == "ok" and row["repeat"] == 1
        }
        longer = replace(measure, min_steps=measure.min_steps + 1)
        for repeat in range(2, self.launches + 1):
            done = rounds[-1]
            names = {trial_name(self.sweep, point, repeat=done.repeat) for point in done.points}
            if not rates or not names <= final:
                break
            best = max(points, key=lambda point: rates.get(identity(point), 0.0))
            rounds.append(Round(repeat=repeat, points=[best], measure=longer))
        return rounds
