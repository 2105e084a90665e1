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


def values_of(name: str, *, mark: str) -> set[str]:
    """Values of a variable in the processes that have another one, as `NAME=value`."""
    values = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if mark in variables:
            values |= {text.partition("=")[2] for text in variables if text.startswith(f"{name}=")}
    return values
