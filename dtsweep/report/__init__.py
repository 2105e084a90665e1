"""Views of results for people and programs.

Readers and the driver; imports rich, and pandas in functions alone. In reading order:

    records         rows as JSON values
    labels          labels of points and axes
    remark_table    sentences of all remarks, by severity and code
    remarks         records of what a report says, and their words
    verdict_words   words for verdicts of comparisons and their reasons
    next_step       the run that would decide, in words
    scaling_words   where one more worker stops paying
    doubts          what not to use and what not to compare, said above the tables
    notes           how the numbers of the report came about, said below them
    frontiers       points of one product, and what can be said of the first two
    code            a point as code for dtsweep, and as the shell command of a script
    alternatives    points that are better in another respect
    lead            lead over the next point and over the plain choice
    limits          limits of points
    answer          the answer in six lines: what to take, how sure it is, what to do next
    recommendation  a recommendation in words, and as JSON values
    advice          goal of a report, its recommendations, and the points on frontiers
    tables          table columns of points and of scaling
    to_target       trainings to a target: a section
    grids           grids of as many workers next to each other: a section
    queues          latencies of open loops next to a simulated queue's: a section
    later_prices    prices of nodes that are given after the runs
    sections        the certificate of a search
    content         what the report says, computed once; the renderers below show it
    of_results      content of the report of opened results, with its sections
    as_json         the report as JSON values
    terminal        the report in the terminal
"""

from __future__ import annotations

from dtsweep.analysis.settings import axis_name
from dtsweep.report.content import Content, content_of
from dtsweep.report.frontiers import Frontier

__all__ = ["Content", "Frontier", "axis_name", "content_of"]


def __dir__() -> list[str]:
    """Offer the public names alone, as in a notebook's completion."""
    return sorted(__all__)
