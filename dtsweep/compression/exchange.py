"""Compressed mean of a tensor over workers, with a class for each way to combine payloads.

It is begun and finished in two calls, so that other work can run in between. Several tensors are
finished in the order in which they were begun, so that all workers begin their collectives in one
order, whatever their clocks say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from dtsweep.compression.compression import Compression, Layout, compression_for
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.point import Point

Mark = Callable[[str], None]
"""Called with the phase that has just ended."""

Wait = Callable[[], Tensor]
"""Waits for a collective; gives what it brought."""


WATCHED = 2**20
"""Values that are in double precision at a time: a model may leave no room for more."""


def unmarked(_: str) -> None:
    """Ignore the phase."""


class _Collectives(Protocol):
    """Exchange of a mode's workers; all of them make the same calls in the same order."""

    ranks: int
    rank: int

    def all_reduce(self, values: Tensor) -> Wait:
        """Add values up over the workers, in place."""

    def all_gather(self, payload: Tensor) -> Wait:
        """Bring everybody's payload to everybody: (ranks, elements of one)."""

    def all_to_all(self, payloads: Tensor) -> Wait:
        """Bring row i of everybody's payloads to worker i: (ranks, elements of one), both ways."""


class Mean:
    """The mean of one tensor over workers, step after step."""

    is_watched = False
    """True if the next exchange is compared with the exact one."""

    squared_error = squared_norm = 0.0
    """Squared norms of the last watched exchange: error, and exact mean."""

    def __init__(self, compression: Compression, collectives: _Collectives) -> None:
        """Create an exchange from a compression and a transport."""
        self._compression = compression
        self._collectives = collectives
        self._watched_values: Tensor | None = None

    def begin(self, values: Tensor, mark: Mark) -> None:
        """Compress, and let the payload go.

        Args:
            values: (elements,), this worker's; not written to.
            mark: called with `compress`.
        """
        if self.is_watched:
            self._watched_values = values.clone()
        else:
            self._watched_values = None
        self._begin(values, mark)

    def finish(self, values: Tensor, mark: Mark) -> None:
        """Write the mean into values, the same on all workers.

        Args:
            values: (elements,), as they were given to `begin`.
            mark: called with `sync` and `compress`.
        """
        self._finish(values, mark)
        if self._watched_values is not None:
            self.squared_error, self.squared_norm = _apart_from_exact(
                values, self._watched_values, self._collectives
            )
            self.is_watched = False
            self._watched_values = None

    def _begin(self, values: Tensor, mark: Mark) -> None:
        raise NotImplementedError

    def _finish(self, values: Tensor, mark: Mark) -> None:
        raise NotImplementedError


def _apart_from_exact(
    mean: Tensor, values: Tensor, collectives: _Collectives
) -> tuple[float, float]:
    """Return squared norms of the error of a mean, and of the exact mean.

    The exact mean is that of the uncompressed values of all workers.
    """
    squared_error = squared_norm = 0.0
    for part, chunk in zip(mean.split(WATCHED), values.split(WATCHED), strict=True):
        exact = collectives.all_reduce(chunk.to(torch.float64, copy=True))() / collectives.ranks
        squared_error += float((part - exact).square().sum())
        squared_norm += float(exact.square().sum())
    return squared_error, squared_norm


class _AddedUp(Mean):
    """Payloads are added up on the way, in one go or in several that follow from one another."""

    def _begin(self, values: Tensor, mark: Mark) -> None:
        payload = self._compression.compress(values)
        mark("compress")
        self._wait = self._collectives.all_reduce(payload)

    def _finish(self, values: Tensor, mark: Mark) -> None:
        payload = self._wait()
        mark("sync")
        while (following := self._compression.proceed(payload)) is not None:
            mark("compress")
            payload = self._collectives.all_reduce(following)()
            mark("sync")
        self._compression.decompress(payload, values)
        mark("compress")


class _Gathered(Mean):
    """Every worker gets all payloads, and adds them up in the order of ranks."""

    def _begin(self, values: Tensor, mark: Mark) -> None:
        payload = self._compression.compress(values)
        mark("compress")
        self._wait = self._collectives.all_gather(payload)

    def _finish(self, values: Tensor, mark: Mark) -> None:
        payloads = self._wait()
        mark("sync")
        values.zero_()
        for payload in payloads:
            self._compression.add_to(values, payload, 1 / len(payloads))
        mark("compress")


class _Shared(Mean):
    """Exchange in which every worker averages its share and sends the mean, compressed, to all."""

    def _begin(self, values: Tensor, mark: Mark) -> None:
        payloads = [self._compression.compress(share) for share in self._shares(values)]
        self._lengths = list(map(len, payloads))
        width = max(self._lengths)
        rows = torch.stack([_filled(payload, width) for payload in payloads])
        mark("compress")
        self._wait = self._collectives.all_to_all(rows)

    def _finish(self, values: Tensor, mark: Mark) -> None:
        shares = self._shares(values)
        rank = self._collectives.rank
        payloads = self._wait()
        mark("sync")
        mean = torch.zeros_like(shares[rank])
        for payload in payloads:
            self._compression.add_to(mean, payload[: self._lengths[rank]], 1 / len(payloads))
        compressed = self._compression.compress(mean)
        payload = _filled(compressed, max(self._lengths))
        mark("compress")
        payloads = self._collectives.all_gather(payload)()
        mark("sync")
        for share, payload, length in zip(shares, payloads, self._lengths, strict=True):
            self._compression.decompress(payload[:length], share)
        mark("compress")

    def _shares(self, values: Tensor) -> list[Tensor]:
        """Split into one part per worker.

        All have the length of the first, except the last ones, which may be shorter or empty.
        """
        ranks = self._collectives.ranks
        width = -(-len(values) // ranks)
        return [values[rank * width : (rank + 1) * width] for rank in range(ranks)]


_MEANS = {"all_reduce": _AddedUp, "all_gather": _Gathered, "all_to_all": _Shared}
"""By how payloads come together."""


def mean_for(
    point: Point,
    values: Tensor,
    collectives: _Collectives,
    *,
    shapes: Sequence[torch.Size] = (),
    seed: int = 0,
) -> Mean:
    """Make what averages one tensor as a point says.

    Args:
        point: has a compression.
        values: such as will be given to it.
        collectives: of the workers.
        shapes: of the parameters that lie in it one behind another.
        seed: the same on all workers, another for each tensor.
    """
    assert point.compression is not None
    way = COMPRESSIONS[point.compression].exchange
    layout = Layout(
        numel=len(values),
        dtype=values.dtype,
        device=values.device,
        shapes=shapes,
        ranks=collectives.ranks if way == "all_reduce" else 1,
        seed=seed,
    )
    return _MEANS[way](compression_for(point, layout), collectives)


def _filled(payload: Tensor, width: int) -> Tensor:
    if len(payload) == width:
        return payload
    return torch.nn.functional.pad(payload, (0, width - len(payload)))
