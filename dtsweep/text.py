"""Formatting of numbers and tables for the terminal."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from dtsweep.errors import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pandas as pd
    from rich.console import Console

_TEXT_COLUMNS = (
    "of",
    "recommended",
    "answer",
    "sync",
    "point",
    "state",
    "status",
    "newest reason",
    "node",
    "node type",
    "device",
    "verdict",
    "caution",
    "distance",
    "because",
)
"""Headers of columns that hold words, which may wrap; the others hold numbers, which don't."""

LOPSIDED, WIDE = 1.5, 0.1
"""Ratio of an interval's halves, and their mean as a share of the value, above which `±` would hide
that they differ."""

_KNOWN_TO = 0.5
"""Half-width of an interval, as a share of its value, above which neither end is written."""

WIDE_MARK = "~ is not known to better than ± 50 %"
"""Meaning of the mark of such a value."""

_IS_WIDE = re.compile(r"(^| )~\d")


def say(console: Console, text: str, *, style: str = "") -> None:
    """Print words literally: a reason or a path is no markup and no terminal control sequence."""
    console.print(plain(text, style=style))


def plain(text: str, *, style: str = "") -> Text:
    """Words for a cell or a line, without markup and control characters."""
    return Text(printable(text), style=style)


def print_table(columns: Mapping[str, Sequence[str]], *, console: Console, style: str = "") -> None:
    """Print columns side by side, close together where the terminal is narrow.

    A mark of values that are not well known is explained below.

    Args:
        columns: header to the column's cells, all of one length.
        console: where to.
        style: of all cells.
    """
    gap = _gap(console)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap))
    for header in columns:
        is_text = header in _TEXT_COLUMNS
        table.add_column(
            plain(header),
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, map(one_line, row)), style=style)
    console.print(table)
    if any(_IS_WIDE.search(cell) for column in columns.values() for cell in column):
        say(console, f"{WIDE_MARK}.", style=style)


def tables_that_fit(
    keys: Mapping[str, Sequence[str]],
    columns: Mapping[str, Sequence[str]],
    last: Mapping[str, Sequence[str]],
    *,
    console: Console,
    needed: Collection[str] = (),
) -> list[dict[str, Sequence[str]]]:
    """Divide columns into tables that `print_table` breaks between words at most.

    Args:
        keys: columns that each table begins with. Where the needed ones leave no room, the first
            table has fewer of them.
        columns: the others, in order; each table has at least one.
        last: columns that each table ends with.
        console: whose width counts.
        needed: headers of columns that the first table has in any case.
    """
    first = {header: column for header, column in columns.items() if header in needed}
    narrow = dict(keys)
    while narrow and not _fits({**narrow, **first, **last}, console=console):
        del narrow[max(narrow, key=lambda header: _width(header, narrow[header]))]
    parts: list[dict[str, Sequence[str]]] = [first]
    for header, column in columns.items():
        if header in first:
            continue
        wider = parts[-1] | {header: column}
        begin = keys if len(parts) > 1 else narrow
        if not parts[-1] or _fits({**begin, **wider, **last}, console=console):
            parts[-1] = wider
        else:
            parts.append({header: column})
    in_order = {header: columns[header] for header in columns if header in parts[0]}
    first_table = {**narrow, **in_order, **last}
    return [first_table, *({**keys, **part, **last} for part in parts[1:])]


def _fits(columns: Mapping[str, Sequence[str]], *, console: Console) -> bool:
    """True if `print_table` breaks these columns between words at most."""
    widths = [_width(header, column) for header, column in columns.items()]
    return sum(widths) + (len(widths) - 1) * (2 * _gap(console) + 1) <= console.width


def _width(header: str, column: Sequence[str]) -> int:
    """Least width of a column; words may wrap, numbers don't."""
    texts = (header, *column)
    if header in _TEXT_COLUMNS:
        return max(len(word) for text in texts for word in text.split())
    return max(len(line) for text in texts for line in text.splitlines())


def _gap(console: Console) -> int:
    if console.width >= 100:
        return 1
    return 0


def format_integers(column: pd.Series[Any]) -> list[str]:
    """Write whole numbers; unknown is empty."""
    return [
        "" if value is None else f"{value:,}"
        for value in column.astype("object").where(column.notna(), None)
    ]


