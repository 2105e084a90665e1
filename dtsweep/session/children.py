"""Connections of a rank, closed in the child processes that its workload forks.

Ray and the other ranks notice that a process has ended by its closed sockets. A child that lives
on, such as a loader's process, would keep copies of them open, and the end would show at a
deadline.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path

Sockets = dict[int, str]
"""Sockets of this process: the kernel's name of each, by file descriptor."""


def close_in_children() -> None:
    """Close the sockets that are open now in every child that this process forks from now on."""
    os.register_at_fork(after_in_child=functools.partial(_close, open_sockets()))


def open_sockets() -> Sockets:
    """Find the sockets of this process, such as `{7: "socket:[4711]"}`."""
    sockets = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile, as the one of this listing
            name = str(entry.readlink())
            if name.startswith("socket:"):
                sockets[int(entry.name)] = name
    return sockets


def _close(sockets: Sockets) -> None:
    """Close those that are the same as before; a number may be another file's by now."""
    now = open_sockets()
    for number, name in sockets.items():
        if now.get(number) == name:
            os.close(number)
