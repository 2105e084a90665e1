"""Trials as other tools take them: parameters, metrics, tags and steps."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import rows_of, setting_columns
from dtsweep.errors import shortened
from dtsweep.escape import changed_texts
from dtsweep.results.schema import TRIALS
from dtsweep.secret import without_homes

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAME = 120
"""Characters of a trial's name."""

_CHOSEN = (
    "repeat",
    "seed",
    "fresh",
    "data_parallel",
    "model_parallel",
    "global_batch",
    "samples_per_update",
    "cpus_per_worker",
    "gpus_per_worker",
)
"""Parameters that are not settings of a point, or follow from them."""

_LEFT_OUT = ("attempt", "row_number", "role")
"""Columns that are neither parameters, metrics nor tags."""

UNITS: Mapping[str, str] = {column.name: column.unit for column in TRIALS if column.unit}
"""Units of the parameters and metrics that have one, by name."""


@dataclass(frozen=True, kw_only=True)
class ExportedTrial:
    """A trial, or rather the attempt that stands for it."""

    trial_id: str
    attempt_id: str
    """An attempt never changes."""

    name: str
    """Its settings that vary, in words."""

    status: str
    started_s: float
    """Unix time of its start; that of the export where it is unknown."""

    ended_s: float
    """Unix time of its end; that of its start where it is unknown."""

    parameters: Mapping[str, Any]
    """Settings, by column: text, numbers and truth values."""

    metrics: Mapping[str, float]
    """Measured numbers by column. What is unknown is left out."""

    tags: Mapping[str, str]
    """All other columns, as text; with the ids, the status and its reason."""

    steps: pd.DataFrame | None = None
    """Rows of `steps_of`; None where no step was timed."""


def exported_trials(frame: pd.DataFrame, steps: pd.DataFrame) -> list[ExportedTrial]:
    """Make what other tools take of trials.

    Args:
        frame: trials without canaries, as `dtsweep.load` gives them.
        steps: rows of the steps of these trials.
    """
    of_trials = dict(iter(steps_of(steps).groupby("attempt_id")))
    point_settings = setting_columns(frame)
    named_by = [name for name in point_settings if frame[name].nunique(dropna=False) > 1]
    settings = [*point_settings, *(name for name in _CHOSEN if name in frame)]
    numbers = set(frame.select_dtypes("number"))
    trials = []
    for row in known_rows(frame):
        others = [name for name in row if name not in settings and name not in _LEFT_OUT]
        started_s = row.get("started_at", datetime.now(UTC)).timestamp()
        parts = [row.get(name, 0.0) for name in ("startup_s", "trial_s", "overhead_s")]
        trial = ExportedTrial(
            trial_id=row["trial_id"],
            attempt_id=row["attempt_id"],
            name=_name(row, named_by),
            status=row["status"],
            started_s=started_s,
            ended_s=started_s + sum(parts),
            parameters={name: row[name] for name in settings if name in row},
            metrics={name: row[name] for name in others if name in numbers},
            tags={name: as_text(row[name]) for name in others if name not in numbers},
            steps=of_trials.get(row["attempt_id"]),
        )
        trials.append(trial)
    return trials


def steps_of(steps: pd.DataFrame) -> pd.DataFrame:
    """Give the steps of warm-up and window, over the workers: the slowest one, the mean loss.

    Returns:
        A row for each step of an attempt, with `at_s`, seconds from its first step's start.
    """
    timed = steps[steps["part"].isin(["warmup", "window"])]
    table = (
        timed.groupby(["attempt_id", "step"], sort=True)
        .agg(
            warmup=("warmup", "max"),
            at_s=("start_s", "min"),
            step_s=("step_s", "max"),
            loss=("loss", "mean"),
        )
        .reset_index()
    )
    table["at_s"] -= table.groupby("attempt_id")["at_s"].transform("first")
    return table


def known_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Give rows with plain Python values, without those that are null or infinite."""
    return [
        {name: _plain(value) for name, value in row.items() if _is_known(value)}
        for row in rows_of(frame)
    ]


def texts_without_homes(frame: pd.DataFrame) -> pd.DataFrame:
    """Trials with `~` for home folders, which stand in settings that are paths."""
    texts = {
        str(name): column.map(lambda value: changed_texts(value, without_homes), na_action="ignore")
        for name, column in frame.items()
        if column.dtype == object or str(column.dtype) in ("str", "string")
    }
    return frame.assign(**texts)


def as_text(value: Any) -> str:
    """Write a value as a tag has it: lists and truth values as JSON, times as ISO 8601."""
    if isinstance(value, list | bool):
        return json.dumps(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _plain(value: Any) -> Any:
    """Convert an array to a list, and a number of NumPy to one of Python."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_known(value: Any) -> bool:
    """True for what is neither null nor infinite."""
    return value is not None and not (isinstance(value, float) and math.isinf(value))


def _name(row: Mapping[str, Any], named_by: Collection[str]) -> str:
    """Name a trial by its settings that vary; by its id where none does."""
    settings = [
        f"{name.removeprefix('workload_')}={as_text(row[name])}" for name in named_by if name in row
    ]
    if row.get("repeat", 1) > 1:
        settings.append(f"repeat={row['repeat']}")
    return shortened(" ".join(settings) or row["trial_id"], _MOST_NAME)
