"""DDP's buckets averaged compressed: begun when they are full, finished when backward is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed import GradBucket, distributed_c10d  # type: ignore[attr-defined]  # missing in torch's stub
from torch.futures import Future

from dtsweep.compression.exchange import Mark, Mean, mean_for, unmarked
from dtsweep.sync.buckets import real_view
from dtsweep.sync.groups import GroupCollectives
from dtsweep.sync.mode import Job


@dataclass(frozen=True, kw_only=True)
class _Bucket:
    """A bucket of DDP, as long as it holds the same parameters."""

    parameters: Sequence[Tensor]
    values: Tensor
    mean: Mean


class CommHook:
    """Hook that DDP calls with each full bucket.

    Gradients have to be views of the buckets (`gradient_as_bucket_view`): DDP alone knows how they
    lie there.

    Not in a future's callback, as torch's own hooks do it: gloo runs those in its threads, in an
    order of its own on each rank, and a callback that waits for another collective there may wait
    forever.
    """

    def __init__(self, job: Job) -> None:
        """Know no bucket yet."""
        self._point = job.point
        self._collectives = GroupCollectives(distributed_c10d._get_default_group())
        self._buckets: dict[int, _Bucket] = {}
        self._begun: dict[int, _Bucket] = {}
        self._mark: Mark = unmarked

    @property
    def means(self) -> list[Mean]:
        """Averager of each bucket."""
        return [bucket.mean for bucket in self._buckets.values()]

    def start(self, mark: Mark) -> None:
        """Mark a step's phases there from now on."""
        self._mark = mark

    def begin(self, bucket: GradBucket) -> Future[Tensor]:
        """Begin a bucket; DDP is given it as it is.

        Raises:
            TypeError: its gradients are sparse.
        """
        self._mark("backward")
        values = bucket.buffer()
        if values.layout != torch.strided:
            raise TypeError(
                f"{self._point.compression} needs dense gradients; leave sparse=True out of the "
                "model"
            )
        begun = self._begun[bucket.index()] = self._bucket_of(bucket)
        begun.mean.begin(values, self._mark)
        future = Future[Tensor](devices=[values.device] if values.is_cuda else None)
        future.set_result(values)
        return future

    def finish(self) -> None:
        """Write the mean gradients where the parameters have them: in the buckets."""
        self._buckets = self._begun
        self._begun = {}
        for bucket in self._buckets.values():
            bucket.mean.finish(bucket.values, self._mark)

    def exchange_alone(self) -> None:
        """Average what is in the buckets now, with nothing to hide behind."""
        for bucket in self._buckets.values():
            bucket.mean.begin(bucket.values, unmarked)
        for bucket in self._buckets.values():
            bucket.mean.finish(bucket.values, unmarked)

    def _bucket_of(self, bucket: GradBucket) -> _Bucket:
        """Return the kept bucket of this number, or a new one where its parameters differ.

        DDP rebuilds its buckets in other memory after the first exchange.
        """
        parameters = bucket.parameters()
        values = bucket.buffer()
        index = bucket.index()
        kept = self._buckets.get(index)
        if kept is not None and list(map(id, kept.parameters)) == list(map(id, parameters)):
            return replace(kept, values=values)
        # DDP puts complex numbers into its buckets as pairs of real ones.
        shapes = [real_view(parameter).shape for parameter in parameters]
        mean = mean_for(self._point, values, self._collectives, shapes=shapes, seed=index)
        return _Bucket(parameters=parameters, values=values, mean=mean)
