"""Order in which ranks call the blocks of a sharded model, compared before blocks are gathered.

A rank gathers the block that it calls. Where ranks call different blocks, gathers of equal sizes
meet and train something else without an error; others wait for each other without end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

Loss = Callable[[nn.Module, Any], torch.Tensor]
"""A workload's loss."""

COMPARED_PASSES = 3
"""Passes at the start in which every call is compared: most ranks that differ do so early."""

PATIENCE_S = 10.0
"""Time in which all ranks must leave the order of the pass before, if one of them does."""

WAY_OUT = "sharded blocks need one order on all workers; use sync=ddp"

END = -1
"""In the place of a block: the pass has called all of its blocks."""


class BlockOrder:
    """Compares this rank's calls of blocks with those of the other ranks, pass by pass.

    In the first `COMPARED_PASSES` every call is compared before its block is gathered, through the
    key-value store. A later pass that has the order of the one before exchanges nothing. One that
    leaves that order is compared from there on: all ranks must leave it at the same call.
    """

    def __init__(
        self, names: Sequence[str], blocks: Sequence[nn.Module], *, rank: int, ranks: int
    ) -> None:
        """Follow the calls of blocks; called on all ranks, after the blocks are sharded.

        Args:
            names: (blocks,) of the blocks in the model.
            blocks: whose calls are followed.
            rank: of this process.
            ranks: how many there are.
        """
        self._names = names
        self._rank, self._ranks = rank, ranks
        self._store = _own_keys(rank)
        self._passes = 0
        self._expected: list[int] = []
        self._is_forward = False
        self._begin()
        for place, block in enumerate(blocks):
            # Before the hook of `fully_shard`, which gathers the block.
            block.register_forward_pre_hook(functools.partial(self._called, place), prepend=True)

    def followed(self, loss: Loss) -> Loss:
        """The loss, in whose calls blocks are followed.

        Calls in backward, of checkpoints, repeat those in forward.
        """

        def follow(model: nn.Module, batch: Any) -> torch.Tensor:
            self._is_forward = True
            try:
                value = loss(model, batch)
            finally:
                self._is_forward = False
            self._follow(END)
            self._passes += 1
            self._expected = self._calls
            self._begin()
            return value

        return follow

    def _begin(self) -> None:
        self._calls: list[int] = []
        self._is_compared = self._passes < COMPARED_PASSES

    def _called(self, place: int, *_: Any) -> None:
        if self._is_forward:
            self._follow(place)

    def _follow(self, place: int) -> None:
        """Compare one call of this pass, if it may differ from those of other ranks.

        Raises:
            ValueError: it does; names the blocks and the way out.
        """
        number = len(self._calls)
        if not self._is_compared and place != self._expected[number]:
            self._is_compared = True
            self._leave(number, place, self._expected[number])
        if self._is_compared:
            self._compare(number, place)
        self._calls.append(place)

    def _leave(self, number: int, place: int, expected: int) -> None:
        """Wait until all ranks have left the order of the pass before; refuse if they don't."""
        keys = self._keys(number)
        self._store.set(keys[self._rank], str(place))
        try:
            self._store.wait(keys, timedelta(seconds=PATIENCE_S))
        except distributed.DistStoreError as error:
            # They are in the gather of the block that was expected, and wait for this rank.
            raise self._refusal({f"rank {self._rank}": place, "the others": expected}) from error

    def _compare(self, number: int, place: int) -> None:
        keys = self._keys(number)
        self._store.set(keys[self._rank], str(place))
        places = [int(value) for value in self._store.multi_get(keys)]
        if number:
            # All ranks have come here, so that they have read the keys of the call before.
            self._store.delete_key(self._keys(number - 1)[self._rank])
        other = next((rank for rank in range(self._ranks) if places[rank] != places[0]), None)
        if other is not None:
            raise self._refusal({"rank 0": places[0], f"rank {other}": places[other]})

    def _keys(self, number: int) -> list[str]:
        """A key of each rank for a call of this pass."""
        return [f"{self._passes}/{number}/{rank}" for rank in range(self._ranks)]

    def _refusal(self, places: Mapping[str, int]) -> ValueError:
        """Error that names the blocks at which orders part, by who calls them."""
        after = "first"
        if self._calls:
            after = f"after {self._names[self._calls[-1]]}"
        names = [*self._names, "the end"]
        called = ", ".join(f"on {who} {names[place]}" for who, place in places.items())
        return ValueError(
            f"workers call the model's blocks in different orders: {after} {called}; {WAY_OUT}"
        )


def _own_keys(rank: int) -> Store:
    """Keys of one model in the store of all ranks."""
    store = _get_default_store()
    number = [0]
    if rank == 0:
        number = [store.add("models whose blocks are followed", 1)]
    distributed.broadcast_object_list(number, src=0)
    return PrefixStore(f"blocks {number[0]}", store)
