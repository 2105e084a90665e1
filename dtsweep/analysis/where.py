"""Conditions on points, as a user writes them: "step_p99_s <= 200ms and workers <= 8"."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dtsweep.analysis.condition_terms import SIGNS, Truth, compared, compared_interval
from dtsweep.analysis.launches import setting_columns
from dtsweep.errors import LABEL_SHOWN, SHOWN, SweepError, nearest, shortened
from dtsweep.inference.verdicts import ConditionVerdict
from dtsweep.sweep.goal import check_condition

if TYPE_CHECKING:
    import pandas as pd

Evaluate = Callable[["pd.DataFrame", "float | None"], Truth]
"""Truth by row of points: of their means; or, given a number, of their 95 % intervals.

The number is the share by which limits are loosened; below 0 they are tightened.
"""

UNITS = {
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

_TOKENS = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<unit>[A-Za-z]*)(?![\w.])"
    r"|(?P<sign><=|>=|==|!=|=|<|>|\(|\)|,)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<word>[A-Za-z_][\w.]*))"
)
SHORT_NAMES = {
    "memory": "memory_peak_bytes",
    "step": "latency_s",
    "throughput": "samples_per_s",
    "tokens": "tokens_per_s",
    "exchange": "exchange_share",
    "wait": "wait_share",
    "cost": "usd_per_million_samples",
}
"""Names of the report's tables for columns."""

_NULLS = ("null", "none", "None")
_KEYWORDS = ("and", "or", "not", "in")


class _Token(NamedTuple):
    kind: str
    """number, sign, text, word, or end."""
    value: Any
    place: int
    """Of its first letter in the text."""


