"""Writes what docs/ takes from the code: columns.md, and the tables between marks in sweep-files.md."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_args

from dtsweep import Measure, Point, Resources
from dtsweep.results.schema import columns_page
from dtsweep.sweep.point import AXES, FIELD_TYPES

FOLDER = Path(__file__).parent


def write_pages() -> None:
    """Write the pages as they follow from the code."""
    (FOLDER / "columns.md").write_text(columns_page(), "utf-8")
    page = FOLDER / "sweep-files.md"
    text = page.read_text("utf-8")
    for name, table in (("axes", axes()), ("Measure", settings(Measure)), ("Resources", settings(Resources))):
        text = with_table(text, name, table)
    page.write_text(text, "utf-8")


def with_table(text: str, name: str, table: str) -> str:
    """Put a table between its marks.

    Raises:
        ValueError: the marks are not there.
    """
    mark, end = f"<!-- made by docs/tables.py: {name} -->\n", "<!-- end -->\n"
    before, start, behind = text.partition(mark)
    _, stop, after = behind.partition(end)
    if not start or not stop:
        raise ValueError(f"no {mark.strip()} … {end.strip()}")
    return f"{before}{mark}\n{table}\n{end}{after}"


def axes() -> str:
    """The table of axes, as they are declared on the fields of a point."""
    defaults = {item.name: _default(item) for item in fields(Point)}
    rows = [(f"`{name}`", defaults[name], axis.unit, _values(name), axis.meaning) for name, axis in AXES.items()]
    return _table(("field", "default", "unit", "values", "meaning"), rows)


def settings(kind: type[Measure] | type[Resources]) -> str:
    """The table of the fields of `Measure` or `Resources`, by their docstrings."""
    meanings = _docstrings(kind)
    rows = [(f"`{item.name}`", _default(item), meanings[item.name]) for item in fields(kind)]
    return _table(("setting", "default", "meaning"), rows)


def _default(item: Field[Any]) -> str:
    value = item.default if item.default_factory is MISSING else item.default_factory()
    return f"`{value!r}`"


def _values(name: str) -> str:
    """The choices of an axis, or its smallest value."""
    axis = AXES[name]
    if FIELD_TYPES[name] is bool:
        return "`True`, `False`"
    or_none = ", or None" if type(None) in get_args(FIELD_TYPES[name]) else ""
    return ", ".join(f"`{choice}`" for choice in axis.choices) or f"≥ {axis.least}{or_none}"


def _docstrings(kind: type) -> dict[str, str]:
    """The docstring of each field of a dataclass, in one line."""
    (body,) = [node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
    found = {}
    for statement, behind in itertools.pairwise(body):
        match statement, behind:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(cells) for cells in (header, *rows)]
    rule = "|" + "---|" * len(header)
    return "".join(f"{line}\n" for line in (f"| {lines[0]} |", rule, *(f"| {line} |" for line in lines[1:])))


if __name__ == "__main__":
    write_pages()
