"""Operations of a step: arithmetic and bytes moved by each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    # It needs torch, which the driver, where this is read, does without.
    from dtsweep.hardware.bandwidth import OperationRates

Numbers = NDArray[np.float64]

_CLOSE = 2.0
"""Ratio of arithmetic to memory time up to which rates don't tell which of them is longer."""


class Noted(NamedTuple):
    """One operation."""

    flops: int
    moved: int
    """Bytes."""
    numels: tuple[int, ...]
    """Elements of each tensor that it reads or writes."""


@dataclass(frozen=True, eq=False)
class PassOperations:
    """Operations of a forward and backward pass in order, for two numbers of samples."""

    samples: tuple[int, int]
    flops: Numbers
    """(2, operations), with what is computed again."""
    moved: Numbers
    """(2, operations) bytes."""

    @classmethod
    def of(
        cls, passes: Sequence[Sequence[Noted]], samples: tuple[int, int]
    ) -> PassOperations | None:
        """Make it from recorded passes; None where the two differ in their operations."""
        operations = [[(noted.flops, noted.moved) for noted in notes] for notes in passes]
        if len(operations[0]) != len(operations[1]):
            return None
        table = np.array(operations, dtype=float).reshape(2, -1, 2)
        return cls(samples, table[..., 0], table[..., 1])

    def at(self, micro_batch: int) -> tuple[Numbers, Numbers]:
        """FLOPs and bytes of each operation for this many samples, linear between both counts."""
        small, large = self.samples
        place = (micro_batch - small) / (large - small)
        flops, moved = (
            np.maximum(counts[0] + place * (counts[1] - counts[0]), 0.0)
            for counts in (self.flops, self.moved)
        )
        return flops, moved


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """Least time of the operations of one worker's step at the measured rates."""

    operations: int
    moved_bytes: float
    """Upper bound: a compiler fuses operations, and tensors between them stay in caches."""

    compute_s: float
    """Seconds at the peak rate of operations that arithmetic may limit."""

    memory_s: float
    """Seconds to move the bytes of operations that memory may limit; close ones count in both."""

    launch_s: float
    """To launch them, one after the other."""


def step_work(
    passes: tuple[Numbers, Numbers],
    update: tuple[Numbers, int],
    *,
    accumulation: int,
    rates: OperationRates,
    flops_per_s: float,
) -> StepWork:
    """Add up a step: its passes, and one update.

    Args:
        passes: FLOPs and bytes of each operation of one pass.
        update: bytes of each operation of the update, and how many are launched.
        accumulation: passes per step.
        rates: of operations that hardly compute.
        flops_per_s: what the device computes.
    """
    flops, moved = passes
    computing = flops / flops_per_s
    moving = rates.seconds(moved)
    updating = rates.seconds(update[0])
    operations = accumulation * len(moved) + update[1]
    return StepWork(
        operations=operations,
        moved_bytes=accumulation * float(moved.sum()) + float(update[0].sum()),
        compute_s=accumulation * float(computing[computing > moving / _CLOSE].sum()),
        memory_s=accumulation * float(moving[moving >= computing / _CLOSE].sum())
        + float(updating.sum()),
        launch_s=operations * rates.launch_s,
    )
