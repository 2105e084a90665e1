"""CSV of trials, for other tools."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import rows_of
from dtsweep.escape import changed_texts, csv_text
from dtsweep.secret import without_homes

if TYPE_CHECKING:
    import pandas as pd


def trials_csv(frame: pd.DataFrame) -> str:
    """Write trials with all columns; unknown numbers and texts are empty cells.

    Numbers are written with all their digits, lists as JSON.
    """
    text = io.StringIO()
    names = list(frame.columns)
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writerow({name: csv_text(name) for name in names})
    for row in rows_of(frame):
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def texts_without_homes(frame: pd.DataFrame) -> pd.DataFrame:
    """Trials with `~` for home folders, which stand in settings that are paths."""
    texts = {
        str(name): column.map(lambda value: changed_texts(value, without_homes), na_action="ignore")
        for name, column in frame.items()
        if column.dtype == object or str(column.dtype) in ("str", "string")
    }
    return frame.assign(**texts)


def _cell(value: Any) -> str:
    """Write a value: an array as JSON, a time as ISO 8601; null and infinite are empty."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or (isinstance(value, float) and math.isinf(value)):
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if isinstance(value, list | bool):
        return csv_text(json.dumps(value))
    return csv_text(value.isoformat() if isinstance(value, datetime) else str(value))
