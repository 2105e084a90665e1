"""Trials that would run out of device memory, because a smaller micro-batch has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dtsweep.plan.trial import Trial
from dtsweep.sweep.point import Point, identity


class FittingPoints:
    """Points that ended `ok`, found by their scalars: to name a point takes much longer."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        """Add these."""
        self._points: defaultdict[tuple[Any, ...], list[Point]] = defaultdict(list)
        for point in points:
            self.add(point)

    def add(self, point: Point) -> None:
        """Add another."""
        self._points[_scalars(point)].append(point)

    def largest(self, full: Point) -> int:
        """The largest micro-batch that ended well, all else as in this point.

        0 where there is none.
        """
        near = self._points.get(_scalars(full), [])
        family = ""
        if near:
            family = _all_else(full)
        return max((point.micro_batch for point in near if _all_else(point) == family), default=0)


def out_of_memory(
    trials: Iterable[Trial], full: Iterable[Point], *, fine: FittingPoints
) -> dict[str, str]:
    """Find the trials that need at least the memory that other points did not have.

    A larger micro-batch needs more, all else equal; of other fields nothing is concluded.

    Args:
        trials: that wait to be measured.
        full: points that ended as `oom_device`.
        fine: a full point that needs no more than one of them ran out by chance.

    Returns:
        Why they are skipped, by `trial_id`.
    """
    full = [point for point in full if point.micro_batch > fine.largest(point)]
    # Few points differ from a full one in the workload alone.
    scalars = {_scalars(point) for point in full}
    least: dict[str, int] = {}
    for point in full:
        family = _all_else(point)
        least[family] = min(point.micro_batch, least.get(family, point.micro_batch))
    near = {trial.trial_id: trial.point for trial in trials if _scalars(trial.point) in scalars}
    return {
        trial_id: f"micro_batch={smaller} ran out of memory; --try-all measures it"
        for trial_id, point in near.items()
        if (smaller := least.get(_all_else(point), point.micro_batch)) < point.micro_batch
    }


def _scalars(point: Point) -> tuple[Any, ...]:
    return tuple(value for name, value in point.scalars().items() if name != "micro_batch")


def _all_else(point: Point) -> str:
    return identity(replace(point, micro_batch=1))
