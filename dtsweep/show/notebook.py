"""Recommendations and contents of reports in Jupyter, as the terminal prints them.

Readers. IPython gets a function for each class, by the class's name, when `dtsweep` is imported in
it. So classes that are computed know nothing of HTML, and a script pays nothing. Jupyter, VS Code
and Colab all show what IPython's formatter of `text/html` gives; IPython in a terminal shows the
`repr`.

Text is escaped by `html_text`, and home folders are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from dtsweep.escape import html_text
from dtsweep.secret import without_homes

if TYPE_CHECKING:
    from rich.console import Console

    from dtsweep.analysis.recommend import Recommendation
    from dtsweep.report.content import Content

_WIDTH = 120
"""Characters of a line."""


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
    import pandas as pd

    from dtsweep.analysis.launches import setting_columns
    from dtsweep.report.recommendation import advice_on, print_advice, print_code

    point = recommendation.point
    tables = (point.to_frame().T, recommendation.others, recommendation.alternatives)
    names = setting_columns(tables[0])
    rows = pd.concat([table[names] for table in tables])
    varying = [name for name in names if rows[name].nunique(dropna=False) > 1]
    (advice,) = advice_on([recommendation], varying)

    def print_to(console: Console) -> None:
        print_advice(advice, console=console, show_all=True)
        print_code(point, console=console)

    return _html(print_to)


def _content_html(content: Content) -> str:
    """Show all of a report."""
    from dtsweep.report.terminal import print_report

    return _html(lambda console: print_report(content, console=console, show_all=True))


def _html(print_to: Callable[[Console], None]) -> str:
    """HTML of what is printed, without home folders."""
    from rich.console import Console

    text = StringIO()
    print_to(Console(file=text, width=_WIDTH, color_system=None, force_jupyter=False))
    return f"<pre>{html_text(without_homes(text.getvalue()))}</pre>"


_FORMATTERS: Mapping[tuple[str, str], Callable[[Any], str]] = {
    ("dtsweep.analysis.recommend", "Recommendation"): _recommendation_html,
    ("dtsweep.report.content", "Content"): _content_html,
}
"""Function for each class, by its module and name."""
