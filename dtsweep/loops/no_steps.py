"""Ends of training loops of the user: past their handlers, and without steps that can be seen."""

from __future__ import annotations

import functools
import linecache
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.multiprocessing.spawn

from dtsweep.errors import in_user_code
from dtsweep.metrics.own_loops import NO_STEP


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


MOST_PASSES = 1000
"""Backward passes without an optimizer step that are taken for accumulation."""

_MOST_S = 60.0
"""Seconds in which more passes than that are taken for it, too."""

_OWN_UPDATES = (
    f"{NO_STEP} {{passes}} backward passes and {{seconds:.0f}} s: the loop updates its parameters "
    "by hand, or by an optimizer that is not a subclass of torch.optim.Optimizer; derive the "
    "optimizer from it"
)
_OWN_PROCESSES = (
    f"{NO_STEP} the script, which starts processes by torch.multiprocessing.spawn: dtsweep "
    "measures steps of the script's own process; let it train there when torchrun's variable RANK "
    "is set"
)
"""Reasons, in words."""


class NoStepsError(RuntimeError):
    """A training loop trains, and no step of it is seen."""

    is_whole_reason = True


class _LoopWithoutSteps(BaseException):  # no error: training code swallows those
    """Raised in a loop that trains without steps."""


class NoSteps:
    """Ends a loop that trains before its first step is seen."""

    def __init__(self, steps: Callable[[], int]) -> None:
        """Count nothing yet; `steps` says how many have ended."""
        self._steps = steps
        self._passes = 0
        self._first_at = 0.0
        self.reason: str | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the loop in this context.

        Raises:
            NoStepsError: it was ended.
        """
        # Not `torch.multiprocessing.spawn`, which is the function of this name.
        spawning: Any = sys.modules["torch.multiprocessing.spawn"]
        backward, start = torch.autograd.backward, spawning.start_processes
        torch.autograd.backward = self._counted(backward)
        spawning.start_processes = self._refused(start)
        try:
            yield
        except _LoopWithoutSteps:
            raise NoStepsError(self.reason) from None
        finally:
            torch.autograd.backward, spawning.start_processes = backward, start

    def _counted(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def counted(*args: Any, **kwargs: Any) -> Any:
            # A backward inside another one belongs to it, as checkpointing has one for each layer.
            if not self._steps() and torch._C._current_graph_task_id() == -1:
                self._note_pass()
            return backward(*args, **kwargs)

        return counted

    def _note_pass(self) -> None:
        self._first_at = self._first_at or time.monotonic()
        self._passes += 1
        seconds = time.monotonic() - self._first_at
        if self._passes > MOST_PASSES and seconds > _MOST_S:
            self._end(_OWN_UPDATES.format(passes=self._passes, seconds=seconds))

    def _refused(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def refused(*args: Any, **kwargs: Any) -> Any:
            if not self._steps():
                self._end(_OWN_PROCESSES)
            return start(*args, **kwargs)

        return refused

    def _end(self, reason: str) -> None:
        self.reason = reason
        raise_past_handlers(_LoopWithoutSteps())
