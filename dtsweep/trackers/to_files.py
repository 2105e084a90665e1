"""CSV files (trials, columns and steps) and a JSON document of trials."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dtsweep.escape import csv_text
from dtsweep.trackers.exported import Export, ExportedTrial, as_text, columns_of, rows_of, steps_of

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
"""Rises when a key of the JSON changes its meaning or goes away; keys may be added without that."""


def trials_csv(frame: pd.DataFrame) -> str:
    """Write trials with all columns; unknown numbers and texts are empty cells.

    Numbers are written with all their digits, lists as JSON.
    """
    return _written(list(frame.columns), rows_of(frame))


def columns_csv(frame: pd.DataFrame) -> str:
    """Write name, type, unit and meaning of each column, a row each."""
    rows = [
        {"column": one.name, "type": str(one.type), "unit": one.unit, "meaning": one.meaning}
        for one in columns_of(frame).values()
    ]
    return _written(["column", "type", "unit", "meaning"], rows)


def steps_csv(frame: pd.DataFrame, steps: pd.DataFrame) -> str:
    """Write the steps of trials: those of the warm-up and of the window."""
    table = frame[["trial_id", "attempt_id"]].merge(steps_of(steps), on="attempt_id")
    return _written([str(name) for name in table if name != "at_s"], rows_of(table))


def trials_json(export: Export) -> str:
    """Write all trials as a JSON document; what is unknown is left out."""
    names = [*export.parameter_names, *export.metric_names]
    document = {
        "format": FORMAT,
        "dtsweep_version": version("dtsweep"),
        "sweep": export.sweep,
        "units": export.units(),
        "meanings": {name: export.columns[name].meaning for name in names},
        "trials": [_json_values(trial) for trial in export.trials],
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _json_values(trial: ExportedTrial) -> dict[str, Any]:
    steps = [] if trial.steps is None else rows_of(trial.steps)
    names = ("step", "warmup", "step_s", "loss")
    return {**vars(trial), "steps": {name: [step.get(name) for step in steps] for name in names}}


def _written(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_text(name) for name in names])
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return csv_text(as_text(value))
