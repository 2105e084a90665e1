"""Ranks that a hang waits for: from the collectives they have begun, else from their stacks.

Pure functions. The stacks are those that `faulthandler` writes to a rank's log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

WAITING = re.compile(
    r'File "[^"]*/(?:torch/distributed|dtsweep/(?:compression|measure|sync|worker))/[^"]*"'
    r'|File "[^"]*/torch/autograd/graph\.py", line \d+ in _engine_run_backward'
)
"""Innermost frame of a rank that waits for others: in an exchange, or in the backward pass."""

_FRAME = re.compile(r'^  File ".*", line \d+ in .+$')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+")
_ATTEMPT = re.compile(r'/dtsweep/worker/attempt\.py", line \d+ in run_attempt$')


def behind(collectives: Mapping[int, int | None], stacks: Mapping[int, Sequence[str]]) -> list[int]:
    """Name the ranks for which the others wait; empty where nothing tells them apart.

    Args:
        collectives: begun by each rank; None of a rank that does not say.
        stacks: of each rank, as `attempt_stack` returns them.

    >>> behind({0: 42, 1: 41, 2: 42}, {})
    [1]
    >>> behind({0: 42, 1: 42}, {0: ['File "/torch/distributed/c10d.py", line 1 in wait'],
    ...                         1: ['File "net.py", line 7 in loss']})
    [1]
    """
    silent = [rank for rank, count in collectives.items() if count is None]
    counts = [count for count in collectives.values() if count is not None]
    if len(set(counts)) > 1:
        return [rank for rank, count in collectives.items() if count == min(counts)]
    # A rank that holds Python's lock can't say how far it is, and the others wait for it.
    if silent and counts:
        return silent
    working = [rank for rank, frames in stacks.items() if frames and not _waits(frames)]
    if len(working) == len(collectives):
        return []
    return working


def _waits(frames: Sequence[str]) -> bool:
    return WAITING.search(frames[0]) is not None


def attempt_stack(log: str) -> list[str]:
    """Frames of the thread that runs the attempt, the innermost first.

    They are those of the last stacks in a log; empty where it has none. `faulthandler` cuts a stack
    at 100 frames: without a thread that shows `run_attempt`, the deepest one is taken.
    """
    threads: list[list[str]] = []
    for line in log.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and _FRAME.match(line):
            threads[-1].append(line.strip())
    for frames in reversed(threads):
        if any(_ATTEMPT.search(frame) for frame in frames):
            return frames
    return max(threads, key=len, default=[])
