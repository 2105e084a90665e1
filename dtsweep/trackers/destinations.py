"""Destinations of trials: the trackers, their clients, and a place of one."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Protocol

from dtsweep.errors import (
    StorageError,
    SweepError,
    error_line,
    without_credentials,
)
from dtsweep.trackers.exported import Export, ExportedTrial


class Tracker(Protocol):
    """A place of a tracker that is open."""

    place: str
    """Its address, without credentials."""

    def describe(self, export: Export) -> None:
        """Store what holds for all trials, such as units."""

    def has(self, trial: ExportedTrial) -> bool:
        """True if this attempt was sent before."""

    def send(self, trial: ExportedTrial) -> None:
        """Send a trial, unless another process may be sending it: then `has` stays False."""


@dataclass(frozen=True, kw_only=True)
class TrackerInfo:
    """A kind of tracker."""

    implementation: str
    """Its class, as `file:class`; called with an export and a place."""

    module: str
    """Client that it imports."""

    place: str
    """Meaning of its place."""

    has_default: bool = False
    """True if the client knows a place by itself."""


TRACKERS: Mapping[str, TrackerInfo] = MappingProxyType(
    {
        "mlflow": TrackerInfo(
            implementation="to_mlflow:MlflowRuns", module="mlflow", place="URI", has_default=True
        ),
        "wandb": TrackerInfo(implementation="to_wandb:WandbRuns", module="wandb", place="FOLDER"),
        "tensorboard": TrackerInfo(
            implementation="to_tensorboard:TensorboardRuns", module="tensorboard", place="FOLDER"
        ),
    }
)
"""Kinds of trackers by name."""


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A tracker, and a place in it."""

    tracker: str
    """A name in `TRACKERS`."""

    out: str | None
    """URI or folder; None is the client's default."""

    def __str__(self) -> str:
        """Give the tracker and the place, without credentials."""
        return without_credentials(":".join(filter(None, (self.tracker, self.out))))

    def check(self) -> None:
        """Refuse a place that is missing, and a client that is not installed.

        Raises:
            SweepError: it can't be used.
        """
        info = TRACKERS[self.tracker]
        if self.out is None and not info.has_default:
            raise SweepError(f"{self.tracker} needs a place: add --out {info.place}")
        if importlib.util.find_spec(info.module) is None:
            raise SweepError(
                f"{self.tracker} needs its client, which is not installed: pip install "
                "'dtsweep[trackers]'"
            )

    def open(self, export: Export) -> Tracker:
        """Reach the tracker.

        Raises:
            SweepError: the place can't be used.
            StorageError: it does not answer, or refuses.
        """
        file, _, name = TRACKERS[self.tracker].implementation.partition(":")
        tracker_class = getattr(import_module(f"dtsweep.trackers.{file}"), name)
        try:
            tracker: Tracker = tracker_class(export, self.out)
        except SweepError:
            raise
        except Exception as error:  # clients raise whatever their libraries do
            raise StorageError(f"{self} can't be used: {error_line(error)}") from error
        return tracker


def send_trials(export: Export, tracker: Tracker) -> int:
    """Send the trials that the tracker does not have; return how many were sent.

    Args:
        export: the trials.
        tracker: where they go.

    Raises:
        StorageError: the tracker fails; trials before that are sent.
    """
    new = [trial for trial in export.trials if not tracker.has(trial)]
    count = 0
    try:
        tracker.describe(export)
        for trial in new:
            tracker.send(trial)
            if tracker.has(trial):
                count += 1
    except Exception as error:
        raise StorageError(f"{tracker.place} fails: {error_line(error)}") from error
    return count
