"""`tree`: an all-reduce of point-to-point sends up a binomial tree to rank 0, and down again."""

from __future__ import annotations

import torch
from torch import distributed
from torch.distributed import P2POp

from dtsweep.sync.after_backward import AfterBackwardMode
from dtsweep.sync.groups import send_and_receive


class Tree(AfterBackwardMode):
    """Tree all-reduce: 2 log2 n consecutive messages of the whole tensor.

    A ring has more messages, which are smaller.
    """

    def sum_over_ranks(self, values: torch.Tensor) -> None:
        """Sum the values in place.

        Children are added in the order of their distance, so that every run gives the same bits.
        """
        rank = self._job.rank
        workers = self._job.point.workers
        distances = [2**level for level in range((workers - 1).bit_length())]
        children = [d for d in distances if rank % (2 * d) == 0 and rank + d < workers]
        # A rank's parent is at the distance of its lowest bit.
        up = next((d for d in distances if rank % (2 * d) == d), None)
        if children:
            received = torch.empty_like(values)
        else:
            received = values
        for below in children:
            send_and_receive([P2POp(distributed.irecv, received, rank + below)])
            values.add_(received)
        if up is not None:
            send_and_receive([P2POp(distributed.isend, values, rank - up)])
            send_and_receive([P2POp(distributed.irecv, values, rank - up)])
        for below in reversed(children):
            send_and_receive([P2POp(distributed.isend, values, rank + below)])
