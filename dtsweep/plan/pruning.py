"""Which trials would run out of device memory, because a smaller micro-batch has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dtsweep.plan.trial import Trial
from dtsweep.sweep.point import Point, identity


def out_of_memory(trials: Iterable[Trial], full: Iterable[Point], *, fine: Iterable[Point]) -> dict[str, str]:
    """Find the trials that need at least the memory that other points did not have.

    A larger micro-batch needs more, all else equal; of other fields nothing is concluded.

    Args:
        trials: that wait to be measured.
        full: points that ended as `oom_device`.
        fine: points that ended `ok`: a full one that needs no more than one of them ran out by chance.

    Returns:
        Why they are skipped, by `trial_id`.
    """
    full = list(full)
    # Few points differ from a full one in the workload alone; to name one takes much longer than to compare scalars.
    scalars = {_scalars(point) for point in full}
    fits: dict[str, int] = {}
    for point in (point for point in fine if _scalars(point) in scalars):
        family = _all_else(point)
        fits[family] = max(point.micro_batch, fits.get(family, 0))
    full = [point for point in full if point.micro_batch > fits.get(_all_else(point), 0)]
    least: dict[str, int] = {}
    for point in full:
        family = _all_else(point)
        least[family] = min(point.micro_batch, least.get(family, point.micro_batch))
    near = {trial.trial_id: trial.point for trial in trials if _scalars(trial.point) in scalars}
    return {
        trial_id: f"micro_batch={smaller} ran out of memory; prune=False measures it"
        for trial_id, point in near.items()
        if (smaller := least.get(_all_else(point), point.micro_batch)) < point.micro_batch
    }


def _scalars(point: Point) -> tuple[Any, ...]:
    return tuple(value for name, value in point.scalars().items() if name != "micro_batch")


def _all_else(point: Point) -> str:
    return identity(replace(point, micro_batch=1))
