"""Order in which ranks gather and reduce the blocks of a sharded model, compared beforehand.

A rank gathers a block that it calls, or comes to in backward, and then reduces its gradients. Where
ranks come to different blocks, exchanges of equal sizes meet and train something else without an
error; others wait for each other without end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

from dtsweep.sync.shard_policies import param_groups_of

_Loss = Callable[[nn.Module, Any], torch.Tensor]
"""A workload's loss."""

_COMPARED_PASSES = 3
"""Passes at the start in which every event is compared: most ranks that differ do so early."""

PATIENCE_S = 10.0
"""Time in which all ranks must leave the order of the pass before, if one of them does."""

_WAY_OUT = "sharded blocks need one order on all workers; use sync=ddp"

_FORWARD_END = "the end of loss"
_BACKWARD_END = "the end of backward"


class OrderError(ValueError):
    """Error for ranks that come to the blocks of a model in different orders."""


class BlockOrder:
    """Compares this rank's events with those of the other ranks, pass by pass.

    An event is the call of a block in forward, its gather in backward, the reduction of its
    gradients, or the end of forward or backward. In the first `_COMPARED_PASSES` each one is
    compared before it happens, through the key-value store. A later pass that has the order of the
    one before exchanges nothing. One that leaves that order is compared from there on: all ranks
    must leave it at the same event.
    """

    def __init__(
        self,
        blocks: Mapping[str, nn.Module],
        *,
        gathered_again: Collection[str],
        rank: int,
        ranks: int,
    ) -> None:
        """Follow the blocks; called on all ranks, after they are sharded.

        Args:
            blocks: by their names; also what is left of the model by itself.
            gathered_again: names of the blocks that are gathered in backward as well.
            rank: of this process.
            ranks: how many there are.
        """
        self.is_followed = True
        """False in passes without an exchange."""
        self._rank, self._ranks = rank, ranks
        self._store = _own_keys(rank)
        self._own_key: str | None = None
        self._passes = 0
        self._events: list[str] = []
        self._expected: list[str] = []
        self._is_compared = True
        self._is_forward = False
        for name, block in blocks.items():
            # Before the hook of `fully_shard`, which gathers the block.
            called: Callable[..., None] = functools.partial(self._called, name)
            if block._compiled_call_impl is not None:
                called = torch.compiler.disable(called)
            block.register_forward_pre_hook(called, prepend=True)
            for group in param_groups_of(block):
                if name in gathered_again:
                    gather = functools.partial(_gather, name=name)
                    self._follow_method(group, "pre_backward", gather)
                self._follow_method(
                    group, "post_backward", functools.partial(_reduction, name=name)
                )

    def followed(self, loss: _Loss) -> _Loss:
        """The loss, whose calls are followed as forward."""

        def follow(model: nn.Module, batch: Any) -> torch.Tensor:
            self.end_pass()
            self._is_forward = True
            try:
                value = loss(model, batch)
            finally:
                self._is_forward = False
            self._follow(_FORWARD_END)
            return value

        return follow

    def end_pass(self) -> None:
        """End a pass after its backward, if one was begun."""
        if not self._events or not self.is_followed:
            return
        self._follow(_BACKWARD_END)
        self._passes += 1
        self._expected = self._events
        self._events = []
        self._is_compared = self._passes < _COMPARED_PASSES

    def _called(self, name: str, *_: Any) -> None:
        # Calls in backward, of checkpoints, repeat those in forward.
        if self._is_forward:
            self._follow(name)

    def _follow_method(
        self, group: Any, method: str, event_of: Callable[[Any], str | None]
    ) -> None:
        """Follow a method of FSDP's, before it is run, by the event that it is."""
        inner = getattr(group, method)

        def run(*given: Any, **named: Any) -> Any:
            event = event_of(group)
            if self._events and event is not None:
                self._follow(event)
            return inner(*given, **named)

        setattr(group, method, run)

    def _follow(self, event: str) -> None:
        """Compare an event of this pass, if it may differ from those of other ranks.

        Raises:
            OrderError: it does; names both events and the way out.
        """
        if not self.is_followed:
            return
        number = len(self._events)
        if not self._is_compared and event != self._expected[number]:
            self._is_compared = True
            self._leave(number, event, self._expected[number])
        if self._is_compared:
            self._compare(number, event)
        self._events.append(event)

    def _leave(self, number: int, event: str, expected: str) -> None:
        """Wait until all ranks have left the order of the pass before; refuse if they don't."""
        keys = self._keys(number)
        self._store.set(keys[self._rank], event)
        try:
            self._store.wait(keys, timedelta(seconds=PATIENCE_S))
        except distributed.DistStoreError as error:
            # Most likely they are in the exchange that was expected, and wait for this rank.
            raise self._refusal(
                {
                    f"rank {self._rank}": event,
                    f"another, for {PATIENCE_S:g} s, perhaps": expected,
                }
            ) from error

    def _compare(self, number: int, event: str) -> None:
        keys = self._keys(number)
        self._store.set(keys[self._rank], event)
        events = [value.decode() for value in self._store.multi_get(keys)]
        if self._own_key is not None:
            # All ranks have come here, so that they have read the keys of the event before.
            self._store.delete_key(self._own_key)
        self._own_key = keys[self._rank]
        other = next((rank for rank in range(self._ranks) if events[rank] != events[0]), None)
        if other is not None:
            raise self._refusal({"rank 0": events[0], f"rank {other}": events[other]})

    def _keys(self, number: int) -> list[str]:
        """A key of each rank for an event of this pass."""
        return [f"{self._passes}/{number}/{rank}" for rank in range(self._ranks)]

    def _refusal(self, events: Mapping[str, str]) -> OrderError:
        """Error that names the events at which orders part, by who comes to them."""
        after = "first"
        if self._events:
            after = f"after {self._events[-1]}"
        named = ", ".join(f"on {who} {event}" for who, event in events.items())
        return OrderError(
            f"workers come to the model's blocks in different orders: {after} {named}; {_WAY_OUT}"
        )


def _gather(group: Any, *, name: str) -> str | None:
    """Event of a gather in backward; None where backward comes to a block by a further output."""
    if group._training_state.name == "PRE_BACKWARD":
        return None
    return f"{name} in backward"


def _reduction(group: Any, *, name: str) -> str:
    """Event of a reduction, with what is reduced where that depends on the rank.

    From torch 2.13 on gradients that a rank does not have are reduced as zeros.
    """
    event = f"the gradients of {name}"
    if getattr(group, "reduce_scatter_unused_params", False):
        return event
    has_gradient = [
        getattr(parameter, "_unsharded_param", parameter.sharded_param).grad is not None
        for parameter in group.fsdp_params
    ]
    return f"{event} {''.join('1' if has else '0' for has in has_gradient)}"


def _own_keys(rank: int) -> Store:
    """Keys of one model in the store of all ranks."""
    store = _get_default_store()
    number = [0]
    if rank == 0:
        number = [store.add("models whose blocks are followed", 1)]
    distributed.broadcast_object_list(number, src=0)
    return PrefixStore(f"blocks {number[0]}", store)
