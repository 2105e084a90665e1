"""Signals that end a run: noted, so that what runs is stored first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that end a run: Ctrl-C, end of a job, end of a terminal, notice of a batch system."""


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; no `Exception`, so that Tune passes it on."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


@contextmanager
def signals_noted(
    raises_now: Callable[[], bool] = lambda: False,
) -> Iterator[list[int]]:
    """Note the first signal that ends a run instead of stopping wherever the driver happens to be.

    Args:
        raises_now: True where a first signal shall raise, too.

    Raises:
        Interrupted: another signal came, or one where `raises_now`.
    """
    signals: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1 or raises_now():
            raise Interrupted(number)

    if threading.current_thread() is not threading.main_thread():
        yield signals  # Python gives signals to the main thread alone
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    # Whoever has it ignored, as nohup does, wants the run to go on.
    noted = [
        n for n, handler in before.items() if n != signal.SIGHUP or handler is not signal.SIG_IGN
    ]
    for number in noted:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number in noted:
            signal.signal(number, before[number] or signal.SIG_DFL)
