"""Arithmetic of a table's columns, as a map writes it: + - * /, numbers, names and functions."""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted

MOST_CHARACTERS = 500
"""Longest expression."""

NULLS = frozenset({"", "NA", "N/A", "null", "None"})
"""Texts that are null."""

_NAME = re.compile(r"`([^`]+)`|([^\W\d]\w*)")

_FINITE = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_NUMBER = re.compile(rf"{_FINITE}|[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)

_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _digits(value: Any) -> list[int]:
    text = str(value).strip()
    if not re.fullmatch(r"[0-9]+", text, re.ASCII):
        raise SweepError(f"{quoted(value)} is not a text of digits, such as '1144'")
    return [int(digit) for digit in text]


def uneven_digits(value: Any) -> str | None:
    """Digits in ascending order, joined by +; None where all are equal.

    >>> uneven_digits("4141"), uneven_digits("44")
    ('1+1+4+4', None)
    """
    digits = sorted(_digits(value))
    if len(set(digits)) == 1:
        return None
    return "+".join(map(str, digits))


FUNCTIONS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "digit_sum": lambda value: sum(_digits(value)),
        "digit_count": lambda value: len(_digits(value)),
        "uneven_digits": uneven_digits,
    }
)
"""Functions that an expression may call, each with one column."""


@dataclass(frozen=True)
class Expression:
    """An expression that was read for the columns of a table."""

    text: str
    columns: frozenset[str]
    """Columns of the table that it reads."""

    value_of: Callable[[Mapping[str, Any]], Any]
    """Its value for a row of the table; null where a column that it reads is null."""


def is_null(value: Any) -> bool:
    """True for a cell that is empty, or says so.

    >>> is_null(" NA "), is_null("0")
    (True, False)
    """
    return value is None or (isinstance(value, str) and value.strip() in NULLS)


def names_in(text: str) -> list[str]:
    """Names of columns in an expression, in the order in which they stand.

    >>> names_in("`config/lr` * step_ms / 1000"), names_in("digit_sum(placement)")
    (['config/lr', 'step_ms'], ['placement'])
    """
    tree, quoted_names = _parsed(text)
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in called]
    names.sort(key=lambda node: node.col_offset)
    return [quoted_names.get(node.id, node.id) for node in names]


def read_expression(text: str, columns: Collection[str]) -> Expression:
    """Read an expression over the columns of a table.

    Args:
        text: the name of a column as it stands, or arithmetic. In arithmetic a name with other
            characters than letters, digits and _ stands in backticks: `` `step/ms` / 1000 ``.
        columns: of the table.

    Raises:
        SweepError: it is not an expression, or reads a column that the table does not have.
    """
    if text in columns:
        return Expression(text, frozenset({text}), lambda row: row.get(text))
    tree, quoted_names = _parsed(text)
    for name in (names := names_in(text)):
        if name not in columns:
            raise SweepError(f"the table has no column {quoted(name)}; {_near(name, columns)}")
    return Expression(text, frozenset(names), partial(_value, tree, quoted_names))


def number_of(value: Any, name: str) -> int | float | None:
    """Number of a cell; null where it is empty.

    >>> number_of("12", "a"), number_of("1e3", "a"), number_of("NA", "a")
    (12, 1000.0, None)
    """
    if is_null(value):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = value.strip() if isinstance(value, str) else ""
    # float() would take 1_0 and the digits of other scripts.
    if not _NUMBER.fullmatch(text):
        raise SweepError(f"{name} = {quoted(value)} is not a number")
    if re.fullmatch(r"[+-]?[0-9]{1,15}", text, re.ASCII):
        return int(text)
    return float(text)


def _near(name: str, columns: Collection[str]) -> str:
    if not columns:
        return "it has none"
    return did_you_mean(name, columns)


def _parsed(text: str) -> tuple[ast.expr, dict[str, str]]:
    """Parse an expression; other names than of ASCII are replaced, and given by their replacement.

    Python normalizes names when it parses them, so that µ becomes another letter. Its keywords can
    be columns, too.
    """
    if len(text) > MOST_CHARACTERS:
        raise SweepError(f"an expression has at most {MOST_CHARACTERS} characters, not {len(text)}")
    quoted_names: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        if match[2] and match[2].isascii() and not keyword.iskeyword(match[2]):
            return match[2]
        name = f"_quoted_{len(quoted_names)}_"
        quoted_names[name] = match[1] or match[2]
        return name

    try:
        tree = ast.parse(_NAME.sub(replaced, text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SweepError(
            f"{quoted(text)} is neither a column nor arithmetic; write + - * /, numbers and names, "
            "other names in backticks: `step/ms` / 1000"
        ) from None
    _check(tree, text)
    return tree, quoted_names


def _check(node: ast.expr, text: str) -> None:
    """Refuse what is not arithmetic."""
    match node:
        case ast.Name():
            pass
        case ast.Constant(value=value) if type(value) in (int, float):
            pass
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check(left, text)
            _check(right, text)
        case ast.Call(func=ast.Name(id=name), args=[ast.Name()], keywords=[]):
            if name not in FUNCTIONS:
                hint = did_you_mean(name, FUNCTIONS)
                raise SweepError(f"{quoted(text)}: no function {name}; {hint}")
        case _:
            raise SweepError(
                f"{quoted(text)} has more than + - * /, numbers, names, and "
                f"{', '.join(FUNCTIONS)} of a column"
            )


def _value(node: ast.expr, quoted_names: Mapping[str, str], row: Mapping[str, Any]) -> Any:
    """Value of a checked expression; null where a column that it reads is null."""
    value = partial(_value, quoted_names=quoted_names, row=row)
    result: Any = None
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=column)]):
            cell = row.get(quoted_names.get(column, column))
            if not is_null(cell):
                result = FUNCTIONS[name](cell)
        case ast.Name(id=name):
            column = quoted_names.get(name, name)
            result = number_of(row.get(column), column)
        case ast.Constant(value=constant):
            result = constant
        case ast.UnaryOp(op=op, operand=operand):
            sign = -1 if isinstance(op, ast.USub) else 1
            result = _applied(operator.mul, sign, value(operand))
        case ast.BinOp(left=left, op=op, right=right):
            result = _applied(_OPERATORS[type(op)], value(left), value(right))
    return result


def _applied(
    function: Callable[[float, float], float], left: float | None, right: float | None
) -> float | None:
    """Result of an operator; nan where there is none, as for a division by zero."""
    if left is None or right is None:
        return None
    try:
        return function(left, right)
    except (ZeroDivisionError, OverflowError):
        return math.nan
