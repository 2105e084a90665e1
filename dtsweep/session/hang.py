"""Ranks that a hang waits for: from the collectives they have begun, else from their stacks.

Pure functions. The stacks are those that `faulthandler` writes to a rank's log.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

_WAITING = re.compile(
    r'File "[^"]*/'
    r"(?:torch/distributed"
    r'|dtsweep/(?:compression|loops|measure|servers|serving|sync|worker))/[^"]*"'
    r'|File "[^"]*/torch/autograd/graph\.py", line \d+ in _engine_run_backward'
)
"""Innermost frame of a rank that waits for others: in an exchange, or in the backward pass."""

_FRAME = re.compile(r'^  File ".*", line \d+ in .+$')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+")
_ATTEMPT = re.compile(r'/dtsweep/session/attempt\.py", line \d+ in (?:run_attempt|outcome_of)$')

_RANK_OF_LOOP = re.compile(r'/dtsweep/session/loop_process\.py", line ')
"""Frame of a rank that waits for the process of its training loop."""


Begun = Mapping[str, int]
"""Collectives that a rank has begun in each of its process groups, by the group's name."""


def behind(
    collectives: Mapping[int, Begun | None], stacks: Mapping[int, Sequence[str]]
) -> list[int]:
    """Name the ranks for which the others wait; empty where nothing tells them apart.

    Args:
        collectives: begun by each rank, by group; None of a rank that does not say.
        stacks: of each rank, as `attempt_stack` returns them.

    >>> behind({0: {"all": 42}, 1: {"all": 41}, 2: {"all": 42}}, {})
    [1]
    >>> behind({0: {"all": 42}, 1: {"all": 42}},
    ...        {0: ['File "/torch/distributed/c10d.py", line 1 in wait'],
    ...         1: ['File "net.py", line 7 in loss']})
    [1]
    """
    silent = [rank for rank, begun in collectives.items() if begun is None]
    begun_by_rank = {rank: begun for rank, begun in collectives.items() if begun is not None}
    if lagging := _lagging(begun_by_rank):
        return lagging
    # A rank that holds Python's lock can't say how far it is, and the others wait for it.
    if silent and begun_by_rank:
        return silent
    working = [rank for rank, frames in stacks.items() if frames and not _WAITING.search(frames[0])]
    if len(working) == len(collectives):
        return []
    return working


def _lagging(begun_by_rank: Mapping[int, Begun]) -> list[int]:
    """Ranks that have begun less than another rank of a group, and in no group more than another.

    A rank that waits in one group for such a rank is itself behind in its other groups.
    """
    by_group = defaultdict[str, dict[int, int]](dict)
    for rank, begun in begun_by_rank.items():
        for group, count in begun.items():
            by_group[group][rank] = count
    less: set[int] = set()
    more: set[int] = set()
    for counts in by_group.values():
        less |= {rank for rank, count in counts.items() if count < max(counts.values())}
        more |= {rank for rank, count in counts.items() if count > min(counts.values())}
    return sorted(less - more)


def attempt_stack(log: str) -> list[str]:
    """Frames of the thread that runs the attempt, the innermost first.

    They are those of the last stacks in a log; empty where it has none. `faulthandler` cuts a stack
    at 100 frames: without a thread that shows the attempt, the deepest one is taken.
    """
    threads: list[list[str]] = []
    for line in log.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and _FRAME.match(line):
            threads[-1].append(line.strip())
    threads = [frames for frames in threads if not any(map(_RANK_OF_LOOP.search, frames))]
    for frames in reversed(threads):
        if any(_ATTEMPT.search(frame) for frame in frames):
            return frames
    return max(threads, key=len, default=[])
