"""HTML of recommendations, frontiers and contents in Jupyter.

Readers. IPython gets a function for each class, by the class's name, when `dtsweep` is imported in
it. So classes that are computed know nothing of HTML, and a script pays nothing. Jupyter, VS Code
and Colab all show what IPython's formatter of `text/html` gives; IPython in a terminal shows the
`repr`.

Text is escaped by `html_text`, and home folders are left out. Colours are those of the notebook,
light or dark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.escape import html_text
from dtsweep.secret import without_homes

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.recommend import Recommendation
    from dtsweep.report.content import Content
    from dtsweep.report.frontiers import Frontier

_ROWS_SHOWN = 20
"""Most rows of a table; the others are counted."""

_CELL = "text-align: left; padding: 0.2em 0.8em"


def register() -> None:
    """Have the IPython of this process show the classes as HTML; nothing without IPython."""
    if "IPython" not in sys.modules:
        return
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None or shell.display_formatter is None:
        return
    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), make_html in _FORMATTERS.items():
        formatter.for_type_by_name(module, name, make_html)


def _recommendation_html(recommendation: Recommendation) -> str:
    """Show a recommendation: the answer in words, and code to use it."""
    from dtsweep.report.code import point_code, shell_command
    from dtsweep.report.recommendation import advice_on

    point = recommendation.point
    varying = _varying([point.to_frame().T, recommendation.others, recommendation.alternatives])
    (advice,) = advice_on([recommendation], varying)
    lines = [one.text for one in advice.remarks]
    code = shell_command(point) or point_code(point)
    return _block(lines, {}, code=code)


def _frontier_html(frontier: Frontier) -> str:
    """Show the points of a frontier."""
    from dtsweep.report.labels import trial_labels
    from dtsweep.report.tables import (
        amount_columns,
        caution_columns,
        measured_columns,
        standing_columns,
    )

    rows = frontier.shown
    lines = [frontier.title]
    if rows.empty:
        return _block([*lines, frontier.empty_because], {})
    varying = _varying([frontier.points])
    columns = {
        "point": trial_labels(rows, varying),
        **measured_columns(rows, varying=varying),
        **amount_columns(rows),
        **standing_columns(rows),
        "standing": list(rows["standing"]),
        **caution_columns(list(rows["caution"])),
    }
    remarks = [frontier.undecided, frontier.alone, frontier.updates]
    lines += filter(None, remarks)
    return _block(lines, columns)


def content_html(content: Content) -> str:
    """Show the content of a report: its answer, doubts, frontiers, scaling, how it was measured."""
    from dtsweep.report.remarks import paragraph

    advice = [one.text for advice in content.advice for one in advice.remarks]
    doubts = [one.text for one in (*content.unsound, *content.doubts)]
    answer = paragraph(content.frontier_answer)
    limits = [one.text for one in content.limits]
    parts = [_block([*filter(None, (content.headline, answer)), *advice, *doubts, *limits], {})]
    parts += map(_frontier_html, content.frontiers)
    titles = {
        "Where one more worker stops paying": content.worth.remarks,
        "How it was measured": content.notes,
    }
    parts += [
        _block([title, *(one.text for one in remarks)], {})
        for title, remarks in titles.items()
        if remarks
    ]
    return "".join(parts)


def _block(
    lines: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    *,
    code: str = "",
) -> str:
    """Make HTML of sentences, the first one bold, of a table, and of code.

    Args:
        lines: the sentences.
        columns: header to the cells of the table, all of one length; none if they are empty.
        code: to copy; empty for none.
    """
    first, *others = map(_text, lines)
    parts = [f"<p><strong>{first}</strong></p>", *(f"<p>{line}</p>" for line in others)]
    if any(columns.values()):
        parts.append(_table(columns))
    if code:
        parts.append(f"<pre>{_text(code)}</pre>")
    return f"<div>{''.join(parts)}</div>"


def _table(columns: Mapping[str, Sequence[str]]) -> str:
    """Make a table of columns; the first one names the rows."""
    from dtsweep.report.tables import plain_headers

    columns = plain_headers(columns)
    rows = list(zip(*columns.values(), strict=True))
    head = "".join(f'<th scope="col" style="{_CELL}">{_text(name)}</th>' for name in columns)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[:_ROWS_SHOWN])
    more = ""
    if len(rows) > _ROWS_SHOWN:
        more = f"<p>and {len(rows) - _ROWS_SHOWN} more</p>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x: auto">{table}</div>{more}'


def _cells(row: Sequence[str]) -> str:
    first = f'<th scope="row" style="{_CELL}; font-weight: normal">{_text(row[0])}</th>'
    others = (f'<td style="{_CELL}; white-space: nowrap">{_text(cell)}</td>' for cell in row[1:])
    return first + "".join(others)


def _text(text: str) -> str:
    """Text for HTML, without home folders."""
    return html_text(without_homes(text))


def _varying(tables: Sequence[pd.DataFrame]) -> list[str]:
    """Name the settings that points of these tables differ in."""
    import pandas as pd

    from dtsweep.analysis.launches import setting_columns

    names = setting_columns(tables[0])
    rows = pd.concat([table[names] for table in tables])
    return [name for name in names if rows[name].nunique(dropna=False) > 1]


_FORMATTERS: Mapping[tuple[str, str], Callable[[Any], str]] = {
    ("dtsweep.analysis.recommend", "Recommendation"): _recommendation_html,
    ("dtsweep.report.content", "Content"): content_html,
    ("dtsweep.report.frontiers", "Frontier"): _frontier_html,
}
"""Function for each class, by its module and name."""
