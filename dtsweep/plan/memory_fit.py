"""Trials that will not fit into the memory of a device, by a model of the peaks so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dtsweep.plan.trial import Trial
from dtsweep.sweep.point import Point

LEAST_PROBABILITY = 0.05
"""Probability to fit below which a trial is skipped."""

LEAST_PEAKS = 3
"""Measured peaks from which on a trial can be said not to fit."""

GROWTH = 1.25
"""More peaks than at the last fit, as a factor, from which on another one is worth its time."""

FACTS = ("backend", "hosts", "parameters", "blocks", "memory_peak_bytes", "device_free_bytes")
"""Columns of `trials` that a model of memory reads, in addition to the point."""


class Peak(NamedTuple):
    """Outcome of a trial that says something about memory."""

    point: Point
    status: str
    """`ok` or `oom_device`."""

    facts: Mapping[str, Any]
    """Row with columns `FACTS`, as far as they are known."""


class MemoryFit:
    """Peaks so far, and the model that is fitted to them when it is asked for.

    Nothing is skipped where no trial has shown the memory of its device, as on CPUs.
    """

    def __init__(self, peaks: Iterable[Peak] = ()) -> None:
        """Take the peaks that are known."""
        self.peaks: list[Peak] = [*peaks]
        self._fitted_to = (0, 0)
        """Peaks and full devices that the model rests on."""
        self._model: Any = None

    @property
    def knows_capacity(self) -> bool:
        """True if a trial has shown the memory of its device."""
        return any(peak.facts.get("device_free_bytes") for peak in self.peaks)

    def add(self, peak: Peak) -> bool:
        """Add another one; True if it is worth another look at the trials that wait."""
        self.peaks.append(peak)
        peaks, full = self._counts()
        return peaks >= GROWTH * self._fitted_to[0] or full > self._fitted_to[1]

    def will_not_fit(self, trials: Sequence[Trial]) -> dict[str, str]:
        """Find the trials that need more memory than a device has, but for one in twenty.

        Returns:
            Why they are skipped, by `trial_id`.
        """
        model = self._fitted()
        if model is None or not trials:
            return {}
        points = [trial.point for trial in trials]
        skipped = (model.probability_to_fit(points) < LEAST_PROBABILITY) & model.has_evidence(
            points
        )
        needs = model.predict(points).expected
        return {
            trial.trial_id: f"will not fit (needs about {_gib(need)} GiB of "
            f"{_gib(model.capacity_bytes)}); --try-all measures it"
            for trial, need, is_skipped in zip(trials, needs, skipped, strict=True)
            if is_skipped
        }

    def _fitted(self) -> Any:
        """The model of memory; None where too little is known."""
        counts = self._counts()
        if counts[0] < LEAST_PEAKS or not self.knows_capacity:
            return None
        if counts != self._fitted_to:
            # Its imports take longer than most plans.
            from dtsweep.analysis.memory import memory_model_of
            from dtsweep.analysis.settings import settings_of_points

            settings = settings_of_points(peak.point for peak in self.peaks)
            rows = [
                {
                    **one,
                    **{name: peak.facts.get(name) for name in FACTS},
                    "status": peak.status,
                }
                for one, peak in zip(settings, self.peaks, strict=True)
            ]
            self._model = memory_model_of(rows)
            self._fitted_to = counts
        return self._model

    def _counts(self) -> tuple[int, int]:
        full = sum(peak.status == "oom_device" for peak in self.peaks)
        return len(self.peaks) - full, full


def peaks_of(trials: Iterable[Trial], current: Mapping[str, Mapping[str, Any]]) -> list[Peak]:
    """Take the peaks of trials that are done from their rows, by `trial_id`."""
    rows = [(trial.point, current[trial.trial_id]) for trial in trials]
    return [
        Peak(point, row["status"], row)
        for point, row in rows
        if row["status"] in ("ok", "oom_device")
    ]


def _gib(size: float) -> str:
    gib = size / 2**30
    if gib < 10:
        return f"{gib:.2g}"
    return f"{gib:.0f}"
