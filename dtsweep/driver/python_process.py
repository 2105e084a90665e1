"""Processes of Python next to a run, which read its results and end with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType


def start_python(
    *arguments: str,
    stdout: int,
    stderr: int | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """Start a process with the modules of this one; its standard input is a pipe.

    Args:
        arguments: of Python.
        stdout: as `subprocess.Popen` has it.
        stderr: the same; None is that of this process.
        variables: of its environment, in addition to those of this process.
    """
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        # Without -P, modules of the working directory would stand for those of Python.
        [sys.executable, "-P", *arguments],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **variables, "PYTHONPATH": path},
        # Ctrl-C is for the run, which ends this process afterwards.
        start_new_session=True,
        text=True,
    )
