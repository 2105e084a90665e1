"""Latencies of open loops next to those of a simulated queue: a section of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.queueing import LOAD
from dtsweep.report.labels import settings_label
from dtsweep.report.records import records_of
from dtsweep.text import format_integers, format_number, print_table, say, tables_that_fit

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_MEANING = (
    "Utilization is the share of time that replicas serve, in the simulation. Errors are the "
    "prediction's, from the measured latency of requests."
)


@dataclass(frozen=True, eq=False)
class Queues:
    """Section of a report: measured and predicted latencies of open loops."""

    rows: pd.DataFrame
    """Rows of `dtsweep.analysis.queueing`; never empty."""

    title = "Queueing: predicted by a simulated queue from the closed loop"

    @property
    def columns(self) -> dict[str, list[str]]:
        """Table of all points: header to cells."""
        return _keys(self.rows) | _columns(self.rows)

    @property
    def note(self) -> str:
        """Meaning of the table, and why points have no prediction."""
        reasons = self.rows["unpredicted"].value_counts()
        counts = [f"{count} not predicted: {reason}." for reason, count in reasons.items()]
        return " ".join([_MEANING, *counts])

    def print(self, *, console: Console) -> None:
        """Print the table and its note."""
        say(console, f"\n{self.title}", style="bold")
        columns = _columns(self.rows)
        for table in tables_that_fit(_keys(self.rows), columns, {}, console=console):
            print_table(table, console=console)
        say(console, self.note)

    def as_json(self) -> dict[str, Any]:
        """Give the rows as JSON values, under `queueing`; unknown is None."""
        return {"queueing": records_of(self.rows)}


def _keys(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns that name each point: the settings in which they differ, and its load."""
    names = {*setting_columns(rows), "env_id"} - {*LOAD, "workers"}
    varying = [name for name in rows if name in names and rows[name].nunique(dropna=False) > 1]
    keys = {"point": [settings_label(row, varying) for _, row in rows.iterrows()]}
    if not varying:
        keys = {}
    return keys | {
        "rate\n/s": _numbers(rows["rate"]),
        "replicas": format_integers(rows["workers"]),
    }


def _columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    columns = {
        "max\nbatch": format_integers(rows["max_batch"]),
        "max wait\nms": _numbers(rows["max_wait_s"], unit=1e-3),
        "utilization\n%": _numbers(rows["utilization"], unit=0.01),
    }
    for name in ("p50", "p99"):
        columns |= {
            f"{name} ms\nmeasured": _numbers(rows[f"step_{name}_s"], unit=1e-3),
            f"{name} ms\npredicted": _numbers(rows[f"predicted_{name}_s"], unit=1e-3),
            f"{name}\nerror %": _numbers(rows[f"error_{name}"], unit=0.01),
        }
    return columns


def _numbers(column: pd.Series[float], *, unit: float = 1.0) -> list[str]:
    """Numbers of a column in a unit; unknown is empty."""
    return [format_number(value, digits=3) for value in column.astype("float64") / unit]
