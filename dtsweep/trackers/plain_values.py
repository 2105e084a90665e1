"""Values of a frame as plain Python values, and as text."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Give rows with plain Python values, without those that are null or not finite."""
    values = {name: [plain(value) for value in frame[name]] for name in frame.columns}
    return [
        {name: column[row] for name, column in values.items() if column[row] is not None}
        for row in range(len(frame))
    ]


def plain(value: Any) -> Any:
    """Convert a value of a frame to a Python one: None if it is null or not finite."""
    import pandas as pd

    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return value
    if value is None or pd.isna(value):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return pd.Timestamp(value).to_pydatetime(warn=False)
    return value


def as_text(value: Any) -> str:
    """Write a value as a tag has it: lists and truth values as JSON, times as ISO 8601."""
    if isinstance(value, list | bool):
        return json.dumps(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
