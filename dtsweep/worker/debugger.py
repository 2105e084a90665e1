"""Detection of a debugger, attached now or before, for which limits of time are suspended."""

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
"""True if a Python debugger has stopped in this process.

After `continue`, no trace function is set any more.
"""


def without_deadline(measure: Measure) -> Measure:
    """Return the limits, without those of time if a debugger is or was attached."""
    if is_debugged():
        return replace(measure, max_seconds=NO_LIMIT_S)
    return measure


def is_debugged() -> bool:
    """True if a debugger has stopped here, or is attached.

    It is attached by a trace function or, from Python 3.12 on, by `sys.monitoring`.
    """
    monitoring = getattr(sys, "monitoring", None)
    watches = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    return _has_stopped.is_set() or sys.gettrace() is not None or watches


@contextmanager
def stops_noted() -> Iterator[None]:
    """Record within this context that a debugger stops.

    `breakpoint()` and `pdb.set_trace()` both use `bdb.Bdb`.
    """
    original = bdb.Bdb.set_trace

    def set_trace(self: bdb.Bdb, frame: FrameType | None = None) -> Any:
        _has_stopped.set()
        # The caller's frame: the debugger must stop there, not here.
        return original(self, frame or sys._getframe().f_back)

    _has_stopped.clear()
    bdb.Bdb.set_trace = set_trace  # type: ignore[method-assign]  # given back below
    try:
        yield
    finally:
        bdb.Bdb.set_trace = original  # type: ignore[method-assign]
        _has_stopped.clear()
