"""CSV files: one row per trial, the declarations of the columns, and the steps."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.escape import csv_text
from dtsweep.trackers.exported import Redact, columns_of
from dtsweep.trackers.plain_values import as_text, rows_of
from dtsweep.trackers.steps import steps_of

if TYPE_CHECKING:
    import pandas as pd

STEP_COLUMNS = ("trial_id", "attempt_id", "step", "warmup", "step_s", "loss")
"""Columns of the file of steps: of each step the slowest worker, and the mean loss."""


def trials_csv(frame: pd.DataFrame, redact: Redact) -> str:
    """Write trials with all columns; unknown numbers and texts are empty cells.

    Numbers are written with all their digits, lists as JSON.
    """
    names = list(frame.columns)
    rows = ([row.get(name) for name in names] for row in rows_of(frame))
    return _written(names, rows, redact)


def columns_csv(frame: pd.DataFrame, redact: Redact) -> str:
    """Write name, type, unit and meaning of each column, a row each."""
    rows = (
        [column.name, str(column.type), column.unit, column.meaning]
        for column in columns_of(frame).values()
    )
    return _written(["column", "type", "unit", "meaning"], rows, redact)


def steps_csv(frame: pd.DataFrame, steps: pd.DataFrame, redact: Redact) -> str:
    """Write the steps of trials: those of the warm-up and of the window."""
    of_trials = steps_of(steps)
    rows = (
        [trial_id, attempt_id, step.number, step.is_warmup, step.step_s, step.loss]
        for trial_id, attempt_id in zip(frame["trial_id"], frame["attempt_id"], strict=True)
        for step in of_trials.get(attempt_id, ())
    )
    return _written(STEP_COLUMNS, rows, redact)


def _written(names: Sequence[str], rows: Iterable[Sequence[Any]], redact: Redact) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_text(redact(name)) for name in names])
    writer.writerows([_cell(value, redact) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any, redact: Redact) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return csv_text(redact(as_text(value)))
