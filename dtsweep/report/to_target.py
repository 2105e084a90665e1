"""Trainings to a target, in the terminal and as JSON values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis import setting_columns
from dtsweep.report.labels import point_label, product_parts
from dtsweep.report.records import records_of
from dtsweep.report.tables import format_ratio
from dtsweep.text import (
    ends_of,
    format_ends,
    format_integers,
    format_number,
    format_rates,
    print_table,
    say,
    tables_that_fit,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_BY = {
    "evaluate": "by the workload's evaluate",
    "training": "by the losses of training: of samples that were trained on",
}
"""Source of the loss, in words."""

_BOUND = (
    "> is a lower bound: a launch ended before the target, at longest_s or when it could not be "
    "the best any more."
)
_SPEED_UP = "Speed-up and efficiency are those of the time, against the first row of {workers}."


@dataclass(frozen=True, eq=False)
class TargetTimes:
    """Section of a report: time, samples and cost of trainings to a target."""

    rows: pd.DataFrame
    """Rows of `dtsweep.analysis.time_to_loss`."""

    def print(self, *, console: Console) -> None:
        """Print a table for each target, model and environment; nothing where none was trained."""
        settings = setting_columns(self.rows)
        varying = [name for name in settings if self.rows[name].nunique(dropna=False) > 1]
        for _, table in self.rows.groupby(
            ["target_loss", "env_id", "model_digest"], dropna=False, sort=False
        ):
            first = table.iloc[0]
            parts = product_parts(first, _differing(self.rows), [])
            by = _BY[first["loss_by"]]
            title = [f"Training to a loss of {first['target_loss']:g}, {by}", *parts]
            say(console, "\n" + " · ".join(title), style="bold")
            keys = {
                "sync": [point_label(row, varying) for _, row in table.iterrows()],
                "workers": format_integers(table["workers"]),
                "global\nbatch": format_integers(table["samples_per_update"]),
            }
            for columns in tables_that_fit(keys, _columns(table), {}, console=console):
                print_table(columns, console=console)
            reached = table.dropna(subset=["time_to_loss_s"])
            if reached["workers"].nunique() > 1:
                say(console, _SPEED_UP.format(workers=f"workers={reached['workers'].min()}"))
            if (table["censored"] > 0).any():
                say(console, _BOUND)

    def as_json(self) -> dict[str, Any]:
        """Give the rows as JSON values, under `time_to_loss`; unknown is None."""
        return {"time_to_loss": records_of(self.rows)}


def _differing(rows: pd.DataFrame) -> list[str]:
    names = ("workload", "model_digest", "env_id")
    return [name for name in names if rows[name].nunique(dropna=False) > 1]


def _columns(table: pd.DataFrame) -> dict[str, list[str]]:
    ends = ends_of(table, "time_to_loss_s")
    times = [format_ends(*row) for row in zip(table["time_to_loss_s"], *ends, strict=True)]
    bounds = [f"> {format_number(value, digits=3)}" for value in table["trained_at_least_s"]]
    columns = {
        "time\ns": list(np.where(table["trained_at_least_s"].notna(), bounds, times)),
        "samples": [format_number(value) for value in table["samples_to_loss"]],
        "samples\n/s": format_rates(table["samples_per_s"], *ends_of(table, "samples_per_s")),
        "reached": [
            f"{total - censored} of {total}"
            for total, censored in zip(table["trainings"], table["censored"], strict=True)
        ],
    }
    if table["workers"].nunique() > 1:
        columns["speed-\nup"] = _ratios(table, "speed_up", unit=1, digits=2)
        columns["effi-\nciency %"] = _ratios(table, "efficiency", unit=100, digits=0)
    return columns


def _ratios(table: pd.DataFrame, name: str, *, unit: float, digits: int) -> list[str]:
    low, high = ends_of(table, name)
    texts = [
        format_ratio(*row, unit=unit, digits=digits)
        for row in zip(table[name], low, high, strict=True)
    ]
    return list(np.where(table[name].isna(), "", texts))
