"""How much work a function does, in calls: the same on every machine, however busy."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """Run a function and count its calls of Python and of C, with comparisons of dataclasses."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collects = sys.getprofile(), gc.isenabled()
    # What others have called back on a collection is no work of the function.
    gc.disable()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count
