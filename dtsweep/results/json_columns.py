"""Columns that hold JSON: what readers may rely on in the rows of others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow.compute as pc

from dtsweep.errors import SweepError
from dtsweep.sweep.goal import Question, goal_of

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
"""Name of an environment variable."""


def check_json(rows: Any) -> None:
    """Refuse rows whose columns of JSON hold something else.

    Args:
        rows: Arrow table of `trials` or `ranks`.

    Raises:
        ValueError: a column has a text that is not JSON, or of another form than its readers need.
    """
    for name in _FORMS.keys() & set(rows.column_names):
        for text in pc.unique(rows[name]).to_pylist():
            if text is not None and not _fits(name, text):
                raise ValueError(f"column {name} has a text that is not {_FORMS[name][0]}")


def _fits(column: str, text: str) -> bool:
    _, is_form = _FORMS[column]
    try:
        return is_form(json.loads(text))
    except (ValueError, RecursionError):
        return False


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_object_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _is_environment(value: Any) -> bool:
    """True for variables whose names stay names where a command or a program is written of them."""
    return _is_object_of_texts(value) and all(_VARIABLE.fullmatch(name) for name in value)


def _is_object_of_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, int | float) for item in value.values())


def _is_command(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _is_question(value: Any) -> bool:
    """True for what `Question.as_json` writes."""
    try:
        question = Question.from_json(json.dumps(value))
        goal = goal_of(question.goal)
    except (SweepError, ValueError, KeyError, TypeError, AttributeError):
        return False
    if goal is None:
        return True
    names = (goal.maximize or "", goal.minimize or "", goal.where)
    return all(isinstance(name, str) for name in names) and isinstance(goal.least_rate, int | float)


_FORMS: Mapping[str, tuple[str, Callable[[Any], bool]]] = MappingProxyType(
    {
        "environment": ("a JSON object of variables", _is_environment),
        "sources": ("a JSON object of texts", _is_object_of_texts),
        "measure": ("a JSON object", _is_object),
        "question": ("a question as JSON", _is_question),
        "command": ("a JSON list of texts", _is_command),
        "machine": ("a JSON object", _is_object),
        "throttle_shares": ("a JSON object of numbers", _is_object_of_numbers),
    }
)
"""Form of each column of JSON, in words and as a check."""
