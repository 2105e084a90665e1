"""Trials as other tools take them: parameters, metrics, tags and steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import setting_columns
from dtsweep.errors import shortened
from dtsweep.results.schema import FLOAT, INT, TRIALS, Column
from dtsweep.results.statuses import CUT
from dtsweep.trackers.plain_values import as_text, rows_of
from dtsweep.trackers.steps import Step, steps_of

if TYPE_CHECKING:
    import pandas as pd

Redact = Callable[[Any], Any]
"""Takes JSON values, and gives them as strangers may see them."""

MOST_NAME = 120
"""Characters of a trial's name."""

CHOSEN = (
    *("repeat", "seed", "fresh", "data_parallel", "model_parallel", "global_batch"),
    *("samples_per_update", "cpus_per_worker", "gpus_per_worker"),
)
"""Parameters that are not settings of a point, or follow from them."""

KEYS = ("trial_id", "attempt_id", "status", "reason", "attempt", "row_number", "role")
"""Columns that are neither parameters, metrics nor tags."""

_COLUMNS = {column.name: column for column in TRIALS}


@dataclass(frozen=True, kw_only=True)
class ExportedTrial:
    """A trial, or rather the attempt that stands for it."""

    trial_id: str
    attempt_id: str
    """Key in other tools: an attempt never changes."""

    name: str
    """Its settings that vary, in words."""

    status: str
    reason: str | None
    started_at: datetime
    """Time of the export where it is unknown."""

    seconds: float
    """From the start to the end of the attempt; 0 where it is unknown."""

    parameters: Mapping[str, Any]
    """Settings, by column: text, numbers and truth values."""

    metrics: Mapping[str, float]
    """Measured numbers by column. What is unknown is left out."""

    tags: Mapping[str, str]
    """All other columns, as text."""

    steps: Sequence[Step] = ()

    @property
    def is_ok(self) -> bool:
        """True if it was measured."""
        return self.status == "ok"

    @property
    def is_cut(self) -> bool:
        """True if the end of its run has cut it."""
        return self.status in CUT

    @property
    def started_s(self) -> float:
        """Unix time of its start, in seconds."""
        return self.started_at.timestamp()

    @property
    def ended_s(self) -> float:
        """Unix time of its end, in seconds."""
        return self.started_s + self.seconds


@dataclass(frozen=True, kw_only=True)
class Export:
    """Trials of a sweep on their way to another tool."""

    sweep: str
    """Name of the sweep."""

    trials: Sequence[ExportedTrial]
    columns: Mapping[str, Column] = field(repr=False)
    """Columns of their parameters, metrics and tags, with units."""

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics that any trial has, in the order of the columns."""
        used = {name for trial in self.trials for name in trial.metrics}
        return [name for name in self.columns if name in used]

    @property
    def parameter_names(self) -> list[str]:
        """Names of the parameters that any trial has, in the order of the columns."""
        used = {name for trial in self.trials for name in trial.parameters}
        return [name for name in self.columns if name in used]

    def units(self) -> dict[str, str]:
        """Units of the parameters and metrics, by name; of those that have one."""
        names = [*self.parameter_names, *self.metric_names]
        return {name: self.columns[name].unit for name in names if self.columns[name].unit}


def columns_of(frame: pd.DataFrame) -> dict[str, Column]:
    """Declare the columns of a frame of trials; those of the workload have no unit."""
    return {
        name: _COLUMNS.get(name) or _workload_column(name, frame[name]) for name in frame.columns
    }


def export_of(
    frame: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    sweep: str,
    redact: Redact,
    named_by: Collection[str] | None = None,
) -> Export:
    """Make what other tools take of trials.

    Args:
        frame: trials without canaries, as `dtsweep.load` gives them.
        steps: rows of the steps of these trials.
        sweep: name of the sweep.
        redact: applied to every text.
        named_by: columns that name a trial; those that vary by default.
    """
    columns = columns_of(frame)
    settings = [*setting_columns(frame), *(name for name in CHOSEN if name in frame)]
    if named_by is None:
        named_by = [
            name for name in setting_columns(frame) if frame[name].nunique(dropna=False) > 1
        ]
    of_trials = steps_of(steps)
    trials = [
        redacted(
            _trial(row, columns, settings, named_by), of_trials.get(row["attempt_id"], ()), redact
        )
        for row in rows_of(frame)
    ]
    return Export(sweep=redact(sweep), trials=trials, columns=columns)


def redacted(trial: ExportedTrial, steps: Sequence[Step], redact: Redact) -> ExportedTrial:
    """Give a trial with its steps, and with every text redacted."""
    return replace(
        trial,
        name=redact(trial.name),
        reason=redact(trial.reason),
        parameters=redact(dict(trial.parameters)),
        tags=redact(dict(trial.tags)),
        steps=steps,
    )


def _trial(
    row: Mapping[str, Any],
    columns: Mapping[str, Column],
    settings: Collection[str],
    named_by: Collection[str],
) -> ExportedTrial:
    numbers = {name for name, column in columns.items() if column.type in (INT, FLOAT)}
    others = [name for name in row if name not in settings and name not in KEYS]
    return ExportedTrial(
        trial_id=row["trial_id"],
        attempt_id=row["attempt_id"],
        name=_name(row, named_by),
        status=row["status"],
        reason=row.get("reason"),
        started_at=row.get("started_at") or datetime.now(UTC),
        seconds=sum(row.get(name, 0.0) for name in ("startup_s", "trial_s", "overhead_s")),
        parameters={name: _parameter(row[name]) for name in settings if name in row},
        metrics={name: row[name] for name in others if name in numbers},
        tags={name: as_text(row[name]) for name in others if name not in numbers},
    )


def _name(row: Mapping[str, Any], named_by: Collection[str]) -> str:
    """Name a trial by its settings that vary; by its id where none does."""
    settings = [
        f"{name.removeprefix('workload_')}={as_text(row[name])}" for name in named_by if name in row
    ]
    if row.get("repeat", 1) > 1:
        settings.append(f"repeat={row['repeat']}")
    return shortened(" ".join(settings) or row["trial_id"], MOST_NAME)


def _parameter(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    return as_text(value)


def _workload_column(name: str, values: pd.Series[Any]) -> Column:
    kinds: Mapping[str, Any] = {"i": INT, "f": FLOAT}
    kind = kinds.get(values.dtype.kind, _COLUMNS["reason"].type)
    return Column(name, kind, "", f"field {name.removeprefix('workload_')} of the workload")
