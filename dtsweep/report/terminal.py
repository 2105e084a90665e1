"""Terminal renderer of the report: frontier and scaling, with what to know before trusting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from dtsweep.errors import SHOWN, one_line, shortened
from dtsweep.report.answer import goal_in_words
from dtsweep.report.content import Content, Scaling
from dtsweep.report.frontiers import Frontier
from dtsweep.report.limits import rows_of_bounds
from dtsweep.report.recommendation import print_advice
from dtsweep.report.remarks import paragraph
from dtsweep.report.scaling_words import WORTH_RULE
from dtsweep.report.tables import (
    amount_columns,
    batch_columns,
    caution_columns,
    error_columns,
    limit_columns,
    mark_columns,
    measured_columns,
    objective_columns,
    plain_headers,
    reason_columns,
    recommendation_columns,
    scaling_columns,
    share_columns,
)
from dtsweep.text import (
    WIDE_MARK,
    count_of,
    ends_of,
    format_rate,
    plain,
    print_table,
    say,
    tables_that_fit,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from rich.console import Console

    from dtsweep.report.remarks import Remark

_MORE = "--all shows all frontiers and columns, limits, scaling, and how it was measured."

_FRONTIERS_SHOWN = 5
_REASONS_SHOWN = 8
_NEEDED = ("step\nms", "samples\n/s", "mark")
"""Columns of a table of points for which there is room at any width."""
_ADVICE_SHOWN = 2


def print_report(content: Content, *, console: Console, show_all: bool = False) -> None:
    """Print what is worth running, how it scales, and what was not measured.

    Args:
        content: of the report.
        console: where to; its width decides how close the columns stand.
        show_all: also every frontier and point, what limits each, scaling, and how it was measured;
            without it, what decides.
    """
    if not content.trials:
        say(console, "No trials in these results.")
        return
    say(console, content.headline, style="bold")
    if not content.frontiers:
        say(console, "No trial ended ok, so there is no frontier.")
    if content.frontiers:
        if content.frontier_answer:
            say(console, paragraph(content.frontier_answer), style="bold green")
        _print_advice(content, console=console, show_all=show_all)
    for doubt in (*content.unsound, *content.doubts):
        say(console, doubt.text, style="yellow")
    if show_all:
        _print_all(content, console=console)
    else:
        _print_what_decides(content, console=console)
    for section in content.sections:
        section.print(console=console)


def _print_what_decides(content: Content, *, console: Console) -> None:
    """Print the first frontier, a line for each other one and for scaling, and failures."""
    if content.frontiers:
        _print_frontiers(content.frontiers[:1], content, console=console, show_all=False)
    lines = [_frontier_in_short(frontier) for frontier in content.frontiers[1:_FRONTIERS_SHOWN]]
    hidden = len(content.frontiers) - _FRONTIERS_SHOWN
    if hidden > 0:
        lines.append(f"{count_of(hidden, 'more frontier')}.")
    recommended = [recommendation.point["point_id"] for recommendation in content.recommendations]
    lines += [_scaling_in_short(scaling, recommended) for scaling in content.scaling]
    if lines:
        say(console, "\n" + "\n".join(lines))
    rows = content.unmeasured
    _print_unmeasured(rows[rows["status"] != "skipped"], console=console, show_all=False)
    if content.frontiers:
        say(console, _MORE, style="dim")


def _print_all(content: Content, *, console: Console) -> None:
    """Print all frontiers, limits, scaling, failures and notes."""
    if content.limits:
        say(console, "\nWhat limits each point", style="bold")
        _say_each(content.limits, console=console)
    _print_frontiers(content.frontiers, content, console=console, show_all=True)
    for scaling in content.scaling:
        say(console, f"\n{scaling.title}", style="bold")
        print_table(scaling_columns(scaling, groups=scaling.groups), console=console)
    _print_worth(content, console=console)
    _print_unmeasured(content.unmeasured, console=console, show_all=True)
    _print_notes(content, console=console)


def _frontier_in_short(frontier: Frontier) -> str:
    """Name a frontier, its number of points and the one of the highest throughput."""
    rows = frontier.shown.dropna(subset=["samples_per_s"])
    if rows.empty:
        return f"{frontier.short_name}: {frontier.empty_because}"
    best = rows.sort_values("samples_per_s").iloc[-1]
    rate = format_rate(best["samples_per_s"], *ends_of(best, "samples_per_s"))
    return f"{frontier.short_name}: {count_of(len(rows), 'point')}, up to {rate} samples/s."


def _scaling_in_short(scaling: Scaling, recommended: Sequence[str]) -> str:
    """State the speed-up of the group of a recommended point, else of the highest throughput."""
    group = scaling.groups[0]
    for other in scaling.groups:
        if other["point_id"].iloc[1:].isin(recommended).any():
            group = other
            break
    columns = scaling_columns(scaling, groups=[group])
    sizes, speed_up, efficiency = (
        columns[name][-1] for name in (f"{scaling.per}s", "speed-\nup", "effi-\nciency")
    )
    label = scaling.labels[group.index[-1]]
    doubt = ""
    if caution := group.iloc[-1]["caution"]:
        doubt = f" (doubtful: {caution})"
    if "~" in speed_up + efficiency:
        doubt += f" ({WIDE_MARK})"
    return (
        f"{scaling.title.partition(',')[0]}: {label} {sizes}: {speed_up} times, "
        f"{efficiency.replace('%', ' %')}{doubt}."
    )


def _print_advice(content: Content, *, console: Console, show_all: bool) -> None:
    """Print recommendations and their answers, those for many models in a table.

    `show_all` prints the alternatives, too.
    """
    recommendations = content.recommendations
    if len(recommendations) > _ADVICE_SHOWN and not show_all:
        say(
            console,
            f"Answers for {goal_in_words(recommendations[0])} (--all says more of each)",
            style="bold green",
        )
        print_table(recommendation_columns(recommendations, content.varying), console=console)
        return
    for advice in content.advice:
        print_advice(advice, console=console, show_all=show_all)


def _say_each(remarks: Iterable[Remark], *, console: Console) -> None:
    for one in remarks:
        say(console, one.text)


def _print_notes(content: Content, *, console: Console) -> None:
    """Print how the numbers came about."""
    if not content.frontiers:
        return
    say(console, "\nHow it was measured", style="bold")
    say(
        console,
        "In all points: "
        + ", ".join(f"{name}={value}" for name, value in content.constants.items())
        + ".",
    )
    _say_each(content.notes, console=console)


def _print_frontiers(
    frontiers: Sequence[Frontier], content: Content, *, console: Console, show_all: bool
) -> None:
    """Print frontiers in tables of the same columns; `show_all` prints all their points."""
    with_points = [frontier for frontier in frontiers if frontier.points["standing"].notna().any()]
    tables = []
    if with_points:
        tables = _tables_of(with_points, content, console=console, show_all=show_all)
    narrow = ""
    if tables and not show_all:
        left_out: dict[str, list[str]] = {
            str(name): [] for table in tables[1:] for name in table if name not in tables[0]
        }
        narrow = ", ".join(plain_headers(left_out))
        tables = tables[:1]
    for frontier in frontiers:
        say(console, f"\n{frontier.title}", style="bold")
        if frontier in with_points:
            _print_frontier(frontier, tables, narrow=narrow, console=console, show_all=show_all)
        else:
            say(console, frontier.empty_because)


def _print_frontier(
    frontier: Frontier,
    tables: Sequence[pd.DataFrame],
    *,
    narrow: str,
    console: Console,
    show_all: bool,
) -> None:
    """Print one frontier; `show_all` also prints its dominated points.

    `narrow` names the columns that the terminal has no room for.
    """
    best = _best_of(frontier, show_all=show_all)
    dominated = frontier.dominated
    _print_points(frontier, best, tables, console=console)
    marks = "".join(tables[0].loc[best.index].get("mark", []))
    meanings = {"R": "recommended", "k": "knee", "?": frontier.undecided}
    named = [f"{mark} {words}" for mark, words in meanings.items() if mark in marks]
    sentences = []
    if named:
        sentences.append(f"{', '.join(named)}.")
    if frontier.alone and not show_all:
        sentences.append(f"{frontier.alone}: --all shows them.")
    if len(dominated) and not show_all:
        sentences.append(f"{frontier.dominated_count} not shown: --all shows them.")
    if narrow:
        sentences.append(f"Without room here: {narrow}.")
    if any(sentences):
        say(console, " ".join(filter(None, sentences)))
    if len(dominated) and show_all:
        say(console, f"{frontier.dominated_count}:", style="dim")
        _print_points(frontier, dominated, tables, console=console)
    if frontier.updates:
        say(console, frontier.updates)


def _best_of(frontier: Frontier, *, show_all: bool) -> pd.DataFrame:
    """Points on the frontier; without `show_all`, those that a user may choose."""
    if show_all:
        return frontier.best
    return frontier.shown


def _print_points(
    frontier: Frontier, rows: pd.DataFrame, tables: Sequence[pd.DataFrame], *, console: Console
) -> None:
    """Print the cells of some of a frontier's points; labels and cautions only where there are any.

    Labels stand in the title where all points of the frontier share one.
    """
    style = "dim"
    if rows["on_frontier"].any():
        style = ""
    for table in tables:
        cells = table.loc[rows.index]
        has_words = {
            "sync": frontier.labels.nunique() != 1,
            "caution": "caution" in cells and cells["caution"].any(),
        }
        columns = {
            str(name): cells[name].to_list() for name in cells if has_words.get(str(name), True)
        }
        print_table(columns, console=console, style=style)


def _tables_of(
    frontiers: Sequence[Frontier], content: Content, *, console: Console, show_all: bool
) -> list[pd.DataFrame]:
    """Arrange the cells of all printed points in tables, the columns that decide most first.

    What puts a point in doubt stands in each table. With `show_all`, columns without room have
    tables of their own.

    Returns:
        tables of header to cell, a row for each point, with the index of the points; without
        `show_all` the first is shown.
    """
    import pandas as pd

    points = [_best_of(frontier, show_all=show_all) for frontier in frontiers]
    if show_all:
        points += [frontier.dominated for frontier in frontiers]
    rows = pd.concat([some for some in points if len(some)])
    labels = pd.concat([frontier.labels for frontier in frontiers])
    keys = {"sync": labels[rows.index].to_list()}
    if all(frontier.labels.nunique() == 1 for frontier in frontiers):
        keys = {}
    keys |= batch_columns(rows, varying=content.varying)
    bounds = rows_of_bounds(rows, content.bounds)
    columns = measured_columns(rows, varying=content.varying) | objective_columns(
        rows, content.objectives
    )
    columns |= error_columns(rows)
    recommended = [recommendation.point for recommendation in content.recommendations]
    columns |= mark_columns(rows, recommended) | limit_columns(bounds) | amount_columns(rows)
    columns |= share_columns(rows)
    doubt = caution_columns(rows["caution"].to_list())
    needed = {*_NEEDED, *objective_columns(rows, content.objectives)}
    tables = tables_that_fit(keys, columns, doubt, console=console, needed=needed)
    if show_all:
        tables.append({**keys, **reason_columns(bounds), **doubt})
    return [pd.DataFrame(table, index=rows.index) for table in tables]


def _print_worth(content: Content, *, console: Console) -> None:
    """Print the number of workers at which one more stops paying."""
    if not content.worth.remarks:
        return
    say(console, "\nWhere one more worker stops paying", style="bold")
    say(console, WORTH_RULE)
    _say_each(content.worth.remarks, console=console)


def _print_unmeasured(rows: pd.DataFrame, *, console: Console, show_all: bool) -> None:
    """Print why trials have no numbers.

    The reasons after the first few are only counted, unless `show_all` is set.
    """
    import pandas as pd

    if rows.empty:
        return
    say(console, "\nNot measured", style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    for overflow in ("ignore", "ignore", "fold"):
        table.add_column(overflow=overflow, no_wrap=overflow == "ignore")
    if show_all:
        listed = rows
    else:
        listed = rows.head(_REASONS_SHOWN)
    for count, status, reason, log in listed.itertuples(index=False):
        lines = [
            shortened(reason, SHOWN) if pd.notna(reason) else "no reason stored",
            f"log: {one_line(log)}" if pd.notna(log) else "",
        ]
        text = "\n".join(filter(None, lines))
        table.add_row(str(count), plain(one_line(status)), plain(text))
    console.print(table)
    if hidden := len(rows) - len(listed):
        say(console, f"{count_of(hidden, 'more reason')}: --all shows them")
