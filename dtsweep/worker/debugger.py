"""True if a debugger is attached to this process, or has been, and what it must not cost."""

from __future__ import annotations

import bdb
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from dtsweep.sweep.settings import Measure

NO_LIMIT_S = 1e9

_has_stopped = threading.Event()
"""True if a debugger of Python's has stopped in this process; after `continue` no trace function tells."""


def without_deadline(measure: Measure) -> Measure:
    """The limits; without one of time where a debugger is or was attached: who looks at a variable ends no window."""
    if is_debugged():
        return replace(measure, max_seconds=NO_LIMIT_S)
    return measure


def is_debugged() -> bool:
    """True if a debugger has stopped here, or watches by a trace function or (Python 3.12) by `sys.monitoring`."""
    monitoring = getattr(sys, "monitoring", None)
    watches = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    return _has_stopped.is_set() or sys.gettrace() is not None or watches


@contextmanager
def stops_noted() -> Iterator[None]:
    """Note for a while that a debugger stops, by `breakpoint()` or `pdb.set_trace()`: all of them are `bdb.Bdb`."""
    original = bdb.Bdb.set_trace

    def set_trace(self: bdb.Bdb, frame: FrameType | None = None) -> Any:
        _has_stopped.set()
        # The caller's frame: the debugger is to stop there and not in here.
        return original(self, frame or sys._getframe().f_back)

    _has_stopped.clear()
    bdb.Bdb.set_trace = set_trace  # type: ignore[method-assign]  # given back below
    try:
        yield
    finally:
        bdb.Bdb.set_trace = original  # type: ignore[method-assign]
        _has_stopped.clear()
