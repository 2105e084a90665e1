"""`ring`: an all-reduce of point-to-point sends around a ring, as most backends do it inside."""

from __future__ import annotations

import torch
from torch import Tensor, distributed
from torch.distributed import P2POp

from dtsweep.compression.exchange import Wait
from dtsweep.sync.after_backward import AfterBackwardMode
from dtsweep.sync.groups import send_and_receive


class Ring(AfterBackwardMode):
    """Each rank sends to the next, 2 (n - 1) times a share of 1/n: first sums come together, then they go round."""

    def sum_over_ranks(self, values: Tensor) -> None:
        """Sum; the share of rank r is complete on rank r - 1 after n - 1 turns, and everywhere after as many more."""
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
        """Directly, from each rank to the next but one, two, three …: round the ring each would travel many times."""
        received = payloads.clone()
        for distance in range(1, self.ranks):
            to = (self.rank + distance) % self.ranks
            source = (self.rank - distance) % self.ranks
            self._exchange(payloads[to], received[source], to=to, source=source)
        return lambda: received

    def _pass_on(self, given: Tensor, received: Tensor) -> None:
        """Send to the next rank while the one before sends here; nothing where there is nothing to send."""
        self._exchange(
            given, received, to=(self.rank + 1) % self.ranks, source=(self.rank - 1) % self.ranks
        )

    def _exchange(self, given: Tensor, received: Tensor, *, to: int, source: int) -> None:
        send = []
        if given.numel():
            send = [P2POp(distributed.isend, given, to)]
        receive = []
        if received.numel():
            receive = [P2POp(distributed.irecv, received, source)]
        if send or receive:
            send_and_receive([*send, *receive])
