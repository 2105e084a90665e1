"""Remarks: records of what a report says, and the one function that puts them into words.

A maker of a remark decides, and gives numbers. Its sentence is in `dtsweep.report.remark_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from dtsweep.report.remark_table import SENTENCES, Severity
from dtsweep.sweep.values import python_value
from dtsweep.text import count_of, in_percent, listed, percent

_NAMED = 3
"""Names of a list that a sentence has; the others are counted."""

_LINES_SHOWN = 8
"""Lines below a sentence; the others are counted."""

LONGEST_LINE = 100
"""Most characters of a line of an answer."""


@dataclass(frozen=True)
class Remark:
    """One thing that a report says."""

    code: str
    """Key of its sentence."""
    severity: Severity
    numbers: Mapping[str, Any]
    """Values that the sentence is made of: numbers, names, lists of names."""

    @property
    def text(self) -> str:
        """Sentences of the remark; lines after the first explain it."""
        return _WORDS.vformat(SENTENCES[self.severity][self.code], (), self.numbers)

    def as_json(self) -> dict[str, Any]:
        """Give `code`, `severity`, `numbers` and `text`."""
        return {
            "code": self.code,
            "severity": self.severity,
            "numbers": dict(self.numbers),
            "text": self.text,
        }


_SEVERITIES = {code: severity for severity, codes in SENTENCES.items() for code in codes}


def remark(code: str, /, **numbers: Any) -> Remark:
    """Make a remark of the severity that its code has.

    >>> remark("not_begun", count=2).text
    '2 planned points not run yet.'
    """
    return Remark(
        code, _SEVERITIES[code], {name: python_value(value) for name, value in numbers.items()}
    )


def one_line_remark(code: str, /, *, shorten: Sequence[str] = (), **numbers: Any) -> Remark:
    """Make a remark of at most `LONGEST_LINE` characters, if shorter names make it so.

    Args:
        code: key of its sentence.
        shorten: texts that are cut where it is too long, the last one first.
        numbers: values that the sentence is made of.
    """
    one = remark(code, **numbers)
    for name in reversed(shorten):
        excess = len(one.text) - LONGEST_LINE
        if excess <= 0:
            break
        kept = max(0, len(numbers[name]) - excess - 1)
        numbers[name] = f"{numbers[name][:kept]}…" if kept else ""
        one = remark(code, **numbers)
    return one


def first_that_fits(remarks: Sequence[Remark]) -> Remark:
    """Select the first of several remarks that is one line, else the last one."""
    for one in remarks:
        if len(one.text) <= LONGEST_LINE:
            return one
    return remarks[-1]


def paragraph(remarks: Iterable[Remark]) -> str:
    """Join the texts of remarks to one paragraph."""
    return " ".join(one.text for one in remarks)


def _lines(values: Mapping[str, Any] | Sequence[str]) -> str:
    """Write a line for each value, indented; those beyond the first few are counted."""
    lines = list(values)
    if isinstance(values, Mapping):
        lines = [f"{name}: {value}" for name, value in values.items()]
    hidden = len(lines) - _LINES_SHOWN
    if hidden > 0:
        lines[_LINES_SHOWN:] = [f"{hidden} more: the table of trials has them"]
    return "".join(f"\n  {line}" for line in lines)


def _counts(values: Mapping[str, int]) -> str:
    """Write counted names: "no reason (2); too short (1)"."""
    return "; ".join(f"{name} ({count})" for name, count in values.items())


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "limit": percent,
    "share": in_percent,
    "share1": lambda share: in_percent(share, digits=1),
    "list": lambda names: listed(names, most=_NAMED),
    "and": " and ".join,
    "or": " or ".join,
    "all": "; ".join,
    "lines": _lines,
    "counts": _counts,
}
"""Formats of a template's fields, in addition to Python's own and `# NOUN`, a count of it."""


class _Words(Formatter):
    """`str.format` with `_FORMATS`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("# "):
            return count_of(value, format_spec[2:])
        if write := _FORMATS.get(format_spec):
            return write(value)
        return str(super().format_field(value, format_spec))


_WORDS = _Words()