def format_number(value: float, *, digits: int = 4) -> str:
    """Write a number with this many significant digits, but none before the point lost.

    Unknown is empty.

    >>> format_number(0.0481), format_number(48.21349), format_number(123456.7)
    ('0.04810', '48.21', '123,457')
    """
    if math.isnan(value):
        return ""
    return f"{value:,.{_decimals(value, digits)}f}"


def format_rate(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Write a number per second in at most seven characters, with its interval in the same unit.

    >>> format_rate(812.34), format_rate(25810.2), format_rate(337012.0), format_rate(3370120.0)
    ('812.3', '25,810', '337.0k', '3.370M')
    >>> format_rate(812.34, 808.24, 816.44), format_rate(337012.0, 334882.0, 339142.0)
    ('812.3 ± 4.1', '337.0 ± 2.1k')
    """
    return _in_unit(value, low, high, unit=_unit_of(value))


def format_rates(
    values: Iterable[float], lows: Iterable[float] = (), highs: Iterable[float] = ()
) -> list[str]:
    """Write a column of numbers per second, with their intervals, all in the unit of the largest.

    >>> format_rates([85138.0, 109123.0]), format_rates([812.34, 25810.2])
    (['85.14k', '109.1k'], ['812.3', '25,810'])
    """
    values = list(values)
    unit = _unit_of(max((value for value in values if not math.isnan(value)), default=0.0))
    return [
        _in_unit(*interval, unit=unit)
        for interval in itertools.zip_longest(values, lows, highs, fillvalue=math.nan)
    ]


def _format_interval(value: float, half: float, *, decimals: int = 9) -> str:
    """Write a value with half of its interval, both to the digits that the interval leaves certain.

    Args:
        value: of any size.
        half: unknown is left out.
        decimals: behind the point, at most.

    >>> _format_interval(48.2134, 0.3391), _format_interval(48.2134, 3.391)
    ('48.21 ± 0.34', '48.2 ± 3.4')
    >>> _format_interval(48.2134, math.nan)
    '48.21'
    >>> _format_interval(5.63, 0.044, decimals=1)
    '5.6 ± 0.0'
    """
    if math.isnan(value) or math.isnan(half):
        if math.isnan(value):
            return ""
        return f"{value:,.{min(_decimals(value, 4), decimals)}f}"
    certain = min(_decimals(half, 2), decimals)
    return f"{value:,.{min(_decimals(value, 4), certain)}f} ± {half:,.{certain}f}"


def format_share(share: float, low: float, high: float, *, decimals: int = 0) -> str:
    """Write a share in percent with half of its interval, or with the ends that a share can have.

    Args:
        share: of a whole; noise may bring it below 0 or above 1. Unknown is empty.
        low: lower end of its interval; unknown is left out.
        high: upper end.
        decimals: behind the point, at most.

    >>> format_share(0.41, 0.38, 0.44), format_share(1.04, 0.74, 1.34)
    ('41 ± 3', '74–100')
    >>> format_share(1.04, 1.02, 1.06), format_share(0.98, 0.979, 0.981)
    ('100', '98')
    >>> format_share(1.02, math.nan, math.nan), format_share(0.30, 0.28, 0.50)
    ('100', '28–50')
    >>> format_share(0.38, 0.0, 0.91)
    '~38'
    """
    if math.isnan(share):
        return ""
    value, low, high = (min(100.0, max(0.0, end * 100)) for end in (share, low, high))
    half = (high - low) / 2
    if math.isnan(half) or half < 0.5 * 10**-decimals:
        return f"{value:.{decimals}f}"
    if is_wide(value, low, high):
        return f"~{value:.{decimals}f}"
    if low == 0 or high == 100 or _is_lopsided(value, low, high):
        return f"{low:.{decimals}f}–{high:.{decimals}f}"
    return _format_interval(value, half, decimals=decimals)


def format_ends(value: float, low: float, high: float) -> str:
    """Write a value with half of its interval, or both ends where it is lopsided.

    Of an interval that `is_wide` neither is written: the value is marked.

    >>> format_ends(48.2134, 47.9, 48.5), format_ends(642.0, 539.0, 923.0)
    ('48.21 ± 0.30', '642 (539–923)')
    >>> format_ends(48.2134, math.nan, math.nan), format_ends(642.0, 339.0, 6123.0)
    ('48.21', '~642')
    """
    if is_wide(value, low, high):
        return f"~{format_number(value, digits=2)}"
    if not _is_lopsided(value, low, high):
        return _format_interval(value, (high - low) / 2)
    certain = _decimals(min(value - low, high - value), 2)
    return f"{value:,.{certain}f} ({low:,.{certain}f}–{high:,.{certain}f})"


def is_wide(value: float, low: float, high: float) -> bool:
    """True if a value is not known to better than ± 50 %; False where there is no interval."""
    return (high - low) / 2 > _KNOWN_TO * abs(value)


def _is_lopsided(value: float, low: float, high: float) -> bool:
    """True if `±` would hide where an interval lies; False where there is none."""
    down, up = value - low, high - value
    is_wide = (high - low) / 2 > WIDE * abs(value)
    return is_wide and max(down, up) > LOPSIDED * min(down, up)


def ends_of(rows: Any, name: str) -> tuple[Any, Any]:
    """Both ends of the interval of a column: two numbers of one row, two columns of a table."""
    return rows[f"{name}_low"], rows[f"{name}_high"]


def half_of(rows: Any, name: str) -> Any:
    """Half of the interval of a column: of one row a number, of several rows a column."""
    return (rows[f"{name}_high"] - rows[f"{name}_low"]) / 2


def _decimals(value: float, digits: int) -> int:
    if not value:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))


def _unit_of(rate: float) -> tuple[float, str]:
    """The size and letter of the unit in which a number per second is short."""
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    for size, letter in units:
        if rate >= max(size, 1e5):
            return size, letter
    return 1.0, ""


def _in_unit(value: float, low: float, high: float, *, unit: tuple[float, str]) -> str:
    size, letter = unit
    if math.isnan(value):
        return ""
    return format_ends(value / size, low / size, high / size) + letter


def listed(words: Sequence[str], *, most: int) -> str:
    """Join words with commas; those beyond `most` are counted.

    >>> listed(["a", "b", "c"], most=3), listed(["a", "b", "c"], most=2)
    ('a, b, c', 'a, b and 1 more')
    """
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    return ", ".join(words)


def count_of(number: int, noun: str) -> str:
    """Write a count with its noun.

    >>> count_of(1, "point"), count_of(9, "point"), count_of(2, "more launch")
    ('1 point', '9 points', '2 more launches')
    """
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith(("ch", "ss")):
        return f"{number} {noun}es"
    return f"{number} {noun}s"


def percent_up(share: float) -> str:
    """Write a share that something stays below in whole percent, rounded up.

    >>> percent_up(0.7066), percent_up(0.04)
    ('71 %', '4 %')
    """
    return f"{math.ceil(share * 100 - 1e-9)} %"


def in_percent(share: float, *, digits: int = 0) -> str:
    """Write a measured share in percent.

    >>> in_percent(0.02), in_percent(0.0163, digits=1)
    ('2 %', '1.6 %')
    """
    return f"{share * 100:.{digits}f} %"


def percent(share: float, *, is_lower_limit: bool = False) -> str:
    """Write a limit of a share in percent, to a tenth: an upper one is rounded up.

    >>> percent(0.03), percent(0.0541), percent(0.0549, is_lower_limit=True), percent(0.12)
    ('3 %', '5.5 %', '5.4 %', '12 %')
    """
    if is_lower_limit:
        tenths = math.floor(share * 1000 + 1e-9)
    else:
        tenths = math.ceil(share * 1000 - 1e-9)
    return f"{tenths / 10:g} %"


def duration(seconds: float) -> str:
    """Write a length of time.

    >>> duration(200)
    '3 min'
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def usd(amount: float) -> str:
    """Write an amount of money; small ones with two digits that count.

    >>> usd(4.123), usd(0.004567), usd(1234.5), usd(0.0)
    ('$4.12', '$0.0046', '$1,234.50', '$0.00')
    """
    if 0 < amount < 0.1:
        digits = 1 - math.floor(math.log10(amount))
        return f"${amount:.{digits}f}"
    return f"${amount:,.2f}"
