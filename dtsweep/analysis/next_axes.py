"""Axes to try next at a point: those that attack its limit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dtsweep.sweep.mode_info import ModeInfo
from dtsweep.sweep.modes import AS_WRITTEN, mode_in_results

_MOST = 3
"""Axes that are named."""

_NOTICEABLE = 0.1
"""Share of a step from which on the optimizer is worth a thought."""

BF16_DEVICES = re.compile(r"\b([ABLH]|G[BH])\d+G?S?\b|\bMI\d+X\b")
"""Names of devices that `dtsweep.hardware.peaks` has a rate of bf16 for."""

_Row = Mapping[str, Any]
"""A point with its settings and shares, as `dtsweep.analysis.bottleneck` has them.

Unknown is None.
"""


class NextAxis(NamedTuple):
    """An axis to sweep next."""

    axis: str
    """A field of a point; `workload` is what the workload itself could do otherwise."""

    at_most_share: float
    """Share of the step that the axis can reduce.

    Removing that share makes the step 1 ÷ (1 - share) times as fast.
    """

    why: str
    """Change that it would make, and the cost of that."""


def next_axes(bound: str | None, row: _Row) -> list[NextAxis]:
    """Name up to three axes that fit a point's bottleneck, mode and settings, best first."""
    if bound is None:
        return []
    axes = {
        "exchange": _of_exchange,
        "straggler": _of_straggler,
        "input": _of_input,
        "compute": _of_compute,
        "memory": _of_memory,
        "host": _of_host,
    }[bound](row)
    if row["sync"] == AS_WRITTEN:
        axes = (axis for axis in axes if axis.axis not in _OF_OWN_MODES)
    first: dict[str, NextAxis] = {}
    for axis in axes:
        # One axis may have several reasons: the first is the best.
        first.setdefault(axis.axis, axis)
    # A difference that can't be told from nothing may leave more than the step to its work.
    named = [axis._replace(at_most_share=min(axis.at_most_share, 1.0)) for axis in first.values()]
    return named[:_MOST]


_OF_OWN_MODES = ("sync", "compression")
"""Axes that a training loop of the user does not read; others may be arguments of it."""


def _of_exchange(row: _Row) -> Iterator[NextAxis]:
    mode = mode_in_results(row["sync"])
    share = row["exchange_share"]
    if "overlap" in mode.reads and row["overlap"] is False:
        yield NextAxis("overlap", share, "begin the exchange while backward still runs")
    if (compressing := row["compress_share"]) and compressing > share / 2:
        yield NextAxis(
            "compression", compressing, "compressing takes most of it: a cheaper one, or none"
        )
    if "sync_period" in mode.reads:
        yield NextAxis(
            "sync_period", share, "exchange after more steps; workers drift further apart"
        )
    if "push_period" in mode.reads and row.get("staleness") != 0:
        yield NextAxis("push_period", share, "push the gradients of more steps at once")
    if "shards" in mode.reads:
        yield NextAxis("shards", share, "more servers share the parameters")
    if mode.exchanges_each_pass:
        yield NextAxis("micro_batch", share, "more work for each exchange, where memory allows")
        yield NextAxis("sync", share, "ddp exchanges once a step, where the whole model fits")
    else:
        yield NextAxis(
            "accumulation", share, "one exchange for more passes, with a larger global_batch"
        )
    yield from _of_what_travels(row, mode, share)


def _of_what_travels(row: _Row, mode: ModeInfo, share: float) -> Iterator[NextAxis]:
    if mode.carries and row["compression"] is None:
        yield NextAxis("compression", share, "send fewer bytes; updates become lossy")
    if "bucket_bytes" in mode.reads:
        yield NextAxis(
            "bucket_bytes", share, "pieces of another size may hide better behind backward"
        )
    if row["semantics"] == "exact":
        yield NextAxis(
            "sync", share, "local_sgd exchanges once in sync_period steps; updates become local"
        )


