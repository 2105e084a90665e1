"""Terminal renderer of the report: frontier and scaling, with what to know before trusting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from dtsweep.analysis.worthwhile import WORTH
from dtsweep.errors import SHOWN, shortened
from dtsweep.report.advice import bounds_of
from dtsweep.report.content import Content, Scaling
from dtsweep.report.frontiers import Frontier
from dtsweep.report.recommendation import goal_in_words
from dtsweep.report.sketch import MARKERS, sketch
from dtsweep.report.tables import (
    amount_columns,
    batch_columns,
    caution_columns,
    error_columns,
    knee_columns,
    limit_columns,
    measured_columns,
    objective_columns,
    reason_columns,
    recommendation_columns,
    scaling_columns,
    share_columns,
    standing_columns,
)
from dtsweep.text import count_of, fits_width, plain, print_table, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_COLOURS = ("blue", "red", "green", "magenta", "cyan", "yellow")
"""Of the markers of frontiers, in turn."""
_GROUPS_SHOWN = 6
_REASONS_SHOWN = 8
_ADVICE_SHOWN = 2
_SENTENCES_SHOWN = 6


def print_report(content: Content, *, console: Console, show_all: bool = False) -> None:
    """Print what is worth running, how it scales, and what was not measured.

    Args:
        content: of the report.
        console: where to; its width decides how close the columns stand.
        show_all: also dominated points, every scaling group and every reason.
    """
    if not content.trials:
        say(console, "No trials in these results.")
        return
    say(console, content.headline, style="bold")
    if not content.frontiers:
        say(console, "No trial ended ok, so there is no frontier.")
    if content.frontiers:
        _print_advice(content, console=console, show_all=show_all)
    for doubt in content.doubts:
        say(console, doubt, style="yellow")
    _print_sketch(content, console=console)
    if content.limits:
        say(console, "\nWhat limits each point", style="bold")
        count = len(content.recommendations)
        lines = list(content.limits)
        if count > _ADVICE_SHOWN and not show_all:
            lines = lines[count:]
            lines.append(f"{count_of(count, 'recommended point')}: --all says what limits each")
        say(console, "\n".join(lines))
    left_out = [
        header
        for frontier in content.frontiers
        for header in _print_frontier(frontier, content, console=console, show_all=show_all)
    ]
    if left_out:
        names = ", ".join(dict.fromkeys(header.replace("\n", " ") for header in left_out))
        say(console, f"\nNo room for the columns {names}: --all shows them in tables of their own.")
    for scaling in content.scaling:
        _print_scaling(scaling, console=console, show_all=show_all)
    _print_worth(content, console=console, show_all=show_all)
    _print_unmeasured(content.unmeasured, console=console, show_all=show_all)
    _print_notes(content, console=console, show_all=show_all)
    for section in content.sections:
        section.print(console=console)


def _print_advice(content: Content, *, console: Console, show_all: bool) -> None:
    """Print recommendations and their certainty, those for many models in a table.

    `show_all` prints all sentences of each, with what it gives up.
    """
    recommendations = content.recommendations
    if len(recommendations) > _ADVICE_SHOWN and not show_all:
        say(
            console,
            f"Recommended for {goal_in_words(recommendations[0])} (--all says more of each)",
            style="bold green",
        )
        print_table(recommendation_columns(recommendations, content.varying), console=console)
        return
    for first, *lines in content.advice:
        say(console, first, style="bold green")
        if lines:
            say(console, " ".join(lines[:2]))
        for line in lines[2:] if show_all else ():
            say(console, line)


def _print_sketch(content: Content, *, console: Console) -> None:
    recommended = [recommendation.point for recommendation in content.recommendations]
    if not (lines := sketch(content.frontiers, recommended=recommended, width=console.width)):
        return
    text = Text("\n" + lines)
    for markers, colour in zip(MARKERS, _COLOURS, strict=True):
        text.highlight_words(markers, style=colour)
    console.print(text)


def _print_notes(content: Content, *, console: Console, show_all: bool) -> None:
    """Print how the numbers came about, in a line each; all lines on request."""
    if not content.frontiers:
        return
    say(console, "\nHow it was measured", style="bold")
    say(
        console,
        "In all points: "
        + ", ".join(f"{name}={value}" for name, value in content.constants.items())
        + ".",
    )
    for note in content.notes:
        first, *explained = note.splitlines()
        say(
            console,
            "\n".join([first, *explained])
            if show_all or not explained
            else f"{first} --all explains them.",
        )


def _print_frontier(
    frontier: Frontier, content: Content, *, console: Console, show_all: bool
) -> list[str]:
    """Print one frontier, and return the headers of columns that there was no room for."""
    say(console, f"\n{frontier.title}", style="bold")
    best = frontier.best if show_all else frontier.shown
    dominated = frontier.dominated
    if frontier.points["standing"].isna().all():
        say(console, frontier.empty_because)
        return []
    left_out = _print_points(frontier, best, content, console=console, show_all=show_all)
    if frontier.undecided:
        say(console, frontier.undecided)
    if frontier.alone and not show_all:
        say(console, frontier.alone)
    if len(dominated) and show_all:
        say(console, f"{frontier.dominated_count}:", style="dim")
        _print_points(frontier, dominated, content, console=console, show_all=True)
    elif len(dominated):
        say(console, f"{frontier.dominated_count}: --all shows them")
    if frontier.verdict_words is not None:
        say(console, frontier.verdict_words)
    return left_out


def _print_points(
    frontier: Frontier, rows: pd.DataFrame, content: Content, *, console: Console, show_all: bool
) -> list[str]:
    """Print some of a frontier's points in one table, the columns that decide most first.

    What puts a point in doubt stands in each table.

    Returns:
        Headers of the columns that there was no room for. With `show_all` they have tables of their
        own, and the list is empty.
    """
    labels = {}
    if frontier.labels.nunique() != 1:
        labels = {"sync": frontier.labels[rows.index].to_list()}
    keys = labels | batch_columns(rows, varying=content.varying)
    bounds = bounds_of(rows, content.bounds)
    columns = measured_columns(rows, varying=content.varying) | objective_columns(
        rows, content.objectives
    )
    columns |= error_columns(rows) | standing_columns(rows)
    columns |= knee_columns(rows) | limit_columns(bounds) | amount_columns(rows)
    columns |= share_columns(rows)
    doubt = caution_columns(rows["caution"].to_list())
    tables, left_out = [keys], list[str]()
    for header, column in columns.items():
        has_room = tables[-1] == keys or fits_width(
            tables[-1] | {header: column} | doubt, console=console
        )
        if has_room and not left_out:
            tables[-1] = tables[-1] | {header: column}
        elif show_all:
            tables.append(keys | {header: column})
        else:
            left_out.append(header)
    tables += [keys | reason_columns(bounds)] if show_all else []
    style = "dim"
    if rows["on_frontier"].any():
        style = ""
    for table in tables:
        print_table(table | doubt, console=console, style=style)
    return left_out


def _print_scaling(scaling: Scaling, *, console: Console, show_all: bool) -> None:
    say(console, f"\n{scaling.title}", style="bold")
    groups = scaling.groups
    if show_all:
        listed = groups
    else:
        listed = groups[:_GROUPS_SHOWN]
    print_table(scaling_columns(scaling, groups=listed), console=console)
    if hidden := len(groups) - len(listed):
        say(console, f"{count_of(hidden, 'slower group')}: --all shows them")


def _print_worth(content: Content, *, console: Console, show_all: bool) -> None:
    """Print from how many workers on one more doesn't pay."""
    sentences = content.worth.sentences
    if not sentences or not (content.worth.is_known or show_all):
        return
    say(console, "\nFrom where one more worker doesn't pay", style="bold")
    say(
        console,
        f"It pays where it adds at least {WORTH * 100:.0f} % of what a worker of the smallest "
        "world does.",
    )
    if show_all:
        listed = sentences
    else:
        listed = sentences[:_SENTENCES_SHOWN]
    say(console, "\n".join(listed))
    if hidden := len(sentences) - len(listed):
        say(console, f"{count_of(hidden, 'more line')}: --all shows them")


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
            f"log: {log}" if pd.notna(log) else "",
        ]
        table.add_row(str(count), plain(status), plain("\n".join(filter(None, lines))))
    console.print(table)
    if hidden := len(rows) - len(listed):
        say(console, f"{count_of(hidden, 'more reason')}: --all shows them")
