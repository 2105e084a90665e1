"""Trials for pages and exports: without columns that may name hosts, users and home folders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

PRIVATE_COLUMNS = (
    *("reason", "gradients_reason", "unchecked_reason", "loop_reason", "samples_reason"),
    *("log", "command", "imported_from", "sources"),
)
"""Columns of trials whose text may name a host, a user or a folder; they are left empty."""

_HOME = re.compile(
    r"(?:/[\w.@-]+)*?(?:/|%2F)(?:home|homes|Users)(?:/|%2F)[^/%\s'\"`:;,&()\[\]{}<>|]+"
    r"|\b[A-Za-z]:\\{1,2}Users\\{1,2}[^\\/:*?\"'<>|\s]+"
    r"|(?<![\w.-])/root(?![\w.-])|(?<![\w~])~[A-Za-z_][\w.-]*(?=/)"
)
"""Home folders of Linux, macOS and Windows."""


def without_homes(text: str) -> str:
    r"""Text with `~` for home folders, which name users.

    >>> without_homes(r"/home/ann/a.py, C:\Users\ann\a.py")
    '~/a.py, ~\\a.py'
    """
    return _HOME.sub("~", text)


def shared_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Give trials as a page or an export has them.

    `PRIVATE_COLUMNS` are null, a straggler is a rank without its host, and settings that are paths
    begin with `~` in place of a home folder.
    """
    changed: dict[str, Any] = {name: None for name in PRIVATE_COLUMNS if name in trials}
    for name in trials.columns.difference(list(PRIVATE_COLUMNS)):
        column = trials[name]
        if column.dtype == object or str(column.dtype) in ("str", "string"):
            changed[name] = column.map(_shared, na_action="ignore")
    if "straggler" in trials:
        changed["straggler"] = trials["straggler"].str.extract(r"^(rank \d+)")[0]
    return trials.assign(**changed)


def _shared(value: Any) -> Any:
    return without_homes(value) if isinstance(value, str) else value
