"""Plots of results for notebooks and pages: `dtsweep.plots`.

Readers; imports Plotly in functions alone. In reading order:

    plot            what a plot is: traces, words, table
    figures         the plots as Plotly figures
"""

from __future__ import annotations

from dtsweep.plots.figures import frontier, scaling, shares

__all__ = ["frontier", "scaling", "shares"]


def __dir__() -> list[str]:
    """Offer the figures alone, as in a notebook's completion."""
    return sorted(__all__)
