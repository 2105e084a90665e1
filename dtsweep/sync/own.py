"""`own`: the workload makes its model parallel by itself, in `prepare`."""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dtsweep.errors import quoted
from dtsweep.measure.clock import StepClock
from dtsweep.sweep.modes import has_train_step
from dtsweep.sync.clipping import clip
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import kept_loss, passes

_TrainStep = Callable[[Any, Any, Iterator[Any], Callable[[str], None]], Any]
"""A workload's `train_step(model, optimizer, batches, mark)`, which returns the loss or None."""


_MARKED = ("data", "forward", "backward", "sync", "optimizer")
"""Phases that a `train_step` may mark."""


class Own(SyncMode):
    """Mode on what the workload's `prepare` returns: a model and its optimizer, as they are.

    Nothing is wrapped, no weights are sent, and no gradients are exchanged here.
    """

    counts_periods = True

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._train_step: _TrainStep | None = None
        if has_train_step(job.point.workload):
            self._train_step = job.point.workload.train_step

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:  # noqa: ARG002  # the workload makes its own
        """Have the workload prepare the model.

        Raises:
            TypeError: `prepare` returned anything but a module and an optimizer, or an optimizer
                of parameters that the model no longer has.
        """
        workload = self._job.point.workload
        # Weak, so that what `prepare` divides can be freed.
        built = [weakref.ref(parameter) for parameter in model.parameters()]
        prepared = workload.prepare(model, self._job)
        if not (isinstance(prepared, tuple) and len(prepared) == 2):
            raise TypeError(_wrong_return(workload, prepared))
        self._model, self._optimizer = prepared
        if not isinstance(self._model, nn.Module):
            raise TypeError(_wrong_return(workload, prepared))
        if self._train_step is None and not callable(getattr(self._optimizer, "step", None)):
            raise TypeError(
                f"{type(workload).__name__}.prepare gave an optimizer without step(): "
                f"{type(self._optimizer).__name__}; return one, or give the workload a train_step"
            )
        present = {id(one) for module in (model, self._model) for one in module.parameters()}
        replaced = {id(one) for ref in built if (one := ref()) is not None} - present
        updated = {id(one) for one in _parameters_of(self._optimizer)}
        if stale := replaced & updated:
            raise TypeError(
                f"{type(workload).__name__}.prepare gave an optimizer of {len(stale)} parameters "
                "that the model no longer has, so they would not be trained; make the optimizer "
                "after fully_shard, parallelize_module or the like"
            )
        self.trained = _unwrapped(self._model)
        self.optimizer_class = _names_of(self._optimizer)

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Do the workload's `train_step`, or passes and an update."""
        if without:
            raise NotImplementedError(
                "the exchange is the workload's: it is measured as what steps mark as sync"
            )
        if self._train_step is None:
            return self._pass_and_update(batches, clock)

        def mark(phase: str) -> None:
            if phase not in _MARKED:
                raise ValueError(
                    f"mark({phase!r}): train_step marks the end of one of {', '.join(_MARKED)}"
                )
            clock.mark(phase)

        loss = self._train_step(self._model, self._optimizer, batches, mark)
        clock.mark("loop")
        if loss is None:
            return None
        if not isinstance(loss, numbers.Real) and getattr(loss, "numel", lambda: 0)() != 1:
            name = type(self._job.point.workload).__name__
            raise TypeError(
                f"{name}.train_step gave {quoted(loss)}; return the loss, a scalar, or None"
            )
        return kept_loss(loss, self._job.device)

    def _pass_and_update(self, batches: Iterator[Any], clock: StepClock) -> Loss:
        loss = passes(self._job, self._model, batches, clock)
        self.before_update()
        clip(self._model.parameters(), self._job.point.clip_norm)
        self._optimizer.step()
        self._model.zero_grad()
        clock.mark("optimizer")
        return loss


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module in wrappers of torch's that keep it whole."""
    if isinstance(model, DistributedDataParallel):
        return _unwrapped(model.module)
    # What `torch.compile` makes.
    inner = getattr(model, "_orig_mod", None)
    if isinstance(inner, nn.Module):
        return _unwrapped(inner)
    return model


def _each(optimizer: Any) -> list[Any]:
    """An optimizer, or each of several, in a list."""
    several = optimizer
    if isinstance(optimizer, dict):
        several = list(optimizer.values())
    if isinstance(several, list | tuple):
        return list(several)
    return [optimizer]


def _parameters_of(optimizer: Any) -> Iterator[Any]:
    """Parameters of one optimizer or of several; none of one without `param_groups`."""
    for one in _each(optimizer):
        for group in getattr(one, "param_groups", None) or ():
            yield from group["params"]


def _names_of(optimizer: Any) -> str:
    """Class of an optimizer, or of each of several.

    >>> _names_of([1, 2.0])
    'int, float'
    """
    return ", ".join(type(one).__name__ for one in _each(optimizer))


def _wrong_return(workload: Any, prepared: Any) -> str:
    """Message for anything but a model and an optimizer."""
    kinds = type(prepared).__name__
    if isinstance(prepared, tuple):
        kinds = f"({', '.join(type(part).__name__ for part in prepared)})"
    return (
        f"{type(workload).__name__}.prepare gave {kinds}; return the model, a torch module, and "
        "the optimizer"
    )
