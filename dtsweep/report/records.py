"""Rows as JSON values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def records_of(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Give rows as JSON values, a dict each: unknown and infinite are None, times ISO 8601 in UTC.

    Variables of workers, which rows have as JSON text, are a dict by name.

    >>> import pandas as pd
    >>> records_of(pd.DataFrame({"rate": [2.5, float("nan")], "sync": ["ddp", None]}))
    [{'rate': 2.5, 'sync': 'ddp'}, {'rate': None, 'sync': None}]
    """
    records: list[dict[str, Any]] = json.loads(
        rows.to_json(orient="records", double_precision=15, date_format="iso")
    )
    for record in records:
        if variables := record.get("environment"):
            record["environment"] = json.loads(variables)
    return records
