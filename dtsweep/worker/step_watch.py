"""A thread that says where the workload is if no step ends for long: blocked, or only slow."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Protocol

from dtsweep.errors import in_user_code, is_own_code, short_place

_SAID_AFTER_S = (10.0, 60.0, 300.0)
"""Seconds without a new step after which a line says so."""

_LOOK_EVERY_S = 2.0

_BETWEEN = "loader_watch.py"
"""File of dtsweep's that user code calls, and that calls the user's data set."""


class _Steps(Protocol):
    """The part of `Loop` that is watched."""

    @property
    def steps_begun(self) -> int:
        """Of all segments."""


class StepWatch:
    """Watches the steps of one attempt after another."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        now: Callable[[], float] = time.monotonic,
        look_every_s: float = _LOOK_EVERY_S,
        place_of: Callable[[int], str | None] | None = None,
    ) -> None:
        """Watch nothing yet."""
        self.say = say
        self._now = now
        self._look_every_s = look_every_s
        self._place_of = place_of or _place_in_workload
        self._steps: _Steps | None = None
        self._thread_id = 0
        self._last = (0, 0.0)
        """Steps begun at a look, and the time of the first look that found so many."""
        self._lines = 0
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="dtsweep-steps", daemon=True).start()

    def __enter__(self) -> StepWatch:
        """Watch as long as this context lasts."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread at its next look."""
        self._closed.set()

    def begin(self) -> None:
        """Watch this thread's attempt, which has no steps yet."""
        self._steps = None
        self._lines = 0
        self._last = (0, self._now())
        self._thread_id = threading.get_ident()

    def follow(self, steps: _Steps) -> None:
        """Count these steps from now on."""
        self._steps = steps

    def end(self) -> None:
        """Watch nothing."""
        self._thread_id = 0

    def look(self) -> None:
        """Say where the workload is, if no step has begun for one of `_SAID_AFTER_S`."""
        now = self._now()
        begun = 0
        if self._steps is not None:
            begun = self._steps.steps_begun
        if begun != self._last[0]:
            self._last = (begun, now)
            self._lines = 0
        waited_s = now - self._last[1]
        if self._lines == len(_SAID_AFTER_S) or waited_s < _SAID_AFTER_S[self._lines]:
            return
        place = self._place_of(self._thread_id)
        if place is None:
            return
        self._lines += 1
        step = "before the first step"
        if begun:
            step = f"in step {begun - 1}"
        self.say(f"no step has ended for {waited_s:.0f} s: {place}, {step}")

    def _watch(self) -> None:
        while not self._closed.wait(self._look_every_s):
            if self._thread_id:
                self.look()


def _place_in_workload(thread_id: int) -> str | None:
    """Method of the workload that a thread is in, with the innermost line of the user's code.

    None if the thread is not in the workload: it waits for another rank, for example.
    """
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return None
    frames = traceback.extract_stack(frame)
    own = [
        index
        for index, entry in enumerate(frames)
        if is_own_code(entry.filename) and not entry.filename.endswith(_BETWEEN)
    ]
    called = frames[own[-1] + 1 :] if own else []
    called = [entry for entry in called if in_user_code(entry.filename)]
    if not called:
        return None
    return f"in {called[0].name} ({short_place(called[-1])})"
