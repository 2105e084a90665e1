"""Samples by their number, from a pool that is made or read once and kept on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

POOL_SAMPLES = 512
"""Samples in a synthetic pool: sample i is number i modulo 512."""


class KeepsSamples:
    """A workload that keeps its samples on the device between batches, and out of its pickle."""

    def _kept(
        self, device: torch.device, read: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """Give the tensors of `read()` on `device`; `read` is called once for each device."""
        kept: dict[torch.device, dict[str, Tensor]] = self.__dict__.setdefault("_kept_samples", {})
        if device not in kept:
            kept[device] = {name: tensor.to(device) for name, tensor in read().items()}
        return kept[device]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the kept samples out: another process reads its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_kept_samples"}


def seeded_generator() -> torch.Generator:
    """Make a CPU generator from torch's seed, so that ranks with one seed draw equal samples.

    Drawing from it leaves torch's own generator, and with it the weights, alone.
    """
    import torch

    return torch.Generator().manual_seed(torch.initial_seed())


def sample_numbers(samples: range, pool: Tensor) -> Tensor:
    """Give the rows of `pool` that have these numbers: (samples,), int64, on the pool's device."""
    import torch

    return torch.arange(samples.start, samples.stop, samples.step, device=pool.device) % len(pool)


def take(pool: Tensor, samples: range) -> Tensor:
    """Give the samples with these numbers from a pool that repeats without end.

    Args:
        pool: (pool samples, ...).
        samples: global numbers, from 0.

    Returns:
        (samples, ...), a view where the rows follow each other in the pool.
    """
    first = samples.start % len(pool)
    if samples.step == 1 and first + len(samples) <= len(pool):
        return pool[first : first + len(samples)]
    return pool.index_select(0, sample_numbers(samples, pool))
