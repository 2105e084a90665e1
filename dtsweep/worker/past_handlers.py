"""End a training loop that catches every exception, also the one that ends it."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dtsweep.errors import in_user_code


@contextmanager
def tracing_kept() -> Iterator[None]:
    """Give this thread's trace function back at the end: a debugger's, or none."""
    before = sys.gettrace()
    try:
        yield
    finally:
        if sys.gettrace() is not before:
            sys.settrace(before)


def raise_past_handlers(error: BaseException) -> None:
    """Raise an exception, and once more from the `except` clause of the user's that catches it.

    The second one leaves the clause's `try`: nothing in the clause is done. A trace function is
    how Python lets code of somebody else raise there; it ends with that.

    Raises:
        BaseException: the error.
    """

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line.lstrip().startswith("except"):
            raise error
        return trace

    def trace_no_call(*_: Any) -> None:
        """Called with each new frame, which is not traced."""

    sys.settrace(trace_no_call)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if in_user_code(frame.f_code.co_filename):
            frame.f_trace = trace
        frame = frame.f_back
    raise error
