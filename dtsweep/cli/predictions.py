"""Predictions of configurations that a user asks for: in the terminal, and as JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import PER_SAMPLES, rows_of, setting_columns
from dtsweep.analysis.settings import text_of
from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.predict.asked import Asked, asked_of, read_settings, varied_names
from dtsweep.predict.model import PerformanceModel, performance_model
from dtsweep.report.labels import passes_label, point_label, trial_label
from dtsweep.report.records import records_of
from dtsweep.text import (
    count_of,
    ends_of,
    format_ends,
    format_number,
    format_rates,
    listed,
    print_table,
    say,
    tables_that_fit,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

NEAR, SOME_WAY = 0.5, 0.8
"""Distances up to which a configuration is near the measured ones, or some way off."""

_SHOWN = 3
"""Number of points to name, of several."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predictions:
    """Predictions of one model in one environment."""

    model: PerformanceModel
    asked: Sequence[Asked]
    table: pd.DataFrame
    """Rows of `PerformanceModel.predict`, with `where`, the distance in words."""

    varying: Sequence[str]
    """Settings that vary among the configurations and the measured points."""


def predictions_of(study: Study, texts: Sequence[str]) -> list[_Predictions]:
    """Predict configurations for each measured model and environment.

    Args:
        study: of the results.
        texts: settings, as `read_settings` takes them.

    Raises:
        SweepError: nothing was measured, or the settings can't be used.
    """
    configurations = read_settings(texts)
    models = performance_model(study)
    if not models and not study.trials.empty:
        raise SweepError(
            "no trial that ended ok has a rate, workers and a micro_batch, so nothing can be "
            "predicted; import micro_batch with the other columns"
        )
    if not models:
        raise SweepError("no trial ended ok, so nothing can be predicted; the report says why")
    varied = varied_names(configurations)
    predictions = []
    for model in models:
        asked = [asked_of(one, model.points, varied=varied) for one in configurations]
        table = model.predict([one.settings for one in asked])
        table["where"] = [_where(row, model.points) for _, row in table.iterrows()]
        columns = [name for name in setting_columns(model.points) if name != "environment"]
        rows = [*rows_of(table[columns]), *rows_of(model.points[columns])]
        varying = [name for name in columns if len({text_of(row[name]) for row in rows}) > 1]
        predictions.append(_Predictions(model=model, asked=asked, table=table, varying=varying))
    return predictions


def _where(row: pd.Series[Any], points: pd.DataFrame) -> str:
    """Put the distance to the measured points into words."""
    if row["reason"] is not None:
        return "unsupported"
    if row["point_id"] is not None:
        return "measured"
    words = "far"
    if row["distance"] <= NEAR:
        words = "near"
    elif row["distance"] <= SOME_WAY:
        words = "some way off"
    beyond = []
    for name in ("workers", "nodes", "micro_batch", "accumulation"):
        measured = points["hosts" if name == "nodes" else name].dropna()
        if not measured.empty and not measured.min() <= row[name] <= measured.max():
            beyond.append(name)
    if beyond:
        return f"{words}, beyond {' and '.join(beyond)}"
    return words


def print_predictions(predictions: Sequence[_Predictions], *, console: Console) -> None:
    """Print predictions, a table for each model and environment."""
    for one in predictions:
        count = count_of(len(one.model.points), "measured point")
        name = ""
        if len(predictions) > 1:
            name = f" of model {one.model.model_digest} in environment {one.model.env_id}"
        say(console, f"Predicted by {count}{name}:", style="bold")
        rows = one.table[one.table["reason"].isna()]
        if not rows.empty:
            for part in tables_that_fit(
                _keys(one, rows), _columns(rows), {"distance": [*rows["where"]]}, console=console
            ):
                print_table(part, console=console)
            say(console, "± and ranges are 90 % intervals of one more launch.")
        for _, row in one.table.drop(rows.index).iterrows():
            say(console, f"{trial_label(row, one.varying)}: {row['reason']}.")
        bases = {asked.base["point_id"]: asked.base for asked in one.asked}
        names = [f"{trial_label(base, one.varying)} ({name})" for name, base in bases.items()]
        where = listed(names, most=_SHOWN)
        say(console, f"Settings that were not given are those of {where}.")


def _keys(one: _Predictions, rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns that name configurations; nodes where they vary, among measured points too."""
    keys = {
        "point": [point_label(row, one.varying) for _, row in rows.iterrows()],
        "workers": [f"{workers}" for workers in rows["workers"]],
    }
    if len({*rows["nodes"], *one.model.points["hosts"].dropna()}) > 1:
        keys["nodes"] = [f"{nodes}" for nodes in rows["nodes"]]
    passes = [passes_label(row) for _, row in rows.iterrows()]
    return {**keys, "micro_batch ×\naccumulation": passes}


def _columns(table: pd.DataFrame) -> dict[str, list[str]]:
    """Cells of what is known of at least one configuration."""
    rates = format_rates(table["samples_per_s"], *ends_of(table, "samples_per_s"))
    columns = {"samples/s": rates}
    for name, header, unit in (
        ("latency_s", "step (ms)", 1e3),
        ("energy_j_per_sample", "J/sample", 1),
        (PER_SAMPLES, "$ per M samples", 1),
    ):
        columns[header] = [
            "" if math.isnan(value) else format_ends(value * unit, low * unit, high * unit)
            for value, low, high in zip(table[name], *ends_of(table, name), strict=True)
        ]
    mib = table["memory_peak_bytes"].astype("float64") / 2**20
    columns["memory (MiB)"] = [format_number(value, digits=3) for value in mib]
    return {header: cells for header, cells in columns.items() if any(cells)}


def predictions_json(predictions: Sequence[_Predictions]) -> list[dict[str, Any]]:
    """Give predictions as JSON values: `docs/schemas/predict.json`."""
    return [
        {
            "model_digest": _text(one.model.model_digest),
            "env_id": _text(one.model.env_id),
            "measured_points": len(one.model.points),
            "predictions": records_of(
                one.table.assign(base_point_id=[asked.base["point_id"] for asked in one.asked])
            ),
        }
        for one in predictions
    ]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
