"""Words, numbers and tables as a terminal shows them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from rich.console import Console

TEXT_COLUMNS = ("sync", "point", "state", "node", "device")


def say(console: Console, text: str, *, style: str = "") -> None:
    """Print words as they are: nothing in a reason or a path is markup."""
    console.print(Text(text, style=style))


def print_table(cells: Mapping[str, Sequence[str]], *, console: Console, style: str = "") -> None:
    """Print columns side by side, close together where the terminal is narrow.

    Args:
        cells: header to the column's cells, all of one length. The columns of `_WORDS` wrap; the others hold
            numbers, which don't.
        console: where to.
        style: of all cells.
    """
    gap = _gap(console)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap))
    for header in cells:
        words = header in TEXT_COLUMNS
        table.add_column(header, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, row), style=style)
    console.print(table)


def fits(cells: Mapping[str, Sequence[str]], *, console: Console) -> bool:
    """Whether `print_table` breaks these columns between words at most."""
    parts = {header: str.split if header in TEXT_COLUMNS else str.splitlines for header in cells}
    widths = [
        max(len(part) for text in (header, *column) for part in parts[header](text)) for header, column in cells.items()
    ]
    return sum(widths) + (len(widths) - 1) * (2 * _gap(console) + 1) <= console.width


def _gap(console: Console) -> int:
    return 1 if console.width >= 100 else 0


def whole(column: pd.Series[Any]) -> list[str]:
    """Write whole numbers; unknown is empty."""
    return ["" if value is None else f"{value:,}" for value in column.astype("object").where(column.notna(), None)]


def significant(value: float, *, digits: int = 4) -> str:
    """Write a number with this many significant digits, but none before the point lost; unknown is empty.

    >>> significant(0.0481), significant(48.21349), significant(123456.7)
    ('0.04810', '48.21', '123,457')
    """
    return "" if math.isnan(value) else f"{value:,.{_decimals(value, digits)}f}"


def rate(value: float) -> str:
    """Write a number per second in at most six or seven characters.

    >>> rate(812.34), rate(25810.2), rate(337012.0), rate(3370120.0)
    ('812.3', '25,810', '337.0k', '3.370M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e5):
            return significant(value / size) + letter
    return significant(value)


def interval(value: float, half: float) -> str:
    """Write a value with half of its interval, both to the digits that the interval leaves certain.

    >>> interval(48.2134, 0.3391), interval(48.2134, 3.391), interval(48.2134, float("nan"))
    ('48.21 ± 0.34', '48.2 ± 3.4', '48.21')
    """
    if math.isnan(value) or math.isnan(half):
        return significant(value)
    decimals = min(_decimals(value, 4), _decimals(half, 2))
    return f"{value:,.{decimals}f} ± {significant(half, digits=2)}"


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def count_of(number: int, thing: str) -> str:
    """Count things.

    >>> count_of(1, "point"), count_of(9, "point")
    ('1 point', '9 points')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
