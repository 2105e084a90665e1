"""Page of a trend: a line for each of the points that became slowest."""

from __future__ import annotations

from typing import Any

from dtsweep.compare.trend import Trend
from dtsweep.compare.words import Row
from dtsweep.show.numbers import bars, numbers
from dtsweep.show.page import page_of_plots
from dtsweep.show.plot import Plot
from dtsweep.show.style import GREY, MOST_LINES, SERIES, TITLE, cut, label, layout, title
from dtsweep.text import count_of, format_number


def trend_page(compared: Row, trend: Trend) -> str:
    """Make the page of the last run's comparison, with all runs."""
    broken = [f"No longer runs: {row['label']}: {row['status']}" for row in compared["broken"]]
    sentences = [
        *broken,
        *compared["grew"],
        *compared["changes"],
        *compared["notes"],
    ]
    heading = "dtsweep · speed of runs"
    return page_of_plots(heading, [compared["words"], *sentences], [trend_plot(trend)])


def trend_plot(trend: Trend) -> Plot:
    """Plot points over runs, each over its own median, with the places where they changed."""
    names = list(trend.points)[:MOST_LINES]
    runs = [
        f"{number}{'*' if differs else ''} · {name[5:24]}"
        for number, (name, differs) in enumerate(zip(trend.runs, trend.differs, strict=True), 1)
    ]
    lines = [_line(name, trend, runs, number) for number, name in enumerate(names)]
    values = [value for line in lines for value in line["y"] if value is not None]
    ends = [0.9 * min(values, default=1.0), 1.1 * max(values, default=1.0)]
    borders = [begin - 0.5 for begin, _ in trend.changes.values()]
    border = {"type": "line", "yref": "paper", "y0": 0, "y1": 1}
    border["line"] = {"color": GREY, "dash": "dot"}
    cells = {
        name: list(map(format_number, series[trend.of])) for name, series in trend.points.items()
    }
    return Plot(
        name="trend",
        title=f"{trend.of} of {count_of(len(names), 'point')} over {count_of(len(runs), 'run')}",
        description=" ".join(trend.words()) or "No significant change of any point.",
        note="* Source, software or machine differ from the run before: the table says how. A "
        "dotted line stands where points changed significantly. Long intervals are cut off.",
        traces=lines,
        layout=layout(
            x={"title": title("run: time and commit"), "type": "category"},
            y={"title": title(f"{trend.of}, over the point's median"), "range": ends},
            lines=len(names),
            shapes=[border | {"x0": place, "x1": place} for place in borders],
        ),
        table={"run": runs, "changed": list(map("; ".join, trend.differs)), **cells},
    )


def _line(name: str, trend: Trend, runs: list[str], number: int) -> dict[str, Any]:
    """Trace of a point, with the interval of each run."""
    series, look = trend.points[name], SERIES[number]
    median = float(series[trend.of].median())
    return {
        "type": "scatter",
        "name": label(cut(name, TITLE)),
        "x": [label(run) for run in runs],
        "y": numbers(series[trend.of] / median),
        "error_y": bars(series.to_dict("records"), trend.of, unit=1 / median),
        "line": {"color": look.colour, "dash": look.dash},
        "marker": {"symbol": look.symbol},
    }
