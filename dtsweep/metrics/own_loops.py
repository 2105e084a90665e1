"""Columns that are counted or measured of the user's own training loops."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dtsweep.metrics.breakdown import Row
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.arguments import command_line
from dtsweep.sweep.modes import latency_column, period_of
from dtsweep.sweep.named_grid import MEANINGS, NamedGrid
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import AXES
from dtsweep.text import count_of

_SET_BY_WORKLOADS = (
    "micro_batch",
    "accumulation",
    "global_batch",
    "samples_per_update",
    "optimizer",
    "learning_rate",
    "precision",
    "overlap",
    "clip_norm",
    "compression",
    *(name for name in MEANINGS if name in AXES),
)
"""Columns of a point that say nothing about a training loop of the user, unless they are axes."""

_DECLARED = ("data_parallel", "model_parallel", "agree")
"""Columns from the declaration of a mode: a script may promise the first two."""

_PER_SECOND = ("samples_per_s", "samples_per_s_low", "samples_per_s_high", "samples_per_s_error")
"""Columns that grow with the samples of a step."""

_PER_SAMPLE = ("energy_j_per_sample", "cpu_energy_j_per_sample")
"""Columns that shrink with them."""

TOO_SHORT = "before it was measured"
NO_STEP = "no step of a torch.optim.Optimizer has ended in"
"""Parts of the reasons of a training loop with too few steps, and without any that is seen."""


def columns_of_loop(point: Point) -> Row:
    """Columns of a point whose workload is a training loop of the user, before it runs."""
    loop = point.workload
    columns: Row = dict.fromkeys(name for name in _SET_BY_WORKLOADS if name not in loop.driven)
    columns |= dict.fromkeys(_DECLARED)
    if point.named_grid is not None:
        columns |= {"data_parallel": point.grid.data, "model_parallel": point.grid.model}
    if getattr(loop, "script_file", None) is not None:
        words = [loop.path, *command_line(loop.arguments, loop.values(point))]
        columns["command"] = json.dumps(words, ensure_ascii=False)
    return columns


def with_counted_samples(point: Point, ranks: Sequence[Measured]) -> Point:
    """The point with the samples of a worker's step: as counted, or 1 where it is not one number.

    Columns of the latter are corrected by `counted_columns`.
    """
    samples = _equal_count(ranks) or 1
    return replace(point, micro_batch=samples, accumulation=1)


def counted_columns(point: Point, ranks: Sequence[Measured], row: Row) -> Row:
    """Columns that depend on the samples of a step, and the measured semantics.

    Args:
        point: that of `with_counted_samples`; its grid is 1 worker per model, or as promised.
        ranks: what all ranks measured.
        row: columns of the point of `with_counted_samples`.
    """
    counts = _counts(point, ranks)
    known = [count for count in counts if count is not None]
    # Where all are known, what a worker without batches says is not the reason of anything.
    is_unknown = len(known) < len(counts)
    reasons = [r.samples_reason for r in ranks if is_unknown or r.samples_per_step is not None]
    semantics = _measured_semantics(ranks[0], workers=len(ranks))
    untaken = set.intersection(*({*rank.untaken} for rank in ranks))
    latency = latency_column(semantics, period=period_of(row))
    columns: Row = {
        f"latency_s{end}": row.get(f"{latency}{end}") for end in ("", "_low", "_high", "_error")
    }
    columns |= {
        "semantics": semantics,
        "model_parallel": _ranks_per_model(point, ranks),
        "flags": [*row["flags"], *(["loader_unchanged"] if untaken else [])],
        "samples_reason": next(filter(None, reasons), None),
    }
    if is_unknown:
        return columns | dict.fromkeys((*_PER_SECOND, *_PER_SAMPLE))
    samples = _sum_of_models(point, ranks, known)
    usual = [rank.usual_samples for rank in ranks if rank.usual_samples is not None]
    batch = samples
    if samples % 1 and len(usual) == len(ranks):
        # The last batch of an epoch is smaller.
        batch = _sum_of_models(point, ranks, usual)
    if batch % 1 == 0:
        columns |= {"global_batch": int(batch), "samples_per_update": int(batch)}
    counted = (_equal_count(ranks) or 1) * point.grid.data
    for names, factor in ((_PER_SECOND, samples / counted), (_PER_SAMPLE, counted / samples)):
        values = {name: row.get(name) for name in names}
        columns |= {name: v if v is None else v * factor for name, v in values.items()}
    return columns


def _counts(point: Point, ranks: Sequence[Measured]) -> list[float | None]:
    """Samples of a step of each worker; None where they are unknown.

    Stages of a pipeline between the first and the last may load nothing: a worker that shares a
    model by promise has the samples of the others, if these have equally many.
    """
    counts = [rank.samples_per_step for rank in ranks]
    known = {count for count in counts if count is not None}
    if point.grid.model > 1 and len(known) == 1:
        return [*known] * len(counts)
    return counts


def _ranks_per_model(point: Point, ranks: Sequence[Measured]) -> int | None:
    """Workers that share a model, if all groups have as many; None if that is unknown."""
    if point.named_grid is not None:
        # What was found is compared with it.
        return point.grid.model
    if len(ranks) == 1:
        return 1
    sizes = {rank.model_parallel for rank in ranks}
    return sizes.pop() if len(sizes) == 1 else None


def _sum_of_models(point: Point, ranks: Sequence[Measured], counts: Sequence[float]) -> float:
    """Sum over ranks, in which those that share a model count once."""
    if point.named_grid is not None:
        return sum(counts) / point.grid.model
    shares = zip(ranks, counts, strict=True)
    return sum(count / (rank.model_parallel or 1) for rank, count in shares)


def _equal_count(ranks: Sequence[Measured]) -> int | None:
    """Samples of a step of each worker, if they are the same whole number."""
    counts = {rank.samples_per_step for rank in ranks}
    first = ranks[0].samples_per_step
    if len(counts) > 1 or first is None or first % 1:
        return None
    return int(first)


def _measured_semantics(rank: Measured, *, workers: int) -> str:
    """Semantics of the updates of a training loop, by gradients and parameters of its ranks."""
    if workers == 1:
        return "exact"
    return rank.semantics or "unknown"


def broken_grid(grid: NamedGrid, found: int) -> str | None:
    """A reason if other workers share a model than the arguments of a script promise.

    Args:
        grid: that they promise.
        found: workers that load the same batches for parts of one model.

    >>> broken_grid(NamedGrid({"tensor_parallel": 2}, {"tensor_parallel": "args.tp"}), 1)
    'a model has 1 worker by the batches that workers load, and 2 by args.tp=2'
    """
    if found == grid.model:
        return None
    return (
        f"a model has {count_of(found, 'worker')} by the batches that workers load, and "
        f"{grid.model} by {grid.named(grid.degrees)}"
    )


def broken_promise(point: Point, driven: Iterable[str], samples: int | None) -> str | None:
    """A reason if a worker loads other samples in a step than the axes of the sweep promise.

    Args:
        point: with `micro_batch`, `accumulation` or `global_batch`.
        driven: those of them that are axes.
        samples: of a worker's usual step, as counted; None if unknown.

    >>> broken_promise(Point(micro_batch=8), ["micro_batch", "accumulation"], 16)
    'the loop loads 16 samples per worker and step; micro_batch=8 and accumulation=1 promise 8'
    """
    axes = [name for name in ("micro_batch", "accumulation") if name in driven]
    promised = point.micro_batch * point.accumulation
    may_be_multiple = False
    if "global_batch" in driven:
        axes = ["global_batch"]
    elif len(axes) == 1:
        # The other factor is the loop's own.
        promised, may_be_multiple = getattr(point, axes[0]), True
    if samples is None or not axes or samples == promised:
        return None
    if may_be_multiple and samples % promised == 0:
        return None
    given = " and ".join(f"{name}={getattr(point, name)}" for name in axes)
    promise = f"{given} promises {promised}"
    if may_be_multiple:
        promise += " or a multiple"
    elif len(axes) > 1:
        promise = f"{given} promise {promised}"
    return f"the loop loads {samples} samples per worker and step; {promise}"
