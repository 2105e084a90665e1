"""Conditions on points, as a user writes them: "step_p99_s <= 200ms and workers <= 8"."""

from __future__ import annotations

import functools
import operator
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.launches import setting_columns
from dtsweep.errors import LABEL_SHOWN, SHOWN, SweepError, did_you_mean, nearest, shortened
from dtsweep.inference.verdicts import ConditionVerdict
from dtsweep.sweep.goal import OF_REQUESTS, check_condition
from dtsweep.sweep.point_axes import AXES

if TYPE_CHECKING:
    import pandas as pd
    from lark import Lark, ParseTree

_Truth = Any
"""A column of pandas' `boolean`: true, false, or null where it is unknown.

`&`, `|` and `~` as Kleene has them.
"""

_Evaluate = Callable[["pd.DataFrame", "float | None"], _Truth]
"""Truth by row of points: of their means; or, given a number, of their 95 % intervals.

The number is the share by which limits are loosened; below 0 they are tightened.
"""

_GRAMMAR = r"""
    ?any: all ("or" all)*
    ?all: part ("and"? part)*
    ?part: NOT+ single -> negation
        | single
    ?single: "(" any ")"
        | WORD SIGN value -> comparison
        | WORD "in" "(" value ("," value)* ")" -> membership
    ?value: NUMBER | TEXT | WORD
    NOT: "not"
    SIGN: "<=" | ">=" | "<" | ">" | "==" | "=" | "!="
    NUMBER: /[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?[A-Za-z]*(?![\w.])/
    TEXT: /'[^']*'|"[^"]*"/
    WORD: /[A-Za-z_][\w.]*/
    %ignore /\s+/
"""
"""Of conditions. `and` may be left out, as in the name of a point: `workers=2 sync=ddp`."""

_EXPECTED = {
    "NUMBER": "a number or a word",
    "SIGN": "one of <= >= < > = == != or `in`",
    "IN": "one of <= >= < > = == != or `in`",
    "$END": "`and`, `or` or the end",
    "RPAR": "`)`",
    "WORD": "the name of a column",
    "LPAR": "`(`",
}
"""Words for what may stand at a place: those of the first kind of token that may."""

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_OPPOSITE = {"<=": ">", ">=": "<", "<": ">=", ">": "<="}

_KINDS = {bool: "true and false", float: "numbers", str: "words"}
"""Types of values, in words."""

_UNITS = {
    "s": 1,
    "ms": 1e-3,
    "us": 1e-6,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
}
"""Suffixes of a number, and their factors."""

_SHORT_NAMES: dict[str | None, str] = {
    "memory": "memory_peak_bytes",
    "step": "latency_s",
    "throughput": "samples_per_s",
    "tokens": "tokens_per_s",
    "exchange": "exchange_share",
    "wait": "wait_share",
    "cost": "usd_per_million_samples",
    **OF_REQUESTS,
}
"""Names of the report's tables for columns."""

_NULLS = ("null", "none", "None")


@dataclass(frozen=True)
class Condition:
    """A condition that a point meets, fails, or is not known to meet."""

    text: str
    """As it was written."""
    columns: tuple[str, ...]
    """Columns that it names, in this order."""
    _evaluate: _Evaluate

    def holds(self, points: pd.DataFrame) -> _Truth:
        """Mark the points that meet the condition.

        Args:
            points: rows with the columns that it names.

        Returns:
            True, false or null by row. A comparison with a value that was not measured is null. A
            setting that is null is known: the mode's own default holds, which `compression = null`
            selects.

        Raises:
            SweepError: a column is compared with what it can't hold.
        """
        return self._evaluate(points, None)

    def verdicts(self, points: pd.DataFrame, *, zone: float = 0.0) -> pd.Series[Any]:
        """Judge the points by the 95 % intervals of what was measured.

        Args:
            points: rows with the columns that it names, and their `_low` and `_high`.
            zone: indifference zone of limits, as a share: an interval that passes a limit by less
                meets it.

        Returns:
            By row one of `ConditionVerdict`. A column without `_low` and `_high`, as a setting or
            the highest memory, is judged by its value.

        Raises:
            SweepError: as `holds`.
        """
        import pandas as pd

        loosened, strict = self._evaluate(points, zone), self._evaluate(points, 0.0)
        verdicts = pd.Series(ConditionVerdict.UNDECIDED, index=points.index, dtype=object)
        verdicts[loosened.fillna(value=False)] = ConditionVerdict.MEETS
        verdicts[~strict.fillna(value=True)] = ConditionVerdict.MISSES
        return verdicts.where(self.holds(points).notna(), ConditionVerdict.UNKNOWN)


