"""`ring`: an all-reduce of point-to-point sends around a ring, as most backends do it inside."""

from __future__ import annotations

import torch
from torch import Tensor, distributed
from torch.distributed import P2POp

from dtsweep.compression.exchange import Wait
from dtsweep.sync.after_backward import AfterBackwardMode
from dtsweep.sync.groups import send_and_receive


class Ring(AfterBackwardMode):
    """Ring all-reduce: each rank sends 2 (n - 1) shares of 1/n to the next rank.

    The first n - 1 turns sum the shares, the others distribute the sums.
    """

    def sum_over_ranks(self, values: Tensor) -> None:
        """Sum the values in place.

        The share of rank r is complete on rank r - 1 after n - 1 turns, and on all ranks after as
        many more.
        """
        workers, rank = self.ranks, self.rank
        shares = values.tensor_split(workers)
        received = torch.empty_like(shares[0])
        for turn in range(workers - 1):
            share = shares[(rank - turn - 1) % workers]
            part = received[: share.numel()]
            self._pass_on(shares[(rank - turn) % workers], part)
            share.add_(part)
        for turn in range(workers - 1):
            self._pass_on(shares[(rank + 1 - turn) % workers], shares[(rank - turn) % workers])

    def all_gather(self, payload: Tensor) -> Wait:
        """Every payload goes round, passed on as it came."""
        rows = payload.new_empty(self.ranks, len(payload))
        rows[self.rank] = payload
        for turn in range(self.ranks - 1):
            self._pass_on(
                rows[(self.rank - turn) % self.ranks], rows[(self.rank - turn - 1) % self.ranks]
            )
        return lambda: rows

    def all_to_all(self, payloads: Tensor) -> Wait:
        """Send payloads directly to every other rank.

        Along the ring each payload would travel many times.
        """
        received = payloads.clone()
        for distance in range(1, self.ranks):
            to = (self.rank + distance) % self.ranks
            source = (self.rank - distance) % self.ranks
            self._exchange(payloads[to], received[source], to=to, source=source)
        return lambda: received

    def _pass_on(self, sent: Tensor, received: Tensor) -> None:
        """Send to the next rank while receiving from the previous one."""
        following = (self.rank + 1) % self.ranks
        previous = (self.rank - 1) % self.ranks
        self._exchange(sent, received, to=following, source=previous)

    def _exchange(self, sent: Tensor, received: Tensor, *, to: int, source: int) -> None:
        send_and_receive(
            [P2POp(distributed.isend, sent, to), P2POp(distributed.irecv, received, source)]
        )
