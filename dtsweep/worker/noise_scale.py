"""Gradient noise scale of a model: the batch whose gradient is as large as its noise.

McCandlish et al. 2018, An Empirical Model of Large-Batch Training, appendix A.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import distributed, nn

from dtsweep.measure.isolated_exchange import fits_in_memory, max_over_ranks
from dtsweep.measure.statistics import students_t
from dtsweep.sweep.modes import has_train_step
from dtsweep.sync.weights import weight_of
from dtsweep.worker.loop import ModeLoop

_GRADIENTS = 16
"""Gradients of micro-batches in a round, at least: their mean stands for a large batch."""

_LEAST_ROUNDS, _MOST_ROUNDS = 8, 64
"""Rounds of that many gradients, each an estimate; their spread gives the interval."""

_PRECISE = 0.25
"""Half-width of the interval, as a share of the value, from which on no further round is run."""

_LIMIT_S = 20.0
"""Seconds after which no further round is run; where the least take longer, there is none."""


class _NoiseScale(NamedTuple):
    """Noise scale in samples, and its 95 % interval; the upper end is infinite if it is unknown."""

    value: float
    low: float
    high: float


def noise_scale(small: ArrayLike, large: ArrayLike, *, batch: int, gradients: int) -> _NoiseScale:
    """Estimate the noise scale, with Fieller's interval of a ratio.

    Args:
        small: (rounds,) mean squared norm of the gradients of a round's micro-batches.
        large: (rounds,) squared norm of the mean of these gradients.
        batch: samples of a micro-batch.
        gradients: number of micro-batches of a round.

    Returns:
        Trace of the covariance of one sample's gradient over the squared norm of the gradient;
        infinite where noise hides the gradient.
    """
    smalls, larges = np.asarray(small, np.float64), np.asarray(large, np.float64)
    whole = batch * gradients
    traces = (smalls - larges) / (1 / batch - 1 / whole)
    squares = (whole * larges - batch * smalls) / (whole - batch)
    rounds = len(smalls)
    (trace_variance, covariance), (_, square_variance) = np.cov(traces, squares) / rounds
    trace, square = float(traces.mean()), float(squares.mean())
    squared_t = students_t(rounds - 1) ** 2
    leading = square**2 - squared_t * square_variance
    middle = trace * square - squared_t * covariance
    last = trace**2 - squared_t * trace_variance
    value = trace / square if square > 0 else math.inf
    root = math.sqrt(max(0.0, middle**2 - leading * last))
    if leading > 0:
        return _NoiseScale(value, max(0.0, (middle - root) / leading), (middle + root) / leading)
    lowest = trace - math.sqrt(squared_t * trace_variance)
    highest = square + math.sqrt(squared_t * square_variance)
    # Without any gradient nothing is known.
    return _NoiseScale(value, max(0.0, lowest / max(highest, 1e-300)), math.inf)


def noise_scale_of(loop: ModeLoop, model: nn.Module) -> dict[str, Any]:
    """Measure the noise scale of a model as it is now; fields of `Measured`, on all ranks.

    Gradients of micro-batches are computed without any exchange, and leave the model as it is.
    """
    job, device = loop.job, loop.job.device
    if reason := _why_not(loop):
        return {"noise_scale_reason": reason}
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums: list[torch.Tensor] = []
    batches = chain.from_iterable(iter(loop.next_batches, None))

    def make_room() -> None:
        sums.append(torch.zeros(sum(p.numel() for p in parameters), device=device))
        _summed(loop, model, parameters, islice(batches, 1), into=sums[0])

    if not fits_in_memory(make_room, device):
        return {"noise_scale_reason": "a rank has no memory for the sum of gradients"}
    passes = max(2, math.ceil(_GRADIENTS / job.point.workers))
    began = time.perf_counter()
    small, large = [], []
    gradients = passes * job.point.workers
    while True:
        norms = _summed(loop, model, parameters, islice(batches, passes), into=sums[0])
        distributed.all_reduce(sums[0])
        distributed.all_reduce(norms)
        small.append(float(norms) / gradients)
        large.append(float(_squared_norm(sums[0])) / gradients**2)
        (spent_s,) = max_over_ranks(device, time.perf_counter() - began)
        if len(small) == 1 and spent_s * _LEAST_ROUNDS > _LIMIT_S:
            return {"noise_scale_reason": f"{gradients} passes take {spent_s:.1f} s, too long"}
        if len(small) < _LEAST_ROUNDS:
            continue
        found = noise_scale(small, large, batch=job.point.micro_batch, gradients=gradients)
        is_precise = found.high - found.low <= 2 * _PRECISE * found.value < math.inf
        if is_precise or len(small) == _MOST_ROUNDS or spent_s > _LIMIT_S:
            return _columns(found)


def _why_not(loop: ModeLoop) -> str | None:
    """Reason why the noise scale of a trial can't be measured; equal on all ranks."""
    job, workload = loop.job, loop.job.point.workload
    if job.divides_model:
        return f"in sync={job.point.sync} a worker has a part of each gradient alone"
    if job.point.semantics not in ("exact", "lossy"):
        return "the models of workers differ"
    if has_train_step(workload) or weight_of(workload) is not None:
        return "passes of the workload don't count alike"
    return None


def _columns(found: _NoiseScale) -> dict[str, Any]:
    if math.isinf(found.value):
        return {"noise_scale_reason": "noise hides the gradient: take a larger micro-batch"}
    high = None if math.isinf(found.high) else found.high
    return {
        "noise_scale": found.value,
        "noise_scale_low": found.low,
        "noise_scale_high": high,
    }


def _summed(
    loop: ModeLoop,
    model: nn.Module,
    parameters: Sequence[nn.Parameter],
    batches: Iterator[Any],
    *,
    into: torch.Tensor,
) -> torch.Tensor:
    """Add up the gradients of some batches, (elements,); return the sum of squared norms, float64.

    It stays on the device: no pass waits for it.
    """
    into.zero_()
    norms = torch.zeros((), dtype=torch.float64, device=into.device)
    for batch in batches:
        loss = loop.job.loss(model, batch)
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        begin = 0
        for gradient, parameter in zip(found, parameters, strict=True):
            end = begin + parameter.numel()
            if gradient is not None:
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                into[begin:end] += dense.flatten()
                norms += _squared_norm(dense)
            begin = end
    return norms


def _squared_norm(values: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square()