def parse_condition(text: str, points: pd.DataFrame) -> Condition:
    """Read a condition.

    Comparisons (`<=`, `<`, `>=`, `>`, `=`, `!=`, `in (…, …)`) of a column with a number, a word or
    a text in quotes, joined by `and`, `or`, `not` and brackets. Numbers may end with one of
    `_UNITS`. Nothing of it is run as code.

    Args:
        text: the condition; all points meet the empty one.
        points: their columns are what it may ask for; a field of the workload also as
            `workload.<field>`, and some columns by `_SHORT_NAMES`.

    Raises:
        SweepError: it can't be read, is too long, or asks for what is not a column.
    """
    if not text:
        return Condition("", (), _always)
    check_condition(text)
    reader = _Reader(text, points)
    evaluate = reader.evaluation_of(_tree_of(text))
    return Condition(text, tuple(dict.fromkeys(reader.asked_columns)), evaluate)


def _always(points: pd.DataFrame, _: float | None) -> _Truth:
    import pandas as pd

    return pd.Series(data=True, index=points.index, dtype="boolean")


@functools.cache
def _parser() -> Lark:
    from lark import Lark

    # The basic lexer knows keywords as such at any place: no value is named `and`.
    return Lark(_GRAMMAR, start="any", parser="lalr", lexer="basic")


def _tree_of(text: str) -> ParseTree:
    """Parse a condition.

    Raises:
        SweepError: it is none; the place and what may stand there.
    """
    from lark import UnexpectedCharacters, UnexpectedToken

    try:
        return _parser().parse(text)
    except UnexpectedCharacters as error:
        place, wanted = error.pos_in_stream or 0, "a name, a number or a comparison"
    except UnexpectedToken as error:
        place = error.token.start_pos
        if error.token.type == "$END":
            place = len(text)
        possible = error.accepts or error.expected
        wanted = next(words for kind, words in _EXPECTED.items() if kind in possible)
    raise _mistake(text, place, wanted)


def _mistake(text: str, place: int, wanted: str) -> SweepError:
    where = "at the end"
    if remainder := text[place:].strip():
        where = f"before {shortened(remainder, SHOWN)!r}"
    return SweepError(
        f"in {shortened(text, SHOWN)!r}, {where}: {wanted} is expected, as in "
        "'step_p99_s <= 200ms and workers < 8'"
    )


class _Reader:
    """Makes the evaluation of a parsed condition, and lists the columns that it asks for."""

    def __init__(self, text: str, points: pd.DataFrame) -> None:
        self.asked_columns: list[str] = []
        self._text = text
        self._columns = [str(name) for name in points.columns]
        self._settings = {*setting_columns(points), "global_batch"}

    def evaluation_of(self, tree: Any) -> _Evaluate:
        """Make the evaluation of a part of the condition."""
        match tree.data:
            case "any":
                return _join([self.evaluation_of(part) for part in tree.children], operator.or_)
            case "all":
                return _join([self.evaluation_of(part) for part in tree.children], operator.and_)
            case "negation":
                *negations, single = tree.children
                inner = self.evaluation_of(single)
                if len(negations) % 2 == 0:
                    return inner
                return lambda points, slack: ~inner(points, slack if slack is None else -slack)
            case "membership":
                name, *values = tree.children
                column = self._column(str(name))
                equalities = [self._compared(column, "=", self._value(value)) for value in values]
                return _join(equalities, operator.or_)
            case _:
                name, sign, value = tree.children
                return self._compared(self._column(str(name)), str(sign), self._value(value))

    def _column(self, word: str) -> str:
        name = word.replace("workload.", "workload_", 1)
        if name not in self._columns:
            name = _SHORT_NAMES.get(name, name)
        if name not in self._columns:
            hint = "docs/columns.md lists them"
            if suggestion := nearest(name, self._columns):
                hint = f"did you mean {suggestion!r}?"
            raise SweepError(
                f"{shortened(word, LABEL_SHOWN)!r} is not a column of points (in "
                f"{shortened(self._text, SHOWN)!r}); {hint}"
            )
        self.asked_columns.append(name)
        return name

    def _value(self, token: Any) -> bool | float | str | None:
        text = str(token)
        if token.type == "TEXT":
            return text[1:-1]
        if token.type == "WORD":
            if text in _NULLS:
                return None
            return {"true": True, "false": False}.get(text.lower(), text)
        number = text.rstrip(string.ascii_letters)
        unit = text.removeprefix(number)
        if unit and unit not in _UNITS:
            wanted = f"a number, or one with a unit of {', '.join(_UNITS)}"
            raise _mistake(self._text, token.start_pos, wanted)
        return float(number) * _UNITS.get(unit, 1)

    def _compared(self, column: str, sign: str, value: Any) -> _Evaluate:
        is_setting = column in self._settings

        def evaluate(points: pd.DataFrame, slack: float | None) -> _Truth:
            has_interval = f"{column}_low" in points and f"{column}_high" in points
            is_number = not is_setting and isinstance(value, float)
            if slack is not None and has_interval and is_number:
                low, high = points[f"{column}_low"], points[f"{column}_high"]
                return _compared_interval(low, high, sign, _loosened(sign, value, slack))
            return _compared(points[column], sign, value, is_setting=is_setting)

        return evaluate


