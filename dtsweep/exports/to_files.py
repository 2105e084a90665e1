"""CSV files (trials and steps) and a JSON document of trials."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.escape import csv_text
from dtsweep.exports.exported import UNITS, ExportedTrial, as_text, known_rows, steps_of

if TYPE_CHECKING:
    import pandas as pd


def trials_csv(frame: pd.DataFrame) -> str:
    """Write trials with all columns; unknown numbers and texts are empty cells.

    Numbers are written with all their digits, lists as JSON.
    """
    return _written(list(frame.columns), known_rows(frame))


def steps_csv(frame: pd.DataFrame, steps: pd.DataFrame) -> str:
    """Write the steps of trials: those of the warm-up and of the window."""
    table = frame[["trial_id", "attempt_id"]].merge(steps_of(steps), on="attempt_id")
    return _written(list(table.columns.drop("at_s")), known_rows(table))


def trials_json(trials: Iterable[ExportedTrial], *, sweep: str) -> str:
    """Write all trials as a JSON document; what is unknown is left out."""
    document = {
        "sweep": sweep,
        "units": UNITS,
        "trials": [_json_values(trial) for trial in trials],
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _json_values(trial: ExportedTrial) -> dict[str, Any]:
    steps = [] if trial.steps is None else known_rows(trial.steps)
    names = ("step", "warmup", "step_s", "loss")
    columns = {name: [step.get(name) for step in steps] for name in names}
    return {**vars(trial), "steps": columns}


def _written(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: csv_text(name) for name in names})
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return csv_text(as_text(value))
