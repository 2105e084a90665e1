"""`ring`: an all-reduce of point-to-point sends around a ring, as most backends do it inside."""

from __future__ import annotations

import torch
from torch import distributed
from torch.distributed import P2POp

from dtsweep.sync.after_backward import AfterBackwardMode
from dtsweep.sync.groups import send_and_receive


class Ring(AfterBackwardMode):
    """Each rank sends to the next, 2 (n - 1) times a share of 1/n: first sums come together, then they go round."""

    def sum_over_ranks(self, values: torch.Tensor) -> None:
        """Sum; the share of rank r is complete on rank r - 1 after n - 1 turns, and everywhere after as many more."""
        workers, rank = self._job.point.workers, self._job.rank
        shares = values.tensor_split(workers)
        received = torch.empty_like(shares[0])
        for turn in range(workers - 1):
            share = shares[(rank - turn - 1) % workers]
            part = received[: share.numel()]
            self._pass_on(shares[(rank - turn) % workers], part)
            share.add_(part)
        for turn in range(workers - 1):
            self._pass_on(shares[(rank + 1 - turn) % workers], shares[(rank - turn) % workers])

    def _pass_on(self, given: torch.Tensor, received: torch.Tensor) -> None:
        """Send to the next rank while the one before sends here; nothing where there is nothing to send."""
        workers, rank = self._job.point.workers, self._job.rank
        send = [P2POp(distributed.isend, given, (rank + 1) % workers)] if given.numel() else []
        receive = [P2POp(distributed.irecv, received, (rank - 1) % workers)] if received.numel() else []
        if send or receive:
            send_and_receive([*send, *receive])
