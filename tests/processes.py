"""Processes of this machine: commands that run beside a test, and others by their environment."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.conftest import without_ray
from tests.pages import ROOT


def begun(*arguments: object, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Begin `python -m dtsweep …` in a folder and in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dtsweep", *map(str, arguments)],
        cwd=folder,
        env=without_ray(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def python_begun(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Begin Python with this code, which may import tests."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], object]) -> None:
    """Wait up to a minute until something is true."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def read_until(words: str, process: subprocess.Popen[str]) -> str:
    """What a process says on stderr up to the line with these words, or to its end."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            break
    return said


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
