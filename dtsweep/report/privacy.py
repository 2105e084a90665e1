"""Results as strangers may see them: without secrets, home folders, users and hosts."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import without_credentials

if TYPE_CHECKING:
    import pandas as pd

_HOME = re.compile(r"(?:/home/|/Users/|/root\b)(?:[^/\s'\":]+)?")


class Redactor:
    """Replaces what identifies people and hosts in text."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        """Name the hosts to replace; they become `host 1`, `host 2` in this order."""
        self._hosts = {name: f"host {number}" for number, name in enumerate(hosts, start=1)}

    def text(self, text: str) -> str:
        """Text without credentials, home folders and names of hosts."""
        shown = _HOME.sub("~", without_credentials(text).replace(str(Path.home()), "~"))
        for name, replacement in self._hosts.items():
            shown = shown.replace(name, replacement)
        return shown

    def values(self, value: Any) -> Any:
        """JSON values with every string as `text` gives it, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.values(key): self.values(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.values(item) for item in value]
        return value


def redactor_of(ranks: pd.DataFrame | None) -> Redactor:
    """Make the redactor for some results.

    Args:
        ranks: rows of the ranks, which name the nodes; None if they are unknown.
    """
    hosts = [] if ranks is None or "node" not in ranks else sorted(ranks["node"].dropna().unique())
    return Redactor([str(host) for host in hosts])
