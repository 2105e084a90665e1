"""Cost of the exchange in a user's training loop, by steps without it after the window."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dtsweep.loops.own_facts import ForwardWatch
from dtsweep.loops.own_parts import TimedParts
from dtsweep.measure.store_group import StoreGroup
from dtsweep.measure.turns import LEAD
from dtsweep.sync.shard_policies import param_groups_of
from dtsweep.worker.exchange_cost import Agreement, PlannedTurn, block_means

_NOT_WRAPPED = "steps without the exchange need a model in DistributedDataParallel or fully_shard"
_OTHER_WRAPPER = "steps without the exchange are not possible with {}"

_EXCHANGING = ("ZeroRedundancyOptimizer", "PostLocalSGDOptimizer")
"""Optimizers of torch that exchange in their steps; to import them takes half a second."""


class Silence(Protocol):
    """Switches the exchange of a loop off and on."""

    needed_bytes: int
    """Memory that steps without the exchange need in addition."""

    def switch(self, *, exchange: bool) -> None:
        """Let the next steps exchange, or not."""

    def end(self) -> None:
        """Leave the model as it was."""


class _DdpSilence:
    """Lets models in DDP run forward without preparing an exchange; `no_sync` of the loop stays."""

    def __init__(self, models: Sequence[DistributedDataParallel]) -> None:
        """Take over the forwards of these models."""
        self._models = models
        self._exchanges = True
        self._was_silent = False
        self._forwards = [model.__dict__.get("forward") for model in models]
        # Gradients that are views of buckets need room of their own.
        views = [model for model in models if model.gradient_as_bucket_view]
        trained = (p for model in views for p in model.parameters() if p.requires_grad)
        self.needed_bytes = sum(p.nbytes for p in trained)
        for model in models:
            model.forward = functools.partial(self._forward, model, model.forward)  # type: ignore[method-assign]  # given back in `end`

    def switch(self, *, exchange: bool) -> None:
        """Let the next steps exchange, or not."""
        self._was_silent = exchange and not self._exchanges
        self._exchanges = exchange

    def end(self) -> None:
        """Give the forwards back."""
        for model, forward in zip(self._models, self._forwards, strict=True):
            del model.__dict__["forward"]
            if forward is not None:
                model.forward = forward  # type: ignore[method-assign]  # as it was

    def _forward(
        self, model: DistributedDataParallel, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        if self._exchanges:
            if self._was_silent:
                self._was_silent = False
                self._give_gradients()
            return forward(*args, **kwargs)
        was_on = model.require_backward_grad_sync
        model.require_backward_grad_sync = False
        try:
            return forward(*args, **kwargs)
        finally:
            model.require_backward_grad_sync = was_on

    def _give_gradients(self) -> None:
        """Give gradients of zeros where DDP needs those of all passes since an exchange."""
        models = [model for model in self._models if model.find_unused_parameters]
        for parameter in (p for model in models for p in model.parameters()):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


class FsdpSilence:
    """Keeps the parameters of `fully_shard` whole, and lets backward reduce no gradients."""

    def __init__(self, modules: Sequence[FSDPModule]) -> None:
        """Take these modules."""
        self._modules = modules
        self._exchanges = True
        self._groups = [group for module in modules for group in param_groups_of(module)]
        self._settings = [_settings_of(group) for group in self._groups]
        self._set = FSDPModule.set_requires_gradient_sync
        parameters = [one.sharded_param for group in self._groups for one in group.fsdp_params]
        # Whole parameters and gradients.
        self.needed_bytes = 2 * sum(p.numel() * p.element_size() for p in parameters)

    def switch(self, *, exchange: bool) -> None:
        """Let the next steps exchange, or not."""
        if exchange == self._exchanges:
            return
        self._exchanges = exchange
        if exchange:
            self.end()
            return
        self._settings = [_settings_of(group) for group in self._groups]
        for group in self._groups:
            group.reduce_grads = group.all_reduce_grads = False
            group.reshard_after_backward = False
            group.post_forward_mesh_info = None
        # The loop switches it itself under accumulation.
        FSDPModule.set_requires_gradient_sync = lambda *_, **__: None  # type: ignore[method-assign]  # given back in `end`

    def end(self) -> None:
        """Exchange again."""
        self._exchanges = True
        FSDPModule.set_requires_gradient_sync = self._set  # type: ignore[method-assign]  # as it was
        for group, settings in zip(self._groups, self._settings, strict=True):
            self._drop_gradients(group)
            for name, value in settings.items():
                setattr(group, name, value)
        for module in self._modules:
            module.reshard()

    def before_update(self, optimizer: Optimizer) -> None:
        """Give the optimizer gradients of zeros of this rank's shards, in place of whole ones."""
        if self._exchanges:
            return
        for group in self._groups:
            self._drop_gradients(group)
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if isinstance(parameter, DTensor) and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def _drop_gradients(self, group: Any) -> None:
        for parameter in group.fsdp_params:
            parameter.unsharded_accumulated_grad = None
            whole = getattr(parameter, "_unsharded_param", None)
            if whole is not None:
                whole.grad = None


