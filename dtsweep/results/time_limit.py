"""Time limit for calls of libraries that can't be given one: their thread is left to itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_LEFT: set[threading.Thread] = set()
"""Threads whose calls took too long."""


def call_within(limit_s: float, call: Callable[[], _T]) -> _T:
    """Return what a call returns, or raise what it raises.

    >>> call_within(10.0, lambda: 7)
    7

    Raises:
        TimeoutError: it has not ended within the limit. Its thread goes on until the library
            gives up, so a repeated call has to be harmless.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="dtsweep-call", daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        _LEFT.add(thread)
        raise TimeoutError(f"no answer in {limit_s:.0f} s")
    return results[0]


def is_call_left() -> bool:
    """True if a call that took too long still runs."""
    return any(thread.is_alive() for thread in list(_LEFT))
