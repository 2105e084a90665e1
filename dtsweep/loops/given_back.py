"""Settings and other state that a training loop of the user changes, given back after its trial."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dtsweep.hardware.process_state import put_back
from dtsweep.hardware.random_states import random_states_kept
from dtsweep.loops.interpreter import Loggers, settings, unfreeze
from dtsweep.loops.library_state import reset_libraries, stop_writers
from dtsweep.loops.patches import Patches
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import Task


@dataclass
class LeftByLoop:
    """State that a loop left behind, in words, as in `LeftState`."""

    restored: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()


@contextmanager
def loop_state_kept(task: Task, device: torch.device) -> Iterator[LeftByLoop]:
    """Restore what the task's training loop changes in this process, at the end of the context.

    Other workloads are left alone.

    Yields:
        What it left behind, known after the end.
    """
    left = LeftByLoop()
    if task.point.sync != AS_WRITTEN:
        yield left
        return
    state = _LoopState(device)
    try:
        yield left
    finally:
        left.restored, left.remaining = state.restore()


class _LoopState:
    """State of this process before a training loop runs in it; `restore` returns to it, once."""

    def __init__(self, device: torch.device) -> None:
        """Read the state; the libraries begin as in a new process."""
        reset_libraries()
        self._contexts = ExitStack()
        self._contexts.enter_context(random_states_kept(device))
        self._contexts.enter_context(_signals_in_any_thread())
        self._threads = set(threading.enumerate())
        self._frozen = gc.get_freeze_count()
        self._settings = [(setting, setting.read()) for setting in settings()]
        self._loggers = Loggers()
        self._patches = Patches()

    def restore(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Restore what has changed; name it, and what can't be restored."""
        patched, replaced = self._patches.restore()
        changed, fixed = put_back(self._settings)
        # torch sets it with each process group.
        changed = [name for name in changed if name != "sys.excepthook"]
        self._loggers.restore()
        stop_writers(self._threads)
        if unfreeze(self._frozen):
            changed.append("frozen garbage")
        reset_libraries()
        self._contexts.close()
        return (*changed, *patched), (*fixed, *replaced)


@contextmanager
def _signals_in_any_thread() -> Iterator[None]:
    """Let a loop set signal handlers in a thread, where Python refuses that, without effect.

    A rank of Ray Train runs its loop in a thread, and `torchrun` in the main one.
    """
    if threading.current_thread() is threading.main_thread():
        yield
        return
    set_handler = signal.signal

    def ignored(number: int, handler: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return set_handler(number, handler)
        name = signal.Signals(number).name
        print(f"dtsweep: the handler of {name} has no effect here", file=sys.stderr)  # noqa: T201
        return signal.getsignal(number)

    signal.signal = ignored  # type: ignore[assignment]  # given back below
    try:
        yield
    finally:
        signal.signal = set_handler
