"""Trials as strangers may see them: private values are replaced before anything is made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable
from socket import gethostname
from typing import TYPE_CHECKING, Any

from dtsweep.privacy.redactor import Redactor, this_user, unused_name, users_in

if TYPE_CHECKING:
    import pandas as pd

_FREE = frozenset(
    {"reason", "log", "devices", "sources", "environment", "machine", "command", "session"}
    | {"straggler", "implausible", "node_types", "imported_from"}
)
"""Columns of any text, in addition to those of a workload and those that end in `_reason`."""

_KEPT = frozenset(
    {"attempt_id", "trial_id", "point_id", "measure", "question", "stop_reason"}
    | {"workload_digest", "model_digest"}
)
"""Columns that readers look up or parse."""

_MERGED = frozenset({"reason", "log", "implausible", "straggler", "command"})
"""Columns in which different texts may become the same one: no trials are told apart by them."""

_WORD = re.compile(r"\w{1,24}")
"""A value of a column with fixed choices, such as a status, a flag or a sync mode."""


def redacted_trials(trials: pd.DataFrame, redactor: Redactor) -> pd.DataFrame:
    """Replace what is private in the text of trials; texts that differ stay different.

    Free text is replaced everywhere. Columns with fixed choices, as statuses and flags, keep their
    words, even if a user or a host is called the same.

    Args:
        trials: one row per trial, as `dtsweep.load` gives it.
        redactor: of their results.

    Returns:
        The table itself if nothing in it is private.
    """
    changed: dict[str, Any] = {}
    for name in map(str, trials.columns):
        column = trials[name]
        if name in _KEPT or not (
            column.dtype.kind == "O" or str(column.dtype) in ("str", "string")
        ):
            continue
        shown = _shown(column, name, redactor)
        if shown:
            values = [shown.get(_key(value), value) for value in column]
            changed[name] = type(column)(values, index=column.index, dtype=column.dtype)
    if not changed:
        return trials
    return trials.assign(**changed)


def redactor_of_trials(trials: pd.DataFrame) -> Redactor:
    """Make the redactor for trials whose results are not at hand.

    Args:
        trials: one row per trial. Only hosts that they name are known, and this one.
    """
    hosts: set[str] = set()
    if "straggler" in trials:
        names = trials["straggler"].dropna().astype(str).str.extract(r"^rank \d+ on (.+)$")[0]
        hosts = set(names.dropna())
    texts = [
        str(text)
        for name in ("reason", "log", "command")
        if name in trials
        for text in trials[name].dropna().unique()
    ]
    return Redactor([*sorted(hosts), gethostname()], users=users_in(texts) | this_user())


def _shown(column: pd.Series[Any], name: str, redactor: Redactor) -> dict[Hashable, Any]:
    """Values of a column that change, each with what is shown in its place."""
    is_free = name in _FREE or name.startswith("workload") or name.endswith("_reason")
    values: dict[Hashable, str | list[str]] = {}
    for value in column:
        if isinstance(value, str):
            values[value] = value
        elif _is_list(value):
            values[_key(value)] = list(value)
    used = set(values)
    shown: dict[Hashable, Any] = {}
    for key, value in values.items():
        redacted = _redacted(value, redactor, is_free=is_free)
        if redacted == value:
            continue
        if isinstance(redacted, str) and name not in _MERGED and not _is_json(redacted):
            redacted = unused_name(redacted, used)
            used.add(redacted)
        shown[key] = redacted
    return shown


def _redacted(value: str | list[str], redactor: Redactor, *, is_free: bool) -> Any:
    if not isinstance(value, str):
        return [_redacted(item, redactor, is_free=is_free) for item in value]
    if not is_free and _WORD.fullmatch(value):
        return value
    if not _is_json(value):
        return redactor.text(value)
    # Escapes, as of a quote, may hide a text from the patterns; a pair of a name and its secret
    # is seen only in the whole.
    inner = json.dumps(redactor.values(json.loads(value)), ensure_ascii=False)
    whole = redactor.text(inner)
    if json.loads(inner) == json.loads(value):
        inner = value
        whole = redactor.text(value)
    return whole if _is_json(whole) else inner


def _is_json(text: str) -> bool:
    """True for the JSON of several values."""
    if text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _key(value: Any) -> Hashable:
    if _is_list(value):
        return tuple(map(str, value))
    return str(value)


def _is_list(value: Any) -> bool:
    """True for texts of one cell: a list where trials are made, an array where they are read."""
    if not isinstance(value, Iterable) or isinstance(value, str):
        return False
    return all(isinstance(item, str) for item in value)
