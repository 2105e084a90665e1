"""Grids of as many workers next to each other: a section of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.frontier import frontier
from dtsweep.analysis.study import Study
from dtsweep.report.labels import product_parts
from dtsweep.report.records import records_of
from dtsweep.report.tables import amount_columns, measured_columns
from dtsweep.text import format_integers, format_number, print_table, say, tables_that_fit

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_GRID = ["data_parallel", "model_parallel", "pipeline_parallel", "tensor_parallel"]
_PRODUCT = ["semantics", "env_id", "model_digest"]
_MEANING = (
    "A grid is data × pipeline × tensor parallel. * is on the frontier of these workers: no other "
    "point is faster in step and rate."
)


def grids_of(study: Study) -> pd.DataFrame:
    """Points of workers that were measured in several grids, of each product and environment.

    Returns:
        Of each grid its points on the frontier of these workers, else the one with the highest
        rate; columns of `frontier`. Empty where each number of workers has one grid.
    """
    import pandas as pd

    points = study.points
    sizes = sorted(points.loc[points["model_parallel"] > 1, "workers"].unique())
    kept = []
    for workers in sizes:
        rows = frontier(study, where=f"workers={workers}")
        rows = rows[rows["standing"].notna()].sort_values("samples_per_s", ascending=False)
        for _, product in rows.groupby(_PRODUCT, dropna=False, sort=False):
            is_best = ~product.duplicated(_GRID)
            if is_best.sum() > 1:
                kept.append(product[is_best | product["on_frontier"]])
    return pd.concat(kept) if kept else points.iloc[:0]


@dataclass(frozen=True, eq=False)
class Grids:
    """Section of a report: what each grid of the workers reaches."""

    rows: pd.DataFrame
    """Rows of `grids_of`."""

    def print(self, *, console: Console) -> None:
        """Print a table for each number of workers, product and environment."""
        differing = [name for name in _PRODUCT if self.rows[name].nunique(dropna=False) > 1]
        for (workers, *_), table in self.rows.groupby(
            ["workers", *_PRODUCT], dropna=False, sort=False
        ):
            parts = product_parts(table.iloc[0], differing, [])
            say(console, "\n" + " · ".join([f"Grids of {workers} workers", *parts]), style="bold")
            keys = {
                "grid": [
                    _grid(*sizes) for sizes in table[_GRID].to_numpy("float64", na_value=math.nan)
                ],
                "sync": [_mode(row) for row in table.to_dict("records")],
                "micro\nbatch": format_integers(table["micro_batch"]),
            }
            marks = {"": ["*" if is_on else "" for is_on in table["on_frontier"]]}
            for columns in tables_that_fit(keys, _columns(table), marks, console=console):
                print_table(columns, console=console)
        say(console, _MEANING)

    def as_json(self) -> dict[str, Any]:
        """Give the rows as JSON values, under `grids`; unknown is None."""
        return {"grids": records_of(self.rows)}


def _mode(row: Mapping[Any, Any]) -> str:
    """Name the mode of a point, with what its grid does not say."""
    words = [row["sync"]]
    if isinstance(row["pipeline_schedule"], str):
        words.append(row["pipeline_schedule"])
    if row["sequence_parallel"] is True:
        words.append("sequence_parallel")
    return " ".join(words)


def _grid(data: float, model: float, pipeline: float, tensor: float) -> str:
    """Name a grid; without the axes the division inside a model is unknown.

    >>> _grid(2, 4, 2, 2), _grid(2, 4, math.nan, math.nan)
    ('2 × 2 × 2', '2 × 4')
    """
    if math.isnan(pipeline) or math.isnan(tensor):
        return f"{data:.0f} × {model:.0f}"
    return f"{data:.0f} × {pipeline:.0f} × {tensor:.0f}"


def _columns(table: pd.DataFrame) -> dict[str, list[str]]:
    columns = measured_columns(table, varying=["micro_batch"]) | amount_columns(table)
    if table["bubble_share"].notna().any():
        shares = table[["bubble_share", "bubble_expected"]].to_numpy(dtype="float64")
        columns["bubble %\n(expected)"] = [_bubble(*own) for own in shares * 100]
    return columns


def _bubble(share: float, expected: float) -> str:
    """Write a share of idle time in percent with that of the schedule; empty without a pipeline.

    >>> _bubble(21.46, 20.0), _bubble(math.nan, math.nan)
    ('21.5 (20.0)', '')
    """
    if math.isnan(share):
        return ""
    return f"{format_number(share, digits=3)} ({format_number(expected, digits=3)})"
