"""From a trace to what a step spent its time on: intervals merged by class. Needs no torch.

The classes are those of Holistic Trace Analysis, <https://hta.readthedocs.io>.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.int64]
"""(intervals, 2): start and end in nanoseconds, in any order; they may overlap."""

Event = Mapping[str, Any]
"""An event of a Chrome trace: `name`, `cat`, `tid`, `ts` and `dur` in microseconds."""

WINDOW = "dtsweep: profiled steps"
"""Name of the annotation that spans the profiled steps."""

CLASSES = ("compute_s", "exchange_s", "overlap_s", "exposed_s", "idle_s")
"""What a step's time is split into; compute, exposed exchange and idle add up to it."""

LARGEST = 10
"""So many kernels are listed."""

_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_EXCHANGE_OPERATORS = ("c10d::", "c10d_functional::", "_c10d_functional::")
# They only call others, and a hook inside them may wait for other workers.
_WRAPPERS = ("autograd::", "torch::autograd::")
_COMPILED = "## Call CompiledFxGraph"


class Piece(NamedTuple):
    """A stretch of time in which one kernel or operator ran, and nothing that it called."""

    name: str
    kind: str
    """`compute` or `exchange`."""
    call: int
    """Pieces of one call have the same number."""
    start: int
    """In nanoseconds."""
    end: int


def covered(intervals: Intervals) -> int:
    """How many nanoseconds lie in at least one of the intervals.

    >>> covered(np.array([[6, 7], [0, 2], [1, 4]]))
    5
    """
    starts, ends = intervals[np.argsort(intervals[:, 0])].T
    reached = np.maximum.accumulate(ends)
    before = np.concatenate([starts[:1], reached[:-1]])
    return int(np.maximum(ends - np.maximum(starts, before), 0).sum())


def split(compute: Intervals, exchange: Intervals, *, window: tuple[int, int]) -> dict[str, float]:
    """Split a window into its `PARTS`.

    Args:
        compute: when something computed.
        exchange: when something was exchanged.
        window: start and end in nanoseconds; what lies outside does not count.

    Returns:
        Seconds by part: `overlap_s` is both at once, `exposed_s` exchange without compute, `idle_s` neither.
    """
    compute, exchange = compute.clip(*window), exchange.clip(*window)
    compute_ns, exchange_ns, busy_ns = covered(compute), covered(exchange), covered(np.concatenate([compute, exchange]))
    overlap_ns, exposed_ns = compute_ns + exchange_ns - busy_ns, busy_ns - compute_ns
    parts = (compute_ns, exchange_ns, overlap_ns, exposed_ns, window[1] - window[0] - busy_ns)
    return {name: part / 1e9 for name, part in zip(CLASSES, parts, strict=True)}


def breakdown(events: Iterable[Event], *, steps: int, device: str) -> dict[str, Any]:
    """Say what the profiled steps of one rank spent their time on.

    Args:
        events: the `traceEvents` of a Chrome trace in which the annotation `WINDOW` spans the steps.
        steps: how many these are.
        device: `cuda`: what ran on the device counts; `cpu`: the operators of the training threads and gloo's work.

    Returns:
        All per step: `step_s`, the `PARTS`, `overlap_share` (of the exchange), and `kernels`, the largest first,
        each with `name`, `class`, `self_s` and `calls`. None is what the trace does not tell.
    """
    timed = [event for event in events if event.get("ph") == "X"]
    (window,) = (_interval(event) for event in timed if event["name"] == WINDOW and event["cat"] == "user_annotation")
    found = _device_pieces(timed) if device == "cuda" else _host_pieces(timed)
    clipped = (p._replace(start=max(p.start, window[0]), end=min(p.end, window[1])) for p in found)
    pieces = [piece for piece in clipped if piece.start < piece.end]

    parts: dict[str, float | None] = dict(split(_of(pieces, "compute"), _of(pieces, "exchange"), window=window))
    # Steps that left no trace at all were not seen: another profiler may hold the device.
    parts |= dict.fromkeys(() if pieces else CLASSES)
    overlap, exchange = parts["overlap_s"], parts["exchange_s"]
    return {
        "step_s": (window[1] - window[0]) / 1e9 / steps,
        **{name: None if part is None else part / steps for name, part in parts.items()},
        "overlap_share": overlap / exchange if exchange and overlap is not None else None,
        "kernels": _largest(pieces, steps=steps),
    }


def innermost(intervals: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield when each of nested calls ran itself, and not what it called.

    Args:
        intervals: start and end of the calls of one thread, sorted by start, callers first.

    Yields:
        Index of the call, start and end.

    >>> list(innermost([(0, 9), (2, 4), (4, 5)]))
    [(0, 0, 2), (1, 2, 4), (2, 4, 5), (0, 5, 9)]
    """
    running: list[int] = []
    now = 0
    ahead = [(start, index) for index, (start, _) in enumerate(intervals)]
    for start, index in [*ahead, (max((end for _, end in intervals), default=0), -1)]:
        while running:
            end = intervals[running[-1]][1]
            if now < min(start, end):
                yield running[-1], now, min(start, end)
                now = min(start, end)
            if end > start:
                break
            running.pop()
        now = start
        running.append(index)


def _interval(event: Event) -> tuple[int, int]:
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


def _device_pieces(events: Sequence[Event]) -> Iterator[Piece]:
    """What ran on the device; NCCL's kernels wait for other workers while they run."""
    for call, event in enumerate(events):
        if event["cat"] in _ON_DEVICE:
            kind = "exchange" if event["name"].startswith("nccl") else "compute"
            yield Piece(event["name"], kind, call, *_interval(event))


def _host_pieces(events: Sequence[Event]) -> Iterator[Piece]:
    """Operators, without what they called; and gloo's work, which its own threads do."""
    gloo = {n: e for n, e in enumerate(events) if e["cat"] == "user_annotation" and e["name"].startswith("gloo:")}
    for call, event in gloo.items():
        yield Piece(event["name"], "exchange", call, *_interval(event))
    # gloo's threads use operators too, for their copies: part of the exchange.
    own = {event["tid"] for event in gloo.values()}
    threads = defaultdict(list)
    for call, event in enumerate(events):
        if event["cat"] == "cpu_op" and event["tid"] not in own:
            threads[event["tid"]].append((_interval(event), event["name"], call))
    for calls in threads.values():
        calls.sort(key=lambda call: (call[0][0], -call[0][1]))
        for index, start, end in innermost([interval for interval, _, _ in calls]):
            _, name, call = calls[index]
            if kind := _kind(name):
                yield Piece(name, kind, call, start, end)


def _kind(operator: str) -> str | None:
    if operator.startswith(_EXCHANGE_OPERATORS):
        return "exchange"
    computes = operator.startswith(_COMPILED) or ("::" in operator and not operator.startswith(_WRAPPERS))
    return "compute" if computes else None


def _of(pieces: Iterable[Piece], kind: str) -> Intervals:
    return np.array([(p.start, p.end) for p in pieces if p.kind == kind], dtype=np.int64).reshape(-1, 2)


def _largest(pieces: Iterable[Piece], *, steps: int) -> list[dict[str, Any]]:
    by_name = defaultdict(list)
    for piece in pieces:
        by_name[piece.name, piece.kind].append(piece)
    kernels: list[dict[str, Any]] = [
        {
            "name": name,
            "class": kind,
            "self_s": sum(p.end - p.start for p in group) / 1e9 / steps,
            "calls": len({p.call for p in group}) / steps,
        }
        for (name, kind), group in by_name.items()
    ]
    return sorted(kernels, key=lambda kernel: -kernel["self_s"])[:LARGEST]
