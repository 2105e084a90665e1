"""Trials that would run out of device memory: by their need, or because a smaller batch has."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dtsweep.model.memory import need_bytes
from dtsweep.plan.trial import Trial
from dtsweep.sweep.point import Point
from dtsweep.sweep.values import workload_fields

FACTS = ("memory_peak_bytes", "device_free_bytes")
"""Columns of `trials` that say something about memory, in addition to the point."""


class Peak(NamedTuple):
    """Outcome of a trial that says something about memory."""

    point: Point
    status: str
    """`ok` or `oom_device`."""

    facts: Mapping[str, Any]
    """Row with columns `FACTS`, as far as they are known."""


class MeasuredPeaks:
    """Peaks of points that ended `ok`, by all settings but the micro-batch.

    No trial is said not to fit where none has shown the memory of its device, as on CPUs.
    """

    def __init__(self, peaks: Iterable[Peak] = ()) -> None:
        """Add these."""
        self._capacity_bytes = 0
        self._peaks: defaultdict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
        """Largest peak in bytes by micro-batch, by all else; 0 where it is unknown."""
        for peak in peaks:
            self.add(peak)

    def add(self, peak: Peak) -> None:
        """Add another; only its device counts of one that ran out of memory."""
        free = peak.facts.get("device_free_bytes") or 0
        self._capacity_bytes = max(self._capacity_bytes, free)
        if peak.status == "ok":
            peaks, size = self._peaks[_all_else(peak.point)], peak.point.micro_batch
            used = peak.facts.get("memory_peak_bytes") or 0.0
            peaks[size] = max(used, peaks.get(size, 0.0))

    def largest(self, full: Point) -> int:
        """The largest micro-batch that ended well, all else as in this point.

        0 where there is none.
        """
        return max(self._peaks.get(_all_else(full), ()), default=0)

    def will_not_fit(self, trials: Iterable[Trial], *, like: Point | None = None) -> dict[str, str]:
        """Find the trials that need more memory than a device has, by peaks of equal settings.

        Args:
            trials: that wait to be measured.
            like: if given, only trials that differ from it in the micro-batch alone.

        Returns:
            Why they are skipped, by `trial_id`.
        """
        if not self._capacity_bytes:
            return {}
        if like is not None:
            family = _all_else(like)
            trials = [trial for trial in trials if _all_else(trial.point) == family]
        needs = {trial.trial_id: self._need_bytes(trial.point) for trial in trials}
        return {
            trial_id: f"will not fit (needs about {_gib(need)} GiB of "
            f"{_gib(self._capacity_bytes)}); --try-all measures it"
            for trial_id, need in needs.items()
            if need is not None and need > self._capacity_bytes
        }

    def _need_bytes(self, point: Point) -> float | None:
        """Need of a larger micro-batch than those that fitted; None of others."""
        peaks = self._peaks.get(_all_else(point), {})
        if point.micro_batch <= max(peaks, default=0):
            return None
        known = {size: peak for size, peak in peaks.items() if peak}
        return need_bytes(known, point.micro_batch)


def peaks_of(trials: Iterable[Trial], current: Mapping[str, Mapping[str, Any]]) -> list[Peak]:
    """Take the peaks of trials that are done from their rows, by `trial_id`."""
    rows = [(trial.point, current[trial.trial_id]) for trial in trials]
    return [
        Peak(point, row["status"], row)
        for point, row in rows
        if row["status"] in ("ok", "oom_device")
    ]


def out_of_memory(
    trials: Iterable[Trial], full: Iterable[Point], *, fine: MeasuredPeaks
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
    least: dict[tuple[Any, ...], int] = {}
    for point in full:
        family = _all_else(point)
        least[family] = min(point.micro_batch, least.get(family, point.micro_batch))
    if not least:
        return {}
    return {
        trial.trial_id: f"micro_batch={smaller} ran out of memory; --try-all measures it"
        for trial in trials
        if (smaller := least.get(_all_else(trial.point), math.inf)) < trial.point.micro_batch
    }


def _all_else(point: Point) -> tuple[Any, ...]:
    """Settings but the micro-batch; to name a point would take much longer."""
    settings = {**point.scalars(), "micro_batch": None}
    return *settings.values(), variables_text(point), workload_text(point)


def workload_text(point: Point) -> str:
    """Give the fields of a point's workload as one text."""
    return json.dumps(workload_fields(point.workload), sort_keys=True, default=str)


def variables_text(point: Point) -> str:
    """Give the variables that a point sets as one text."""
    return json.dumps(dict(point.environment), sort_keys=True)


def _gib(size: float) -> str:
    gib = size / 2**30
    if gib < 10:
        return f"{gib:.2g}"
    return f"{gib:.0f}"
