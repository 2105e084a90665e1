"""Points of a report with the texts and keys that all plots give them, the most relevant first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from dtsweep.report.content import Content
from dtsweep.report.frontiers import Frontier
from dtsweep.report.labels import BATCH_SHAPE, point_key, point_label, trial_label
from dtsweep.show.numbers import number
from dtsweep.show.style import LABEL, cut, label
from dtsweep.text import count_of, format_number

if TYPE_CHECKING:
    import pandas as pd

_SHAPE_SHOWN = 12
"""Least room of a tick's label for the batch shape."""

_INTERVALS = {
    "launch": "interval within this launch",
    "pooled": "interval with the spread of other points' launches",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class PlotPoint:
    """A point as plots show it."""

    row: Mapping[str, Any]
    """Row of `dtsweep.analysis.frontier`."""
    frontier: Frontier
    """The frontier that it is compared on."""
    varying: Sequence[str]
    """Setting columns that have several values."""
    is_shown: bool
    """True on the frontier, if a user may choose it."""
    is_recommended: bool

    @cached_property
    def key(self) -> str:
        """Identifier, as `point_key` gives it."""
        return point_key(self.row)

    @cached_property
    def name(self) -> str:
        """Sync mode and settings, in plain text."""
        return trial_label(self.row, self.varying)

    @cached_property
    def hover(self) -> str:
        """Name and caution, escaped for Plotly."""
        caution = self.row["caution"]
        return label(f"{self.name} ({caution})" if caution else self.name)

    @property
    def tick(self) -> str:
        """Short name at an axis: settings, cut, and the batch shape; escaped for Plotly."""
        shape = " × ".join(str(self.row[name]) for name in BATCH_SHAPE if name in self.varying)
        settings = point_label(self.row, self.varying)
        if not shape:
            return label(cut(settings))
        room = LABEL - 3 - max(len(shape), _SHAPE_SHOWN)
        return label(f"{cut(settings, room)} · {shape}")

    @property
    def launches(self) -> str:
        """Number of launches, and the kind of the interval."""
        import pandas as pd

        kind = "no interval"
        if pd.notna(self.row["interval"]):
            kind = _INTERVALS.get(str(self.row["interval"]), "interval over launches")
        return f"{count_of(int(self.row['launches']), 'launch')}, {kind}"


@lru_cache(maxsize=1)
def plot_points(content: Content) -> tuple[PlotPoint, ...]:
    """Points of all frontiers: recommended ones, then those shown, then by throughput.

    Points without a throughput are the last ones. All plots of a report share the points.
    """
    recommended = {point_key(choice.point) for choice in content.recommendations}
    points = [
        point for frontier in content.frontiers for point in _of(frontier, content, recommended)
    ]
    return tuple(sorted(points, key=_relevance))


def _of(frontier: Frontier, content: Content, recommended: set[str]) -> Iterable[PlotPoint]:
    shown = set(frontier.shown.index)
    rows = frontier.points.to_dict("records")
    for index, row in zip(frontier.points.index, rows, strict=True):
        yield PlotPoint(
            row={str(name): value for name, value in row.items()},
            frontier=frontier,
            varying=content.varying,
            is_shown=index in shown,
            is_recommended=point_key(row) in recommended,
        )


def _relevance(point: PlotPoint) -> tuple[bool, bool, float]:
    rate = number(point.row["samples_per_s"])
    order = math.inf if rate is None else -rate
    return (not point.is_recommended, not point.is_shown, order)


def shape_title(varying: Sequence[str]) -> str:
    """Title of an axis of points: it names the numbers of the batch shape in the ticks' labels."""
    shape = " × ".join(name for name in BATCH_SHAPE if name in varying)
    return f"settings · {shape}" if shape else "settings"


def name_columns(points: Sequence[PlotPoint]) -> dict[str, list[str]]:
    """First columns of a table of points: their frontier, if there are several, and settings."""
    columns = {}
    frontiers = [point.frontier.name for point in points]
    if len(set(frontiers)) > 1:
        columns["frontier"] = frontiers
    columns["point"] = [point.name for point in points]
    return columns


def frame_of_points(points: Sequence[PlotPoint]) -> pd.DataFrame:
    """Rows of points as a table, in their order."""
    import pandas as pd

    return pd.DataFrame([point.row for point in points])


def best_sentence(points: Sequence[PlotPoint]) -> str:
    """Sentence on the point of the highest throughput; empty without points."""
    known = [point for point in points if point.row["samples_per_s"] > 0]
    if not known:
        return ""
    best = max(known, key=lambda point: float(point.row["samples_per_s"]))
    rate = format_number(best.row["samples_per_s"])
    step_ms = format_number(best.row["latency_s"] * 1e3)
    return f"Highest throughput: {best.name}, {rate} samples/s with steps of {step_ms} ms."
