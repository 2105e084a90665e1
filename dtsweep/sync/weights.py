"""Weights of the passes of a step, for workloads that weigh their batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from dtsweep.sync.mode import Job

_Weight = Callable[[Any], Tensor | float]
"""A workload's `weight`: from a batch to what its mean loss counts, such as a number of tokens."""


def weight_of(workload: Any) -> _Weight | None:
    """The workload's `weight`, if it has one."""
    weight = getattr(workload, "weight", None)
    if callable(weight):
        return weight  # type: ignore[no-any-return]
    return None


class PassFactors:
    """Factors of a step's losses that make the mean over workers the weighted mean of all passes.

    Modes average gradients over the workers. A pass of weight w, where n workers have weights of W
    in all their passes, gets the factor w n / W.
    """

    def __init__(
        self, job: Job, weight: _Weight, batches: Sequence[Any], *, exchange: bool = True
    ) -> None:
        """Begin to add up the weights of all workers.

        Args:
            job: the trial.
            weight: the workload's.
            batches: of this worker's passes.
            exchange: False counts this worker's passes alone, where an update is made from them.
        """
        self._weights = torch.stack([scalar(weight(batch), job.device) for batch in batches])
        self._total = self._weights.sum()
        self._workers = 1
        self._sum = None
        if exchange:
            self._workers = job.point.workers
            self._sum = distributed.all_reduce(self._total, async_op=True)

    def wait(self) -> None:
        """Wait for the weights of the other workers, where that is still to be done."""
        if self._sum is not None:
            self._sum.wait()
            self._sum = None

    def of(self, index: int) -> Tensor:
        """Factor of one pass, a scalar; after `wait`. A step without any weight counts nothing."""
        least = torch.finfo(self._total.dtype).tiny
        return self._weights[index] * self._workers / self._total.clamp(min=least)


def scalar(value: Tensor | float, device: torch.device) -> Tensor:
    """A scalar in float64 on the device; the host waits only for values of another device."""
    if isinstance(value, Tensor) and value.device.type == device.type:
        return value.to(torch.float64).reshape(())
    if isinstance(value, Tensor | np.ndarray):
        value = value.item()
    # Not a copy, before which a GPU's host waits for all that was launched.
    return torch.full((), float(value), dtype=torch.float64, device=device)
