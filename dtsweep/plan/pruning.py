"""Trials that would run out of device memory: by their need, or because a smaller batch has."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from dtsweep.plan.trial import Row, Trial
from dtsweep.predict.memory import need_bytes
from dtsweep.sweep.point import Point
from dtsweep.sweep.values import workload_fields

FACTS = ("memory_peak_bytes", "device_free_bytes")
"""Columns of `trials` that say something about memory, in addition to the point."""


class MemoryOutcome(NamedTuple):
    """Outcome of a trial that says something about memory."""

    point: Point
    status: str
    """`ok` or `oom_device`."""

    facts: Row
    """Row with columns `FACTS`, as far as they are known."""


class MeasuredPeaks:
    """Peaks of points that ended, by all settings but the micro-batch.

    No trial is said not to fit where none has shown the memory of its device, as on CPUs.
    """

    def __init__(self, peaks: Iterable[MemoryOutcome] = ()) -> None:
        self._capacity_bytes = 0
        self._peaks: defaultdict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
        """Largest peak of `ok` points in bytes, by micro-batch; 0 where it is unknown."""
        self._full: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
        """Micro-batches of points that ran out of memory."""
        for peak in peaks:
            self.add(peak)

    def add(self, peak: MemoryOutcome) -> None:
        """Add another."""
        free = peak.facts.get("device_free_bytes") or 0
        self._capacity_bytes = max(self._capacity_bytes, free)
        family, size = all_else(peak.point), peak.point.micro_batch
        if peak.status == "oom_device":
            self._full[family].add(size)
            return
        peaks = self._peaks[family]
        used = peak.facts.get("memory_peak_bytes") or 0.0
        peaks[size] = max(used, peaks.get(size, 0.0))

    def out_of_memory(self, trials: Iterable[Trial], *, new: Collection[str]) -> dict[str, str]:
        """Find the trials that would run out of device memory.

        A larger micro-batch needs more, all else equal; of other fields nothing is concluded.

        Args:
            trials: that wait to be measured.
            new: those (`trial_id`) that are also skipped for what they are expected to need.

        Returns:
            Why they are skipped, by `trial_id`.
        """
        if not self._peaks and not self._full:
            return {}
        reasons = {}
        for trial in trials:
            family, size = all_else(trial.point), trial.point.micro_batch
            peaks = self._peaks.get(family, {})
            largest = max(peaks, default=0)
            # A full point that needs no more than one that fitted ran out by chance.
            larger = [full for full in self._full.get(family, ()) if full > largest]
            full = min(larger, default=size)
            if full < size:
                reasons[trial.trial_id] = (
                    f"micro_batch={full} ran out of memory; --try-all measures it"
                )
                continue
            need = need_bytes({micro: peak for micro, peak in peaks.items() if peak}, size)
            capacity = self._capacity_bytes
            is_asked = trial.trial_id in new and size > largest
            if is_asked and capacity and need is not None and need > capacity:
                reasons[trial.trial_id] = (
                    f"will not fit (needs about {_gib(need)} GiB of {_gib(capacity)}); "
                    "--try-all measures it"
                )
        return reasons


def peaks_of(trials: Iterable[Trial], current: Mapping[str, Row]) -> list[MemoryOutcome]:
    """Take the peaks of trials that are done from their rows, by `trial_id`."""
    rows = [(trial.point, current[trial.trial_id]) for trial in trials]
    return [
        MemoryOutcome(point, row["status"], row)
        for point, row in rows
        if row["status"] in ("ok", "oom_device")
    ]


def all_else(point: Point) -> tuple[Any, ...]:
    """Give a point's settings but the micro-batch; to name a point would take much longer."""
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
