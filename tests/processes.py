"""Processes of this machine, by their environment."""

from __future__ import annotations

from pathlib import Path


def processes_with(variable: str) -> list[str]:
    """Command lines of the processes that have this variable, as `NAME=value`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended
            continue
    return found
