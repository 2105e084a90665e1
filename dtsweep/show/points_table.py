"""Table of the points of a page: cells as text, and the numbers that sort and filter them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.settings import axis_name
from dtsweep.report.content import Content
from dtsweep.report.labels import (
    BATCH_SHAPE,
    model_columns,
    model_label,
    point_key,
    trial_labels,
    update_labels,
)
from dtsweep.report.limits import rows_of_bounds
from dtsweep.report.tables import (
    amount_columns,
    batch_columns,
    caution_columns,
    error_columns,
    limit_columns,
    measured_columns,
    objective_columns,
    plain_headers,
    share_columns,
)

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = re.compile(r"~?([\d.,]+(?:e[+-]?\d+)?)(?: ±.*| \(.*\)| –.*)?")
"""Cell of a measured value, with the number that it begins with."""

_RANGES = ("step ms", "samples/s", "memory MiB", "memory GiB")
"""Headers of the columns that have a filter by smallest and largest number."""

_MOST_CHOICES = 40
"""Largest number of values of a setting for which it has a filter."""


NO_POINTS: Mapping[str, Any] = {"columns": [], "ids": [], "labels": [], "filters": []}
"""Table of points of a page without any."""


def table_of(content: Content) -> dict[str, Any]:
    """Make the table of all points.

    Returns:
        JSON values: `columns` (header, cells, `values` that sort, None for a column that its cells
        sort, and `is_range` for one with a filter by range), `ids` and `labels` of the rows, and
        `filters` (a name and a value per row, for each setting that varies).
    """
    import pandas as pd

    if not content.frontiers:
        return dict(NO_POINTS)
    rows = pd.concat([frontier.points for frontier in content.frontiers])
    labels = pd.concat([frontier.labels for frontier in content.frontiers])
    recommended = {point_key(one.point) for one in content.recommendations}
    is_other = [point_key(row) not in recommended for row in rows.to_dict("records")]
    # Recommended points first, then by throughput, unknown ones last.
    rates = rows["samples_per_s"].fillna(-np.inf).to_numpy()
    order = np.lexsort((-rates, np.array(is_other)))
    rows, labels = rows.iloc[order], labels.iloc[order]
    products = _products(rows)
    # Settings of each point, and the numbers of its batch shape that vary.
    names = []
    for label, row in zip(labels, rows.to_dict("records"), strict=True):
        shape = " × ".join(str(row[name]) for name in BATCH_SHAPE if name in content.varying)
        names.append(" · ".join(filter(None, [str(label), shape])))
    cells = {"point": names, **products}
    cells |= plain_headers(_cells(rows, content, recommended))
    settings = {
        axis_name(name): [_value(value) for value in rows[name]] for name in content.varying
    }
    return {
        "columns": [_column(header, column) for header, column in cells.items()],
        "ids": [point_key(row) for row in rows.to_dict("records")],
        "labels": trial_labels(rows, content.varying),
        "filters": [
            {"name": name, "values": values}
            for name, values in {**products, **settings}.items()
            if 1 < len(set(values)) <= _MOST_CHOICES
        ],
    }


def _products(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of what points are compared within: meaning of an update, model, environment.

    Those with one value are left out.
    """
    names = model_columns(rows)
    columns = {
        "updates": update_labels(rows),
        "model": [model_label(row, names) for _, row in rows.iterrows()],
        "env_id": [_value(env_id) for env_id in rows["env_id"]],
    }
    return {name: cells for name, cells in columns.items() if len(set(cells)) > 1}


def _cells(rows: pd.DataFrame, content: Content, recommended: set[str]) -> dict[str, list[str]]:
    """Columns of the points as the terminal has them, the ones that decide most first."""
    bounds = rows_of_bounds(rows, content.bounds)
    amounts = amount_columns(rows)
    return (
        measured_columns(rows, varying=())
        | {"standing": [_standing(row, recommended) for row in rows.to_dict("records")]}
        | {"launches": [str(count) for count in rows["launches"]]}
        | caution_columns([str(caution) for caution in rows["caution"]])
        | {name: cells for name, cells in amounts.items() if name.startswith("memory")}
        | limit_columns(bounds)
        | batch_columns(rows, varying=content.varying)
        | measured_columns(rows, varying=content.varying)
        | objective_columns(rows, content.objectives)
        | share_columns(rows)
        | amounts
        | error_columns(rows)
    )


def _standing(row: Mapping[Any, Any], recommended: set[str]) -> str:
    """Say where a point stands: recommended, on the frontier, beaten."""
    words = []
    if point_key(row) in recommended:
        words.append("recommended")
    if row["on_frontier"]:
        words.append("on the frontier")
    elif isinstance(row["standing"], str):
        words.append("beaten")
    if row["on_frontier"] and row["knee"]:
        words.append("knee")
    if row["standing"] == "undecided":
        words.append("may be beaten")
    return ", ".join(words)


def _column(header: str, cells: Sequence[str]) -> dict[str, Any]:
    """Column with the numbers of its cells, if they are numbers; unknown ones are None."""
    matches = [_NUMBER.fullmatch(cell) for cell in cells]
    values = None
    if all(match or not cell for match, cell in zip(matches, cells, strict=True)):
        values = [float(match[1].replace(",", "")) if match else None for match in matches]
    return {
        "header": header,
        "cells": list(cells),
        "values": values if any(matches) else None,
        "is_range": header in _RANGES,
    }


def _value(value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return "none"
    if isinstance(value, float):
        # Six digits where they are enough to be this number.
        short = f"{value:g}"
        return short if float(short) == value else repr(float(value)).removesuffix(".0")
    return str(value)