def _of_straggler(row: _Row) -> Iterator[NextAxis]:
    share = row["waiting_share"]
    reads = mode_in_results(row["sync"]).reads
    waits_for_all = "staleness" in reads and row.get("staleness") == 0
    if waits_for_all and not row.get("drop_slowest"):
        yield NextAxis(
            "drop_slowest", share, "go on without the last gradients; updates become lossy"
        )
    yield NextAxis("workers", share, f"without {row['straggler']} the others don't wait")
    if (row["hosts"] or 1) > 1:
        yield NextAxis("placement", share, "other nodes, without the slow one")
    if "sync_period" in reads:
        yield NextAxis(
            "sync_period", share, "wait after more steps: it helps where the slow one changes"
        )
    elif waits_for_all:
        yield NextAxis("staleness", share, "let the others go on; updates become stale")
    elif "staleness" not in reads:
        yield NextAxis(
            "sync", share, "parameter_server lets the others go on; updates become stale"
        )


def _of_input(row: _Row) -> Iterator[NextAxis]:
    share = row["input_share"]
    if row["sync"] == AS_WRITTEN:
        why = "more processes of the DataLoader make batches ahead"
        yield NextAxis("loader.num_workers", share, why)
        yield NextAxis("workload", share, "less to decode in the DataLoader")
        return
    if mode_in_results(row["sync"]).participants is None:
        yield from _of_loader(row, share)
    yield NextAxis(
        "workload", share, "let batch() keep, decode beforehand or load ahead what it gives"
    )
    yield NextAxis(
        "micro_batch", share, "what a call of batch() costs whatever its size falls on more samples"
    )


def _of_loader(row: _Row, share: float) -> Iterator[NextAxis]:
    """Axes that make and copy batches while a step computes."""
    workers = row.get("loader_workers")
    if workers is None:
        why = "processes make the next batches while a step computes; they need cores of their own"
    else:
        why = f"more than {workers:.0f} processes, as long as there are cores for them"
    yield NextAxis("loader_workers", share, why)
    if workers is not None:
        yield NextAxis("prefetch", share, "more batches ahead even out those that take long")
    if not _is_on_cpus(row):
        if not row.get("copy_ahead"):
            yield NextAxis("copy_ahead", share, "copy the next batch while a step computes")
        if not row.get("pin_memory"):
            yield NextAxis("pin_memory", share, "the host does not wait for copies to the GPU")


def _of_compute(row: _Row) -> Iterator[NextAxis]:
    work = row["work_share"]
    arithmetic = row["compute_share"]
    yield from _lower_precision(row, work)
    if arithmetic < work / 2:
        yield NextAxis(
            "micro_batch", work - arithmetic, "larger products come nearer the device's peak"
        )
    yield from _fewer_updates(row)
    if not _shares_cores(row):
        yield NextAxis(
            "workers", work, "share the samples out, as long as the exchange stays small"
        )


def _of_memory(row: _Row) -> Iterator[NextAxis]:
    share = min(row["memory_share"], row["work_share"])
    yield from _fewer_updates(row)
    yield from _lower_precision(row, share)
    yield NextAxis("workload", share, "fuse operations, as torch.compile does")
    if not _shares_cores(row):
        yield NextAxis(
            "workers",
            row["work_share"],
            "share the samples out, where workers have memory of their own",
        )


def _of_host(row: _Row) -> Iterator[NextAxis]:
    share = row["work_share"]
    yield NextAxis("micro_batch", share, "more samples for each operation that is launched")
    yield NextAxis("workload", share, "fewer and larger operations, as torch.compile makes them")
    yield from _fewer_updates(row)


def _is_on_cpus(row: _Row) -> bool:
    return row.get("backend") == "gloo"


def _shares_cores(row: _Row) -> bool:
    """True if another worker would share the cores of the ones there are: CPUs of one host."""
    return _is_on_cpus(row) and (row["hosts"] or 1) == 1


def _lower_precision(row: _Row, share: float) -> Iterator[NextAxis]:
    # Without units for bf16, as most CPUs are, it is many times as slow as fp32.
    if row["precision"] not in ("bf16", "fp16") and BF16_DEVICES.search(str(row.get("devices"))):
        yield NextAxis("precision", share, "bf16, for which the device has units; rounded more")


def _fewer_updates(row: _Row) -> Iterator[NextAxis]:
    if (share := row["optimizer_share"] or 0.0) > _NOTICEABLE:
        yield NextAxis(
            "accumulation", share, "one update for more passes, with a larger global_batch"
        )
