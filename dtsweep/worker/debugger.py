"""Whether a debugger is attached to a rank, and what it must not cost."""

from __future__ import annotations

import sys
from dataclasses import replace

from dtsweep.sweep.settings import Measure

NO_LIMIT_S = 1e9


def without_deadline(measure: Measure) -> Measure:
    """The limits; without one of time while a debugger is attached, since who looks at a variable ends no window."""
    return replace(measure, max_seconds=NO_LIMIT_S) if is_debugged() else measure


def is_debugged() -> bool:
    """Whether a debugger watches this process: by its trace function, or from Python 3.12 on by `sys.monitoring`."""
    monitoring = getattr(sys, "monitoring", None)
    watches = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    return sys.gettrace() is not None or watches
