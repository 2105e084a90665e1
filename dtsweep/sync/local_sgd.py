"""`local_sgd`: every worker trains alone; every `sync_period` steps the parameters are averaged."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

from dtsweep.compression.exchange import Mark, unmarked
from dtsweep.measure.clock import StepClock
from dtsweep.sync.buckets import set_values, trainable_parameters, trained_by_type, values_of
from dtsweep.sync.changes import Changes
from dtsweep.sync.local_steps import LocalStepsMode
from dtsweep.sync.mode import Job, Loss, MakeOptimizer
from dtsweep.sync.passes import passes, refuse_sparse_adam


class LocalSgd(LocalStepsMode):
    """Average of all parameters in one all-reduce, after a phase that averages gradients.

    A compression carries the changes of a period; gradients of that phase are sent whole. (Stich
    2018, https://arxiv.org/abs/1805.09767; Lin et al. 2018, https://arxiv.org/abs/1808.07217)
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._synchronous_left = job.point.first_steps
        self._changes: Changes | None = None

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights, with the same state."""
        super().prepare(model, make_optimizer)
        point = self._job.point
        if point.local_momentum == "average" or point.first_steps:
            refuse_sparse_adam(
                self._optimizer, "local_sgd with local_momentum=average or synchronous_steps"
            )
        self._trained = trainable_parameters(model)
        self._by_type = trained_by_type(model)
        if point.compression:
            self._changes = Changes(model, point)
            self.means = self._changes.means
        if point.local_momentum == "reset":
            self._first_state = copy.deepcopy(self._optimizer.state_dict())

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """A synchronous step while there are some left, then the worker's own."""
        if without or not self._synchronous_left:
            return super().step(batches, clock, without)
        loss = passes(self._job, self._model, batches, clock, is_joint=True)
        for parameters in self._by_type:
            self._average(_dense_gradients(parameters))
        clock.mark("sync")
        self.update(clock)
        self._synchronous_left -= 1
        if not self._synchronous_left and self._changes:
            self._changes.begin()
        return loss

    def update(self, clock: StepClock) -> None:
        """Update with gradients of all parameters, if workers are to have the same state."""
        if self._job.point.local_momentum == "average":
            _dense_gradients(self._trained)
        super().update(clock)

    def combine(self, mark: Mark) -> None:
        """Average trained parameters, or with compression each worker's changes of the period."""
        if self._changes:
            self._changes.take()
        self._exchange(mark)
        if self._changes:
            self._changes.add_to_agreed()
            self._changes.give()
            mark("compress")
        mark("sync")
        if self._job.point.local_momentum == "reset":
            self._optimizer.load_state_dict(copy.deepcopy(self._first_state))
            mark("optimizer")

    def exchange_alone(self) -> int:
        """Average the parameters, or again the changes of the last period, and averaged state.

        Returns the number of steps that share the exchange.
        """
        self._exchange(unmarked)
        return self._job.point.period

    def expected_bytes(self) -> float | None:
        """An all-reduce of what is trained every period, and of state that is averaged."""
        ranks = self._job.point.workers
        whole_bytes = sum(parameter.nbytes for parameter in self._trained)
        whole_bytes += sum(
            moment.nbytes for moments in self._averaged_state() for moment in moments
        )
        return 2 * (ranks - 1) / ranks * whole_bytes / self._job.point.period

    def _exchange(self, mark: Mark) -> None:
        if self._changes:
            self._changes.average(mark)
        else:
            for parameters in self._by_type:
                self._average(parameters)
        for moments in self._averaged_state():
            self._average(moments)

    def _averaged_state(self) -> list[list[Tensor]]:
        if self._job.point.local_momentum != "average":
            return []
        return _moments_of(self._optimizer, self._trained)

    @torch.no_grad()
    def _average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their means over all workers.

        Not torch's `average_parameters`, which waits for the GPU before it begins.
        """
        flat = values_of(tensors)
        distributed.all_reduce(flat.div_(self._job.point.workers))
        set_values(tensors, flat)


def _moments_of(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> list[list[Tensor]]:
    """Tensors of an optimizer's state that gradients went into, a list for each name and type.

    Counts of steps and other single numbers are left out: they are equal on all workers. A
    parameter that is a single number has such moments too.
    """
    alike = defaultdict[tuple[str, torch.dtype], list[Tensor]](list)
    for parameter in parameters:
        for name, value in optimizer.state.get(parameter, {}).items():
            if _is_moment(name, value, parameter):
                alike[name, value.dtype].append(value)
    return list(alike.values())


def _is_moment(name: str, value: Any, parameter: nn.Parameter) -> bool:
    if not isinstance(value, Tensor) or name == "step":
        return False
    if value.dim() == 0 and parameter.dim() > 0:
        return False
    return value.is_floating_point() or value.is_complex()


def _dense_gradients(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Gradients of parameters: zeros where no pass used one, so that workers have as many.

    They can be written to: sparse and lazily conjugated ones are replaced.
    """
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        elif parameter.grad.is_sparse or parameter.grad.is_conj():
            parameter.grad = parameter.grad.to_dense().resolve_conj()
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