@dataclass(frozen=True)
class Condition:
    """A condition that a point meets, fails, or is not known to meet."""

    text: str
    """As it was written."""
    columns: tuple[str, ...]
    """Columns that it names, in this order."""
    _evaluate: Evaluate

    def holds(self, points: pd.DataFrame) -> Truth:
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
    `UNITS`. Nothing of it is run as code.

    Args:
        text: the condition; all points meet the empty one.
        points: their columns are what it may ask for; a field of the workload also as
            `workload.<field>`, and some columns by `SHORT_NAMES`.

    Raises:
        SweepError: it can't be read, is too long, or asks for what is not a column.
    """
    if not text:
        return Condition("", (), _always)
    check_condition(text)
    parser = _Parser(text, points)
    evaluate = parser.disjunction()
    parser.expect("end")
    return Condition(text, tuple(dict.fromkeys(parser.asked_columns)), evaluate)


def _always(points: pd.DataFrame, _: float | None) -> Truth:
    import pandas as pd

    return pd.Series(data=True, index=points.index, dtype="boolean")


class _Parser:
    """Reads one text from left to right, a token ahead (recursive descent)."""

    def __init__(self, text: str, points: pd.DataFrame) -> None:
        self.asked_columns: list[str] = []
        self._text = text
        self._columns = [str(name) for name in points.columns]
        self._settings = {*setting_columns(points), "global_batch"}
        self._tokens = self._split()
        self._index = 0

    def disjunction(self) -> Evaluate:
        """Read conditions joined by `or`, which binds least."""
        parts = [self._conjunction()]
        while self._takes("or"):
            parts.append(self._conjunction())
        return _join(parts, operator.or_)

    def _conjunction(self) -> Evaluate:
        parts = [self._single()]
        while self._takes("and"):
            parts.append(self._single())
        return _join(parts, operator.and_)

    def _single(self) -> Evaluate:
        is_negated = False
        while self._takes("not"):
            is_negated = not is_negated
        if self._takes("("):
            inner = self.disjunction()
            self.expect(")")
        else:
            inner = self._comparison()
        if is_negated:
            return lambda points, slack: ~inner(points, slack if slack is None else -slack)
        return inner

    def _comparison(self) -> Evaluate:
        column = self._column()
        if self._takes("in"):
            values = self._values()
            equalities = [self._compared(column, "=", value) for value in values]
            return _join(equalities, operator.or_)
        token = self._next()
        if token.value not in SIGNS or token.kind != "sign":
            self._refuse(token, f"one of {' '.join(SIGNS)} or `in`")
        return self._compared(column, token.value, self._value())

    def _column(self) -> str:
        token = self._next()
        if token.kind != "word" or token.value in _KEYWORDS:
            self._refuse(token, "the name of a column")
        name = str(token.value).replace("workload.", "workload_", 1)
        if name not in self._columns:
            name = SHORT_NAMES.get(name, name)
        if name not in self._columns:
            hint = "docs/columns.md lists them"
            if suggestion := nearest(name, self._columns):
                hint = f"did you mean {suggestion!r}?"
            raise SweepError(
                f"{shortened(token.value, LABEL_SHOWN)!r} is not a column of points (in "
                f"{shortened(self._text, SHOWN)!r}); {hint}"
            )
        self.asked_columns.append(name)
        return name

    def _values(self) -> list[Any]:
        self.expect("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self.expect(")")
        return values

    def _value(self) -> Any:
        token = self._next()
        if token.kind == "word" and token.value in _NULLS:
            return None
        if token.kind == "word" and token.value.lower() in ("true", "false"):
            return token.value.lower() == "true"
        if token.kind not in ("number", "text", "word") or token.value in _KEYWORDS:
            self._refuse(token, "a number or a word")
        return token.value

    def _compared(self, column: str, sign: str, value: Any) -> Evaluate:
        is_setting = column in self._settings

        def evaluate(points: pd.DataFrame, slack: float | None) -> Truth:
            has_interval = f"{column}_low" in points and f"{column}_high" in points
            is_number = not is_setting and isinstance(value, float)
            if slack is not None and has_interval and is_number:
                low, high = points[f"{column}_low"], points[f"{column}_high"]
                return compared_interval(low, high, sign, _loosened(sign, value, slack))
            return compared(points[column], sign, value, is_setting=is_setting)

        return evaluate

    def expect(self, what: str) -> None:
        """Take this token, or refuse the text."""
        token = self._next()
        if what not in (token.kind, token.value):
            self._refuse(token, "`and`, `or` or the end" if what == "end" else f"`{what}`")

    def _takes(self, word: str) -> bool:
        token = self._tokens[self._index]
        is_next = token.kind in ("word", "sign") and token.value == word
        if is_next:
            self._next()
        return is_next

    def _next(self) -> _Token:
        token = self._tokens[self._index]
        self._index = min(self._index + 1, len(self._tokens) - 1)
        return token

    def _refuse(self, token: _Token, wanted: str) -> None:
        remainder = self._text[token.place :].strip()
        where = "at the end"
        if remainder:
            where = f"before {shortened(remainder, SHOWN)!r}"
        raise SweepError(
            f"in {shortened(self._text, SHOWN)!r}, {where}: {wanted} is expected, as in "
            "'step_p99_s <= 200ms and workers < 8'"
        )

    def _split(self) -> Sequence[_Token]:
        tokens, place = [], 0
        end = len(self._text.rstrip())
        while place < end:
            match = _TOKENS.match(self._text, place)
            if match is None:
                self._refuse(_Token("end", None, place), "a name, a number or a comparison")
                break
            start = match.end() - len(match.group().lstrip())
            tokens.append(self._token(match, start))
            place = match.end()
        return [*tokens, _Token("end", None, end)]

    def _token(self, match: re.Match[str], start: int) -> _Token:
        kind = str(match.lastgroup)
        if kind not in ("number", "unit"):
            text = match.group(kind)
            return _Token(kind, text[1:-1] if kind == "text" else text, start)
        unit = match.group("unit")
        if unit and unit not in UNITS:
            self._refuse(
                _Token("number", None, start), f"a number, or one with a unit of {', '.join(UNITS)}"
            )
        return _Token(
            "number", float(match.group("number").replace("_", "")) * UNITS.get(unit, 1), start
        )


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


def _join(parts: Sequence[Evaluate], join: Callable[[Truth, Truth], Truth]) -> Evaluate:
    def evaluate(points: pd.DataFrame, slack: float | None) -> Truth:
        truth = parts[0](points, slack)
        for part in parts[1:]:
            truth = join(truth, part(points, slack))
        return truth

    return evaluate
