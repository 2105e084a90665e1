"""Time of NCCL's collectives in a window, without a profiler: torch's flight recorder.

With `TORCH_NCCL_ENABLE_TIMING=1` in the environment torch records an event on the stream before and
after each collective. Its watchdog thread, which looks every 0.1 s, writes their distance into the
flight recorder: a ring of `TORCH_FR_BUFFER_SIZE` entries (2000) for all process groups together.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

VARIABLE = "TORCH_NCCL_ENABLE_TIMING"
"""Environment variable by which torch times collectives."""

_OFF = ("", "0", "n", "no", "f", "false")
"""Its values, in small letters, with which torch times none."""

_Entry = Mapping[str, Any]
"""An entry of the recorder, as torch's `_dump_nccl_trace` gives it."""

TRIES, PAUSE_S = 20, 0.1
"""Times that the recorder is read until all is in it, and the seconds between two of them."""

OVERWRITTEN = (
    "the flight recorder holds no whole sync period of the window; set env.TORCH_FR_BUFFER_SIZE to "
    "more entries"
)
UNTIMED = "the flight recorder has no durations of some collectives of the window"
EMPTY = "the flight recorder is empty; set env.TORCH_FR_BUFFER_SIZE to 2000 or more"


@dataclass(frozen=True, kw_only=True)
class NcclTime:
    """Time of a rank's collectives, or the reason why it is unknown."""

    seconds: float | None = None
    """Per step: the sum over collectives and process groups."""

    steps: int | None = None
    """Last steps of the window of which this is the mean."""

    reason: str | None = None
    """None where the time is known."""


def nccl_time(
    entries: Sequence[_Entry], launched_ns: Sequence[int], *, period: int = 1
) -> NcclTime:
    """Return the time of collectives in those steps of a window that the recorder still holds.

    Args:
        entries: of the recorder, the oldest first.
        launched_ns: when the host began each step, then when the window ended: (steps + 1,)
            nanoseconds since the epoch. A collective belongs to the step in which the host called
            it.
        period: steps of a sync period; whole periods count.
    """
    if not entries:
        return NcclTime(reason=EMPTY)
    first = _first_held(entries, launched_ns, period=period)
    steps = len(launched_ns) - 1 - first
    if not steps:
        return NcclTime(reason=OVERWRITTEN)
    inside = [
        entry
        for entry in entries
        if launched_ns[first] <= entry["time_created_ns"] < launched_ns[-1]
    ]
    timed = [entry for entry in inside if entry.get("duration_ms") is not None]
    # Operations of a batch have no time of their own: an entry for the whole batch has it, with the
    # same numbers.
    known = {_launch(entry) for entry in timed}
    if any(_launch(entry) not in known for entry in inside):
        return NcclTime(reason=UNTIMED)
    milliseconds: float = sum(entry["duration_ms"] for entry in timed)
    return NcclTime(seconds=milliseconds / steps / 1e3, steps=steps)


def recorded_time(
    launched_ns: Sequence[int],
    *,
    period: int,
    read: Callable[[], Sequence[_Entry]] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> NcclTime | None:
    """Read the time of a window's collectives after the window; None where torch times none.

    Args:
        launched_ns: as `nccl_time` takes it.
        period: steps of a sync period.
        read: gives the recorder's entries.
        pause: waits some seconds for torch's watchdog.
    """
    if os.environ.get(VARIABLE, "").lower() in _OFF:
        return None
    read = read or _recorder()
    if read is None:
        return None
    try:
        found = nccl_time(read(), launched_ns, period=period)
        for _ in range(TRIES):
            if found.reason != UNTIMED:
                break
            pause(PAUSE_S)
            found = nccl_time(read(), launched_ns, period=period)
    except (KeyError, RuntimeError) as error:
        # A trial that is measured must not be lost by a torch whose entries have other fields.
        return NcclTime(reason=f"the flight recorder can't be read: {error!r}")
    return found


def _recorder() -> Callable[[], Sequence[_Entry]] | None:
    """Reader of NCCL's flight recorder; None in a torch without NCCL."""
    dump = getattr(torch._C._distributed_c10d, "_dump_nccl_trace", None)
    if dump is None:
        return None

    def read() -> Sequence[_Entry]:
        trace = pickle.loads(dump(includeStackTraces=False))  # noqa: S301  # torch's, of this process
        entries: Sequence[_Entry] = trace.get("entries", [])
        return entries

    return read


def _first_held(entries: Sequence[_Entry], launched_ns: Sequence[int], *, period: int) -> int:
    """First step of which no entry is overwritten, so that whole periods follow."""
    steps = len(launched_ns) - 1
    oldest = entries[0]
    if oldest["record_id"] == 0:
        return 0
    held: int = sum(begin > oldest["time_created_ns"] for begin in launched_ns[:-1])
    return steps - held // period * period


def _launch(entry: _Entry) -> tuple[int, int, int]:
    """Numbers that the operations of one batch share with the entry of the batch."""
    return entry["pg_id"], entry["collective_seq_id"], entry["p2p_seq_id"]
