"""State that training libraries keep in a process; a library that is not loaded has none."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection
from contextlib import suppress

_WRITERS = ("tensorboard", "tensorboardX")
"""Packages whose threads write events, and wait for more until they are stopped."""


def reset_libraries() -> None:
    """Let each library that is loaded begin as in a new process."""
    _reset_accelerate()
    _reset_lightning()


def _reset_accelerate() -> None:
    """Forget what Accelerate, and with it the Trainer of Transformers, knows of the process."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()


def _reset_lightning() -> None:
    """Let the rank that prints be rank 0 of this world; Lightning keeps it from its import on."""
    rank_zero = sys.modules.get("lightning_utilities.core.rank_zero")
    if rank_zero is not None:
        rank_zero.rank_zero_only.rank = int(os.environ.get("RANK", "0"))


def stop_writers(before: Collection[threading.Thread]) -> None:
    """Stop new threads of event writers, which a loop that is ended has no time to close."""
    for thread in threading.enumerate():
        stop = getattr(thread, "stop", None)
        package = type(thread).__module__.partition(".")[0]
        if thread not in before and package in _WRITERS and callable(stop):
            # It may have failed to write, and ended.
            with suppress(RuntimeError, OSError):
                stop()
