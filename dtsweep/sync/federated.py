"""`federated`: in each period some workers are drawn, train alone, and are averaged (FedAvg)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import P2POp

from dtsweep.compression.exchange import Mark
from dtsweep.measure.clock import StepClock
from dtsweep.sync.buckets import set_values, trained_by_type, values_of
from dtsweep.sync.groups import send_and_receive
from dtsweep.sync.local_steps import LocalStepsMode
from dtsweep.sync.mode import Job, Loss, MakeOptimizer
from dtsweep.sync.weights import scalar, weight_of


class Federated(LocalStepsMode):
    """Weighted mean of the drawn workers' parameters at the end of each period.

    Each drawn worker averages a part of the values, and sends it to all. Those that are not drawn
    send nothing. A drawn worker begins a period with a new optimizer.
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self.ranks = job.point.workers
        self.rank = job.rank
        self._weigh = weight_of(job.point.workload)
        self._periods = 0
        self._is_under_way = False
        self._sent_bytes, self._messages = 0, 0

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights."""
        super().prepare(model, make_optimizer)
        self._make_optimizer = make_optimizer
        self._by_type = trained_by_type(model)

    def begin_period(self, done: int) -> None:
        """Draw workers at the next step, which is not the first of its period if some are done."""
        super().begin_period(done)
        self._is_under_way = False

    def train(self, batches: Iterator[Any], clock: StepClock) -> Loss:
        """Make one update if this worker is drawn; else mark phases without work."""
        if not self._is_under_way:
            self._begin()
            clock.mark("optimizer")
        if self.slot is None:
            for phase in ("data", "forward", "backward", "optimizer"):
                clock.mark(phase)
            return None
        if self._weigh is not None:
            batches = self._weighed(batches)
        return super().train(batches, clock)

    def combine(self, mark: Mark) -> None:
        """Average the drawn workers' parameters, and give the mean to all."""
        shares = self._shares_of_drawn()
        for parameters in self._by_type:
            values = values_of(parameters)
            parts = values.tensor_split(len(self._drawn))
            if self.slot is not None:
                self._average_own_part(parts, shares)
            self._distribute(parts)
            set_values(parameters, values)
        mark("sync")
        self._is_under_way = False

    def expected_bytes(self) -> float | None:
        """All parameters among the drawn ones, and from them to the others, every period."""
        drawn, point = self._job.point.participants, self._job.point
        whole_bytes = sum(p.nbytes for parameters in self._by_type for p in parameters)
        return (drawn + self.ranks - 2) / self.ranks * whole_bytes / point.period

    def counters(self) -> Mapping[str, Any]:
        """Count what this rank has sent since the last call: each period has other senders."""
        counts = {"bytes_sent": self._sent_bytes, "messages_sent": self._messages}
        self._sent_bytes, self._messages = 0, 0
        return counts

    def _begin(self) -> None:
        """Draw the workers of a period."""
        self._drawn = self._job.participants_of(self._periods)
        self._periods += 1
        self._is_under_way = True
        self._weight = torch.zeros((), dtype=torch.float64, device=self._job.device)
        self.slot = None
        if self.rank in self._drawn:
            self.slot = self._drawn.index(self.rank)
            self._optimizer = self._make_optimizer(self._model.parameters())

    def _weighed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pass on batches, and add up their weights."""
        assert self._weigh is not None
        for batch in batches:
            self._weight += scalar(self._weigh(batch), self._job.device)
            yield batch

    def _shares_of_drawn(self) -> Tensor:
        """Factors of the drawn workers' parameters in the mean: (drawn,), known to them alone."""
        weights = torch.ones(len(self._drawn), dtype=torch.float64, device=self._job.device)
        if self._weigh is not None and self.slot is not None:
            weights[self.slot] = self._weight
            self._send(
                dict.fromkeys(self._drawn, self._weight),
                {rank: weights[place] for place, rank in enumerate(self._drawn)},
            )
            # Without any weight all count alike.
            weights += weights.sum() == 0
        return weights / weights.sum()

    def _average_own_part(self, parts: Sequence[Tensor], shares: Tensor) -> None:
        """Replace this worker's part of the values by its weighted mean over the drawn workers."""
        assert self.slot is not None
        own = parts[self.slot]
        rows = own.new_empty(len(parts), len(own))
        rows[self.slot] = own
        self._send(
            dict(zip(self._drawn, parts, strict=True)), dict(zip(self._drawn, rows, strict=True))
        )
        own.zero_()
        for row, share in zip(rows, shares, strict=True):
            own.add_(row.mul_(share))

    def _distribute(self, parts: Sequence[Tensor]) -> None:
        """Bring each part from the worker that has averaged it to all others."""
        sent = {}
        if self.slot is not None:
            sent = dict.fromkeys(range(self.ranks), parts[self.slot])
        self._send(sent, dict(zip(self._drawn, parts, strict=True)))

    def _send(self, sent: Mapping[int, Tensor], received: Mapping[int, Tensor]) -> None:
        """Send tensors and receive others at once, by rank; none to itself."""
        sends = [
            P2POp(distributed.isend, values, rank)
            for rank, values in sent.items()
            if rank != self.rank and values.numel()
        ]
        receives = [
            P2POp(distributed.irecv, values, rank)
            for rank, values in received.items()
            if rank != self.rank
        ]
        send_and_receive([*sends, *receives])
        self._sent_bytes += sum(send.tensor.nbytes for send in sends)
        self._messages += len(sends)
