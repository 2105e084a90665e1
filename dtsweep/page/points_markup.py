"""The table of points as HTML, with its search, filters and headers that sort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtsweep.escape import html_text


def points_of(table: Mapping[str, Any]) -> str:
    """Search, filters and table of all points.

    Args:
        table: as `dtsweep.page.points_table.table_of` gives it.
    """
    return (
        '<form id="filters" class="filters on-screen" aria-label="Filters of points">\n'
        '<p><label for="search">Search</label> <input type="search" id="search" '
        'autocomplete="off"></p>\n'
        f"{''.join(map(_choice, range(len(table['filters'])), table['filters']))}"
        f"{''.join(map(_range, range(len(table['columns'])), table['columns']))}"
        '<p><button type="reset" id="reset">Reset filters</button></p>\n</form>\n'
        '<p class="on-screen"><span id="shown" role="status"></span> '
        '<span id="more-columns" class="hint" hidden>More columns: scroll the table sideways →'
        "</span></p>\n"
        '<div class="scroll tall" role="region" aria-label="Table of points" tabindex="0">\n'
        '<table id="table"><caption class="unseen">Points, one per row. A button in a header sorts '
        "by its column; a checked row is highlighted in every plot.</caption>\n"
        f"<thead><tr>{_head(table)}</tr></thead>\n<tbody>\n{_rows(table)}\n</tbody></table></div>"
    )


def _choice(number: int, choice: Mapping[str, Any]) -> str:
    """Select of a setting's values, in their order: numbers by size."""
    values = sorted(set(choice["values"]), key=_by_size)
    # The sign tells an empty text from "any".
    options = "".join(
        f'<option value="={html_text(value)}">{html_text(value) or "(empty)"}</option>'
        for value in values
    )
    return (
        f'<p><label for="choice-{number}">{html_text(choice["name"])}</label> '
        f'<select id="choice-{number}" data-choice="{number}">'
        f'<option value="">any</option>{options}</select></p>\n'
    )


def _by_size(value: str) -> tuple[bool, float, str]:
    """Key that puts numbers first, by size, then texts."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value


def _range(number: int, column: Mapping[str, Any]) -> str:
    """Two inputs for the smallest and the largest number of a column; empty of other columns."""
    if not column["is_range"]:
        return ""
    header = html_text(column["header"])
    ends = "".join(
        f'<input type="number" step="any" data-column="{number}" data-end="{end}" '
        f'id="{end}-{number}" aria-label="{header}, {words}" placeholder="{end}">'
        for end, words in {"min": "at least", "max": "at most"}.items()
    )
    return f'<p><span class="label" aria-hidden="true">{header}</span> {ends}</p>\n'


def _head(table: Mapping[str, Any]) -> str:
    headers = "".join(
        f'<th scope="col" aria-sort="none"{_kind(column)}>'
        f'<button type="button" data-sort="{place}">'
        f"{html_text(column['header'])}</button></th>"
        for place, column in enumerate(table["columns"])
    )
    check = '<th scope="col" class="on-screen check"><span class="unseen">selected</span></th>'
    return check + headers


def _rows(table: Mapping[str, Any]) -> str:
    kinds = [_kind(column) for column in table["columns"]]
    cells = zip(*(column["cells"] for column in table["columns"]), strict=True)
    return "\n".join(
        _row(label, row, kinds) for label, row in zip(table["labels"], cells, strict=True)
    )


def _row(label: str, cells: tuple[str, ...], kinds: list[str]) -> str:
    first, *others = (f"{kind}>{html_text(cell)}" for kind, cell in zip(kinds, cells, strict=True))
    return (
        f'<tr><td class="on-screen check">'
        f'<input type="checkbox" aria-label="{html_text(label)}"></td>'
        f'<th scope="row"{first}</th>{"".join(f"<td{cell}</td>" for cell in others)}</tr>'
    )


def _kind(column: Mapping[str, Any]) -> str:
    """Class of the cells of a column with numbers."""
    if column["values"] is None:
        return ""
    return ' class="number"'
