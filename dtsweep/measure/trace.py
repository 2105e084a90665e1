"""Breakdown of a GPU's trace: intervals of a step, merged by class; does not need torch.

The classes are those of Holistic Trace Analysis, <https://hta.readthedocs.io>.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_Intervals = NDArray[np.int64]
"""(intervals, 2): start and end in nanoseconds, in any order; they may overlap."""

_Event = Mapping[str, Any]
"""An event of a Chrome trace: `name`, `cat`, `ts` and `dur` in microseconds."""

WINDOW = "dtsweep: profiled steps"
"""Name of the annotation that spans the profiled steps."""

CLASSES = ("compute_s", "exchange_s", "overlap_s", "exposed_s", "idle_s")
"""Parts of a step's time; compute, exposed exchange and idle add up to it."""

_LARGEST = 10
"""So many kernels are listed."""

_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})

_EXCHANGE = re.compile(r"^nccl|^Memcpy PtoP|\b(multimem|one_shot|two_shot)_\w*kernel")
"""Names of what exchanges: NCCL's kernels, copies between GPUs, torch's symmetric memory.

NCCL from 2.28 on may leave collectives to a GPU's copy engines.
"""


class _Kernel(NamedTuple):
    """One run of a kernel, copy or memset."""

    name: str
    kind: str
    """`compute` or `exchange`."""
    start: int
    """In nanoseconds."""
    end: int


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile of one rank's steps."""

    trace: bytes
    """Chrome trace, JSON in gzip; Perfetto opens it."""

    table: dict[str, Any] | None
    """Seconds per step by class, and the largest kernels, as `trace.breakdown` gives them.

    None on a CPU.
    """


def _covered(intervals: _Intervals) -> int:
    """Number of nanoseconds that lie in at least one of the intervals.

    >>> _covered(np.array([[6, 7], [0, 2], [1, 4]]))
    5
    """
    starts, ends = intervals[np.argsort(intervals[:, 0])].T
    reached = np.maximum.accumulate(ends)
    before = np.concatenate([starts[:1], reached[:-1]])
    return int(np.maximum(ends - np.maximum(starts, before), 0).sum())


def split_window(
    compute: _Intervals, exchange: _Intervals, *, window: tuple[int, int]
) -> dict[str, float]:
    """Split a window's time into `CLASSES`.

    Args:
        compute: when something computed.
        exchange: when something was exchanged.
        window: start and end in nanoseconds; what lies outside does not count.

    Returns:
        Seconds by class: `overlap_s` is both at once, `exposed_s` exchange without compute,
        `idle_s` neither.
    """
    compute, exchange = compute.clip(*window), exchange.clip(*window)
    compute_ns = _covered(compute)
    exchange_ns = _covered(exchange)
    busy_ns = _covered(np.concatenate([compute, exchange]))
    overlap_ns = compute_ns + exchange_ns - busy_ns
    exposed_ns = busy_ns - compute_ns
    spent = (compute_ns, exchange_ns, overlap_ns, exposed_ns, window[1] - window[0] - busy_ns)
    return {name: ns / 1e9 for name, ns in zip(CLASSES, spent, strict=True)}


def breakdown(events: Iterable[_Event], *, steps: int) -> dict[str, Any]:
    """Say what the profiled steps of one rank spent their time on, by what ran on its GPU.

    Args:
        events: the `traceEvents` of a Chrome trace in which the annotation `WINDOW` spans the
            steps.
        steps: how many these are.

    Returns:
        All per step: `step_s`, the `CLASSES`, `overlap_share` (of the exchange), and `kernels`, the
        largest first, each with `name`, `class`, `self_s` and `calls`. None is what the trace does
        not tell.
    """
    timed = [event for event in events if event.get("ph") == "X"]
    (window,) = (
        _interval(event)
        for event in timed
        if event["name"] == WINDOW and event["cat"] == "user_annotation"
    )
    kernels = [kernel for kernel in _kernels(timed, window) if kernel.start < kernel.end]

    spent: dict[str, float | None] = dict(
        split_window(_of(kernels, "compute"), _of(kernels, "exchange"), window=window)
    )
    # Steps that left no trace at all were not seen: another profiler may hold the device.
    if not kernels:
        spent |= dict.fromkeys(CLASSES)
    overlap = spent["overlap_s"]
    exchange = spent["exchange_s"]
    overlap_share = None
    if exchange and overlap is not None:
        overlap_share = overlap / exchange
    return {
        "step_s": (window[1] - window[0]) / 1e9 / steps,
        **{name: None if seconds is None else seconds / steps for name, seconds in spent.items()},
        "overlap_share": overlap_share,
        "kernels": _largest(kernels, steps=steps),
    }


def _interval(event: _Event) -> tuple[int, int]:
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


def _kernels(events: Iterable[_Event], window: tuple[int, int]) -> Iterator[_Kernel]:
    """Kernels on the device, cut off at the end of the window."""
    for event in events:
        if event["cat"] in _ON_DEVICE:
            kind = "compute"
            if _EXCHANGE.search(event["name"]):
                kind = "exchange"
            start, end = _interval(event)
            yield _Kernel(event["name"], kind, max(start, window[0]), min(end, window[1]))


def _of(kernels: Iterable[_Kernel], kind: str) -> _Intervals:
    ends = [(kernel.start, kernel.end) for kernel in kernels if kernel.kind == kind]
    return np.array(ends, dtype=np.int64).reshape(-1, 2)


def _largest(kernels: Iterable[_Kernel], *, steps: int) -> list[dict[str, Any]]:
    by_name = defaultdict(list)
    for kernel in kernels:
        by_name[kernel.name, kernel.kind].append(kernel.end - kernel.start)
    listed: list[dict[str, Any]] = [
        {
            "name": name,
            "class": kind,
            "self_s": sum(times) / 1e9 / steps,
            "calls": len(times) / steps,
        }
        for (name, kind), times in by_name.items()
    ]
    return sorted(listed, key=lambda kernel: -kernel["self_s"])[:_LARGEST]
