"""The log of a rank that has ended: its last words, a failed kernel, a lost peer. Pure functions.

Only what a rank wrote in its last trial counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from dtsweep.session.hang import attempt_stack
from dtsweep.session.nodes import NO_LOG
from dtsweep.sweep.task import HEADING

_OWN_LINES = (NO_LOG, HEADING, "dtsweep: ")
"""Beginnings of lines in a log that are not the workload's words."""

_STACK = re.compile(
    r'\s+(?:File "|Binary file "|<|\.\.\.)|frame #\d+: |(?:Current thread|Thread) 0x'
    r"|Extension modules: |Exception raised from |Compile with `TORCH_USE_CUDA_DSA`"
    r"|Device-side assertion tracking was not enabled"
)
"""Beginnings of lines in a stack of C++ or Python, and of torch's hints, which follow an error."""

_ERROR = re.compile(
    r"^\s*what\(\):|^(?:\w+\.)*\w+(?:Error|Exception)(?::|$)|^Fatal Python error: (?!Aborted)"
    r"|\b(?:CUDA|NCCL|CUBLAS|cuDNN) error: "
)
"""A line that names an error: of Python, of C++, or of a library."""

_BLOCK = re.compile(r"Traceback |terminate called |$")
"""Beginnings of lines that end the message of an error."""

_FAILED_KERNEL = re.compile(
    r"(CUDA error: (?:device-side assert triggered|an illegal memory access was encountered"
    r"|an illegal instruction was encountered|misaligned address|invalid program counter"
    r"|operation not supported on global/shared address space|unspecified launch failure))"
    r"|block: \[[\d,]+\], thread: \[[\d,]+\] (Assertion .* failed)"
)
"""Errors of a kernel for which CUDA's documentation names the program as the usual cause."""

_HARDWARE = re.compile(
    r"uncorrectable (?:ECC|NVLink) error|GPU is lost|fallen off the bus|\bXid\b", re.IGNORECASE
)
"""Errors of a device or of its links."""

_LOST_PEER = re.compile(
    r"ncclRemoteError|remote process exited|Watchdog caught collective operation timeout"
)
"""Messages of NCCL, and of its watchdog, in a rank that ends because a peer is gone or silent."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in ')
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|/lib/python3|^<"
    r"|/dtsweep/(?:compression|hardware|loops|measure|servers|serving|session|sync)/"
    r"|/dtsweep/(?:worker|workloads)/"
)
"""Paths of source files that are not the user's code."""


def last_words(log: str) -> str:
    r"""The last line that a rank wrote in its last trial; empty if it wrote none.

    Where that line is part of a stack, the line that names the error.

    >>> last_words("old\n--- dtsweep: trial 1\nout of paper\ndtsweep: restored\n")
    'out of paper'
    >>> last_words("--- dtsweep: trial 1\nterminate called\n  what():  no memory\nframe #0: f()\n")
    'no memory'
    >>> last_words("old\n--- dtsweep: trial 1\n")
    ''
    """
    lines = [line for line in _last_trial(log).splitlines() if not line.startswith(_OWN_LINES)]
    written = [line for line in lines if line.strip()]
    if not written:
        return ""
    words = written[-1]
    if _STACK.match(words):
        outside = [line for line in written if not _STACK.match(line)]
        words = _last_error(lines) or (outside or written)[-1]
    return words.strip().removeprefix("what():").strip()


def _last_error(lines: list[str]) -> str | None:
    """First line of the last message of an error; None where there is none."""
    error = None
    is_inside = False
    for line in lines:
        if _BLOCK.match(line):
            is_inside = False
        if not is_inside and _ERROR.search(line):
            error = line
            is_inside = True
    return error


def failed_kernel(log: str) -> str | None:
    """The error of a kernel that the workload has made fail, with the line of the user's code.

    None where the log of a rank tells of none, or of an error of the device itself.
    """
    trial = _last_trial(log)
    # The first failure: what follows it fails by it.
    error = _FAILED_KERNEL.search(trial)
    if HEADING not in log or error is None or _HARDWARE.search(trial):
        return None
    words = error[1] or f"in a kernel: {error[2]}"
    place = _place(trial)
    if place is None:
        return words
    return f"{words} ({place})"


def _place(trial: str) -> str | None:
    """Innermost file and line of the user's code in the last traceback, else in the last stack."""
    _, is_there, traceback = trial.rpartition("Traceback (most recent call last):")
    frames = []
    if is_there:
        # Up to the exception: stacks of a crash may follow.
        for line in traceback.splitlines()[1:]:
            if not line.startswith(" "):
                break
            frames.append(line)
        frames.reverse()
    return place_of(frames or attempt_stack(trial))


def place_of(frames: Sequence[str]) -> str | None:
    """First file and line of the user's code in a stack, the innermost frame first; else None.

    >>> place_of(['File "/lib/python3/queue.py", line 9 in get', 'File "train.py", line 7 in f'])
    'train.py:7'
    """
    for frame in frames:
        match = _FRAME.search(frame)
        if match and not _FOREIGN.search(match[1]):
            return f"{PurePath(match[1]).name}:{match[2]}"
    return None


def first_to_end(logs: Mapping[int, str]) -> int | None:
    """Of ranks that have ended, the one that did not end because a peer was gone.

    A rank whose kernel failed comes first: the others may have ended for it.

    Args:
        logs: of the ranks that have ended.

    Returns:
        The lowest such rank; None where each rank's log tells of a lost peer.

    >>> first_to_end({0: "NCCL error: remote process exited", 3: "step 17"})
    3
    """
    failed = [rank for rank, log in logs.items() if failed_kernel(log) is not None]
    if failed:
        return min(failed)
    others = (rank for rank, log in logs.items() if not _LOST_PEER.search(_last_trial(log)))
    return min(others, default=None)


def _last_trial(log: str) -> str:
    """Text of a log after the heading of its last trial; all of it where there is none."""
    _, heading, after = log.rpartition(HEADING)
    if not heading:
        return log
    return after.partition("\n")[2]