def _compared_interval(
    low: pd.Series[Any], high: pd.Series[Any], sign: str, value: float
) -> _Truth:
    """Compare intervals with a number: null where it lies within one, or where there is none.

    No measured value is known to be equal.
    """
    import pandas as pd

    truth = pd.Series(pd.NA, index=low.index, dtype="boolean")
    if sign not in _OPPOSITE:
        truth[(low > value) | (high < value)] = sign == "!="
        return truth
    ends = [low, high]
    if sign.startswith("<"):
        ends.reverse()
    truth[_SIGNS[sign](ends[0], value)] = True
    truth[_SIGNS[_OPPOSITE[sign]](ends[1], value)] = False
    return truth


def _compared(column: pd.Series[Any], sign: str, value: Any, *, is_setting: bool) -> _Truth:
    """Compare each value of a column with another one.

    Args:
        column: a setting or something measured, null where it is unknown.
        sign: one of `_SIGNS`.
        value: a number, a word, True, False, or None for null.
        is_setting: a setting that is null is known: it is left at what the mode has of its own.

    Raises:
        SweepError: the column can't hold such a value.
    """
    is_null = column.isna()
    if value is None:
        if sign not in ("=", "==", "!="):
            raise SweepError(f"{column.name} can't be {sign} null; use = or !=")
        return (is_null if sign != "!=" else ~is_null).astype("boolean")
    values = column[~is_null]
    kind = _kind_of(values)
    # Without values, a column of words may be one of any type.
    if type(value) is not kind and (len(values) or kind is not str):
        raise SweepError(
            f"{column.name} is compared with {shortened(repr(value), LABEL_SHOWN)}, but has "
            f"{_KINDS[kind]}"
        )
    if isinstance(value, str) and column.name in AXES:
        measured = sorted(values.unique())
        if value not in (*measured, *AXES[str(column.name)].choices):
            raise SweepError(
                f"no point has {column.name}={shortened(value, LABEL_SHOWN)}; "
                f"{did_you_mean(value, measured)}"
            )
    if values.empty:
        # A column of nulls may have any type.
        truth = values
    else:
        truth = _SIGNS[sign](values, value)
    truth = truth.astype("boolean").reindex(column.index)
    # A setting that is null is none of the values; which number the mode has in its place is not
    # known.
    if is_setting and sign in ("=", "==", "!="):
        return truth.fillna(sign == "!=")
    return truth


def _kind_of(values: pd.Series[Any]) -> type:
    """Type that a condition has for the values of a column: bool, float or str."""
    import pandas as pd

    values = values.infer_objects()
    if pd.api.types.is_bool_dtype(values):
        return bool
    if pd.api.types.is_numeric_dtype(values):
        return float
    return str


def _loosened(sign: str, limit: float, slack: float) -> float:
    """Loosen a limit by a share of its size; equality has none.

    >>> round(_loosened("<=", 0.2, 0.05), 6), round(_loosened(">", 0.2, 0.05), 6)
    (0.21, 0.19)
    """
    if sign.startswith("<"):
        return limit + abs(limit) * slack
    if sign.startswith(">"):
        return limit - abs(limit) * slack
    return limit


def _join(parts: Sequence[_Evaluate], join: Callable[[_Truth, _Truth], _Truth]) -> _Evaluate:
    def evaluate(points: pd.DataFrame, slack: float | None) -> _Truth:
        truth = parts[0](points, slack)
        for part in parts[1:]:
            truth = join(truth, part(points, slack))
        return truth

    return evaluate