def _settings_of(group: Any) -> dict[str, Any]:
    names = (
        "reduce_grads",
        "all_reduce_grads",
        "reshard_after_backward",
        "post_forward_mesh_info",
    )
    return {name: getattr(group, name) for name in names}


def silence_of(forwards: ForwardWatch, optimizers: Sequence[Optimizer]) -> Silence | str:
    """Make the switch of the loop's exchange, or give the reason why there is none."""
    for optimizer in optimizers:
        if (name := type(optimizer).__name__) in _EXCHANGING:
            return _OTHER_WRAPPER.format(name)
    wrapped = forwards.wrapped()
    if not wrapped:
        return _NOT_WRAPPED
    in_ddp = [module for module in wrapped if isinstance(module, DistributedDataParallel)]
    in_shards = [module for module in wrapped if isinstance(module, FSDPModule)]
    if len(in_shards) == len(wrapped):
        return FsdpSilence(in_shards)
    if len(in_ddp) < len(wrapped):
        return _OTHER_WRAPPER.format("FullyShardedDataParallel")
    if any(model._use_python_reducer or not forwards.has_called(model) for model in in_ddp):
        return _OTHER_WRAPPER.format("a compiled DistributedDataParallel")
    return _DdpSilence(in_ddp)


class _ByStore(NamedTuple):
    """Agreement of ranks by their store."""

    group: StoreGroup

    def largest(self, *values: float) -> Sequence[float]:
        return self.group.largest(*values)

    def mean(self, values: Sequence[float]) -> NDArray[np.float64]:
        return np.array(self.group.decided(list(values), _means_of))


def _means_of(ranks: Sequence[Sequence[float]]) -> list[float]:
    means: list[float] = np.mean(ranks, axis=0).tolist()
    return means


def exchange_turns(
    parts: TimedParts,
    group: StoreGroup,
    silence: Silence,
    plan: Callable[[Agreement], Generator[PlannedTurn, Sequence[float], None]],
) -> Generator[None, None, None]:
    """Run steps of a loop with and without the exchange, in turns; see `planned_turns`.

    Args:
        parts: times the steps.
        group: of all ranks.
        silence: switches the exchange.
        plan: of the turns.
    """
    turns = plan(_ByStore(group))
    before = len(parts.parts)
    try:
        planned = next(turns)
        with suppress(StopIteration):
            while True:
                if planned.begins_round:
                    before = len(parts.parts)
                silence.switch(exchange=planned.turn.exchanges)
                group.barrier()
                yield from parts.timed(
                    "exchange" if planned.turn.exchanges else "no_exchange",
                    range(planned.steps * len(planned.turn.blocks)),
                    blocks=planned.turn.blocks,
                    lead=LEAD,
                )
                planned = turns.send(block_means(parts.parts[-1], planned.steps))
        group.barrier()
    except BaseException:
        # Of a round that not all ranks have ended nothing is kept.
        del parts.parts[before:]
        raise
    finally:
        silence.end()
