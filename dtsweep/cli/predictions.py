"""Predictions of configurations that a user asks for: in the terminal, and as JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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

_SIZES = ("workers", "nodes", "micro_batch", "accumulation")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predictions:
    """Predictions of one model in one environment."""

    model: PerformanceModel
    asked: Sequence[Asked]
    table: pd.DataFrame
    """Rows of `PerformanceModel.predict`, with `where`, the distance in words."""


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
        where = [_where(row, model.points) for _, row in table.iterrows()]
        predictions.append(_Predictions(model=model, asked=asked, table=table.assign(where=where)))
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
    beyond = [name for name in _SIZES if _is_beyond(row[name], points, name)]
    if beyond:
        return f"{words}, beyond {' and '.join(beyond)}"
    return words


def _is_beyond(value: float, points: pd.DataFrame, name: str) -> bool:
    measured = points["hosts" if name == "nodes" else name].dropna()
    return not measured.empty and not measured.min() <= value <= measured.max()


def print_predictions(predictions: Sequence[_Predictions], *, console: Console) -> None:
    """Print predictions, a table for each model and environment."""
    for one in predictions:
        count = count_of(len(one.model.points), "measured point")
        name = ""
        if len(predictions) > 1:
            name = f" of model {one.model.model_digest} in environment {one.model.env_id}"
        say(console, f"Predicted by {count}{name}:", style="bold")
        _print_supported(one, console=console)
        varying = _varying(one)
        for _, row in one.table[one.table["reason"].notna()].iterrows():
            say(console, f"{trial_label(row, varying)}: {row['reason']}.")
        say(console, _bases(one))


def _print_supported(one: _Predictions, *, console: Console) -> None:
    """Print the table of the configurations that can be predicted."""
    rows = one.table[one.table["reason"].isna()]
    if rows.empty:
        return
    varying = _varying(one)
    keys = {
        "point": [point_label(row, varying) for _, row in rows.iterrows()],
        "workers": [f"{workers}" for workers in rows["workers"]],
        **_nodes(one, rows),
        "micro_batch ×\naccumulation": [passes_label(row) for _, row in rows.iterrows()],
    }
    distance = {"distance": rows["where"].tolist()}
    for part in tables_that_fit(keys, _columns(rows), distance, console=console):
        print_table(part, console=console)
    say(console, "± and ranges are 90 % intervals of one more launch.")


def _nodes(one: _Predictions, rows: pd.DataFrame) -> dict[str, list[str]]:
    """Column of the number of nodes, where it varies among rows and measured points."""
    if len({*rows["nodes"], *one.model.points["hosts"].dropna()}) < 2:
        return {}
    return {"nodes": [f"{nodes}" for nodes in rows["nodes"]]}


def _varying(one: _Predictions) -> list[str]:
    """Settings that vary among the configurations and the measured points."""
    columns = [name for name in setting_columns(one.model.points) if name != "environment"]
    rows = [*rows_of(one.table[columns]), *rows_of(one.model.points[columns])]
    return [name for name in columns if len({text_of(row[name]) for row in rows}) > 1]


def _columns(table: pd.DataFrame) -> dict[str, list[str]]:
    """Cells of what is known of at least one configuration."""
    writers: dict[str, tuple[str, Callable[..., list[str]]]] = {
        "samples_per_s": ("samples/s", format_rates),
        "latency_s": ("step (ms)", lambda *ends: _cells(*ends, unit=1e-3)),
        "energy_j_per_sample": ("J/sample", _cells),
        PER_SAMPLES: ("$ per M samples", _cells),
    }
    columns = {
        header: write(table[name], table[f"{name}_low"], table[f"{name}_high"])
        for name, (header, write) in writers.items()
        if table[name].notna().any()
    }
    mib = table["memory_peak_bytes"].astype("float64") / 2**20
    if mib.notna().any():
        columns["memory (MiB)"] = [format_number(value, digits=3) for value in mib]
    return columns


def _cells(values: Any, lows: Any, highs: Any, *, unit: float = 1.0) -> list[str]:
    return [
        "" if math.isnan(value) else format_ends(value / unit, low / unit, high / unit)
        for value, low, high in zip(values, lows, highs, strict=True)
    ]


def _bases(one: _Predictions) -> str:
    """Say where the settings are from that were not given."""
    varying = _varying(one)
    bases = {asked.base["point_id"]: asked.base for asked in one.asked}
    names = [f"{trial_label(base, varying)} ({name})" for name, base in bases.items()]
    return f"Settings that were not given are those of {listed(names, most=_SHOWN)}."


def predictions_json(predictions: Sequence[_Predictions]) -> list[dict[str, Any]]:
    """Give predictions as JSON values; unknown is None.

    Returns:
        For each model and environment `model_digest`, `env_id`, `measured_points` (a count),
        and `predictions` (rows as `PerformanceModel.predict` has them, with `where`, the distance
        in words, and `base_point_id`, the point that settings which were not given are from).
    """
    values = []
    for one in predictions:
        bases = [asked.base["point_id"] for asked in one.asked]
        values.append(
            {
                "model_digest": _text(one.model.model_digest),
                "env_id": _text(one.model.env_id),
                "measured_points": len(one.model.points),
                "predictions": records_of(one.table.assign(base_point_id=bases)),
            }
        )
    return values


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
