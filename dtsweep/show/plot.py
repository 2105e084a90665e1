"""A plot of results: Plotly traces, what they show in words, and a table of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Plot:
    """One plot, for a notebook and for a page.

    Its values are JSON values. None of them is a colour of a theme: who shows a plot sets those of
    background, axes and text, and replaces the colours of `dtsweep.show.style.DARK` in a dark one.
    Title, subtitle, description and table are plain text. Text of results in traces and layout is
    escaped for Plotly (`dtsweep.show.style.label`), which takes a subset of HTML for its own.
    """

    name: str
    """Identifier, such as `frontier`."""
    title: str
    """Title, in a few words."""
    subtitle: str = ""
    """Caution before reading it; empty if none."""
    description: str
    """Content in sentences with the main numbers, for people who can't see the plot."""
    note: str = ""
    """Sentences below the plot on how to read it; empty if none."""
    more: str = ""
    """Words of the button that shows traces with `visible` on a page; empty if there are none."""
    traces: Sequence[Mapping[str, Any]]
    """Plotly traces.

    A trace whose marks stand for points has their keys (`dtsweep.report.labels.point_key`) as
    `ids`, one per mark.
    """
    layout: Mapping[str, Any]
    """Plotly's layout, without title and colours of a theme. Axes have a title with the unit."""
    table: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The numbers behind the plot: header to cells, all of one length.

    Empty if the table of points has them.
    """
    is_table: bool = False
    """True if its numbers are so few that a page shows the table instead."""

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to draw."""
        return not self.traces
