"""Training times by the number of workers, in the terminal and as JSON values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.report.labels import (
    model_columns,
    passes_label,
    point_label,
    product_parts,
    update_labels,
)
from dtsweep.report.records import records_of
from dtsweep.report.tables import caution_columns, format_ratio
from dtsweep.text import (
    ends_of,
    format_ends,
    format_integers,
    format_number,
    format_rates,
    is_lopsided,
    print_table,
    say,
    tables_that_fit,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_KINDS = {
    "strong": "strong scaling",
    "weak": "weak scaling",
    "free": "fastest settings of each number of workers",
}
_UNITS = {"h": 3600.0, "min": 60.0, "s": 1.0}
"""Of times, the largest first: taken where the longest has two of it."""

_WITHOUT_INTERVAL = (
    "A speed-up without ± is of too few launches: launches may differ by as much, as repeats would "
    "show."
)

_OF_THE_DATA_ALONE = (
    "The time is that of the data alone, without the start; "
    "nothing is said of the loss that it leads to."
)


@dataclass(frozen=True, eq=False)
class TrainingTimes:
    """Section of a report: training times, with the speed-ups that belong to them."""

    rows: pd.DataFrame
    """Rows of `dtsweep.analysis.training_time`."""

    def print(self, *, console: Console) -> None:
        """Print a table for each semantics, model and environment."""
        if self.rows.empty:
            say(console, "No trial ended ok, so there is no training time.")
            return
        settings = setting_columns(self.rows)
        varying = [name for name in settings if self.rows[name].nunique(dropna=False) > 1]
        for _, table in self.rows.groupby("group"):
            labels = [point_label(row, varying) for _, row in table.iterrows()]
            title = _titles(table, self.rows)
            keys = _key_columns(table)
            if len(set(labels)) == 1:
                title.append(labels[0])
            else:
                keys = {"sync": labels} | keys
            say(console, "\n" + " · ".join(title), style="bold")
            cautions = caution_columns(table["caution"].to_list())
            for columns in tables_that_fit(keys, _columns(table), cautions, console=console):
                print_table(columns, console=console)
        for note in _notes(self.rows):
            say(console, note)

    def as_json(self) -> dict[str, Any]:
        """Give the rows as JSON values, under `training_time`; unknown is None."""
        return {"training_time": records_of(self.rows)}


def _titles(table: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Give the parts of a table's title.

    These are the amount of data, the semantics, and what distinguishes the table from others.
    """
    first = table.iloc[0]
    differing = [
        name
        for name in ("workload", "model_digest", "env_id")
        if rows[name].nunique(dropna=False) > 1
    ]
    model_settings = []
    if "model_digest" in differing:
        model_settings = model_columns(rows)
    updates = dict(zip(rows.index, update_labels(rows), strict=True))
    parts = [f"Training on {first['samples']:,} samples", f"{updates[table.index[0]]} updates"]
    parts += product_parts(first, differing, model_settings)
    if first["kind"] in _KINDS:
        parts.append(_KINDS[first["kind"]])
    return parts


def _key_columns(table: pd.DataFrame) -> dict[str, list[str]]:
    return {
        "workers": format_integers(table["workers"]),
        "micro_batch ×\naccumulation": [passes_label(row) for _, row in table.iterrows()],
    }


def _columns(table: pd.DataFrame) -> dict[str, list[str]]:
    longest = table["training_time_s"].max()
    unit, seconds = next(
        ((label, size) for label, size in _UNITS.items() if longest >= 2 * size), ("s", 1.0)
    )
    times = zip(table["training_time_s"], *ends_of(table, "training_time_s"), strict=True)
    columns = {
        f"time\n{unit}": [
            format_ends(*(value / seconds for value in interval)) for interval in times
        ],
        "samples\n/s": format_rates(table["samples_per_s"], *ends_of(table, "samples_per_s")),
        "speed-\nup": _with_ends(table, "speed_up", unit=1, digits=2),
        "effi-\nciency %": _with_ends(table, "efficiency", unit=100, digits=0),
    }
    if table["cost_usd"].notna().any():
        columns["cost\nUSD"] = [format_number(cost, digits=3) for cost in table["cost_usd"]]
    for name, header in {"energy_j": "devices\nkJ", "cpu_energy_j": "CPUs\nkJ"}.items():
        if table[name].notna().any():
            columns[header] = [format_number(joules / 1000) for joules in table[name]]
    return columns


def _with_ends(table: pd.DataFrame, name: str, *, unit: float, digits: int) -> list[str]:
    """A column of ratios with their intervals; those of the base are 1, and have none."""
    is_base = table["workers"] == table["base"]
    low, high = (ends.mask(is_base) for ends in ends_of(table, name))
    return [
        format_ratio(*row, unit=unit, digits=digits)
        for row in zip(table[name], low, high, strict=True)
    ]


def _notes(rows: pd.DataFrame) -> list[str]:
    """Write notes on how to read the training times."""
    within = ""
    if (rows["interval"] == "launch").any():
        within = "; of time and rate within one launch"
    unknown = rows["speed_up_low"].isna().any()
    of_rates = zip(rows["samples_per_s"], *ends_of(rows, "samples_per_s"), strict=True)
    ends = ""
    if any(is_lopsided(*row) for row in of_rates):
        ends = ", in brackets are its ends"
    notes = {
        f"± is half of the 95 % interval{ends}{within}.": rows["interval"].notna().any(),
        _WITHOUT_INTERVAL: unknown,
        _OF_THE_DATA_ALONE: True,
    }
    return [note for note, holds in notes.items() if holds]
