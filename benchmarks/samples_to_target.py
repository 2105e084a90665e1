"""Samples after which a held-out loss is reached, from a noisy curve of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DIVERGED = 1e30
"""Loss of a run that has diverged, in means with other checkpoints; no real loss comes near it."""


def samples_to(target: float, samples: Sequence[float], losses: Sequence[float]) -> float | None:
    """Find the samples after which a loss is reached; None if it never is.

    Losses are made to fall by isotonic regression (means over neighbours that rise), and
    interpolated between the centres of these means. The first loss below the target would come too
    early: noise alone goes below.

    Args:
        target: the loss.
        samples: (checkpoints,) rising.
        losses: (checkpoints,) held-out losses; those of a run that diverged may be inf or nan.

    >>> samples_to(2.5, [0, 100, 200], [4.0, 3.0, 2.0])
    150.0
    >>> samples_to(1.0, [0, 100, 200], [4.0, 3.0, 2.0]) is None
    True
    """
    centres, means = falling(samples, losses)
    if not target >= means[-1]:
        return None
    return float(np.interp(-target, -means, centres))


def loss_at(count: float, samples: Sequence[float], losses: Sequence[float]) -> float:
    """Loss of the falling curve after so many samples; inf if it has diverged by then.

    Raises:
        ValueError: the curve has not as many samples.

    >>> loss_at(150, [0, 100, 200], [4.0, 3.0, 2.0])
    2.5
    """
    if not samples[0] <= count <= samples[-1]:
        raise ValueError(
            f"the curve has {samples[0]:g} to {samples[-1]:g} samples, not {count:g}; train longer"
        )
    loss = float(np.interp(count, *falling(samples, losses)))
    # A mean of many checkpoints, of which one has diverged, is still far above every real loss.
    return loss if loss < DIVERGED / 1e6 else math.inf


def falling(
    samples: Sequence[float], losses: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Merge neighbouring checkpoints until losses fall.

    Args:
        samples: (checkpoints,) rising.
        losses: (checkpoints,); `DIVERGED` at most, also what is not finite.

    Returns:
        (blocks,) mean samples, and (blocks,) mean losses, strictly falling.

    >>> [block.tolist() for block in falling([0, 1, 2, 3], [4.0, 2.0, 3.0, 1.0])]
    [[0.0, 1.5, 3.0], [4.0, 2.5, 1.0]]
    """
    blocks: list[tuple[float, float, int]] = []
    for count, loss in zip(samples, losses, strict=True):
        block = (float(count), min(loss, DIVERGED) if math.isfinite(loss) else DIVERGED, 1)
        while blocks and blocks[-1][1] <= block[1]:
            block = _merged(blocks.pop(), block)
        blocks.append(block)
    centres, means, _ = zip(*blocks, strict=True)
    return np.array(centres), np.array(means)


def _merged(
    one: tuple[float, float, int], other: tuple[float, float, int]
) -> tuple[float, float, int]:
    count = one[2] + other[2]
    shares = one[2] / count, other[2] / count
    return (
        one[0] * shares[0] + other[0] * shares[1],
        one[1] * shares[0] + other[1] * shares[1],
        count,
    )
