"""Steps without the exchange after a window: their number, their order, and the resulting share.

`Measure(exchange="quick")` runs one turn of steps without the exchange and compares it with the
window. `Measure(exchange="precise")` runs rounds. There a block is some timed steps of one kind,
and two consecutive blocks are a pair: A B, B A, A B, B A …, so that drift falls on both kinds
equally. A turn is what is run in one go: consecutive blocks of one kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import Series, autocorrelation, students_t

PAIRS = 4
"""Pairs of blocks in a round: A BB AA BB A. After each round ranks ask whether there is another."""

LEAD = 1
"""Steps at the start of a turn that are not timed.

DDP decides in the step before if buffers are broadcast, and a GPU's queue has to fill.
"""

KNOWN = 0.02
"""Half of the 95 % interval of a step's share, from which on it is known well enough."""

_NORMAL_95 = 1.96
"""Half of a 95 % interval of a normal distribution, in standard deviations."""

_CORRELATED_FROM = 8
"""Units from which on a test shows whether neighbours resemble each other."""

_BLOCK_S = 0.02
"""Least time of a block's timed steps: short blocks are mostly lead-in, long ones are few."""

FIRST_ROUND_S = 10.0
"""Seconds that the first round may take in any case, so that slow points have a result, too."""

QUICK_SHARE, FIXED_S = 0.25, 0.05
"""Budget after a window with `exchange="quick"`: a share of it, plus seconds for checks."""

LEAST_QUICK_STEPS = 8
"""Steps of a quick turn, where they fit: fewer do not show their own noise."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Steps of one kind that are run in one go, after a barrier."""

    exchanges: bool

    blocks: tuple[int, ...]
    """Their numbers; the timed steps are divided among them evenly."""


def turns(number: int) -> list[Turn]:
    """Lay out a round.

    >>> [(turn.exchanges, turn.blocks) for turn in turns(0)]
    [(True, (0,)), (False, (1, 2)), (True, (3, 4)), (False, (5, 6)), (True, (7,))]
    """
    first = 2 * PAIRS * number
    blocks = range(2 * PAIRS)
    return [
        Turn(
            exchanges=turn % 2 == 0,
            blocks=tuple(first + block for block in blocks if (block + 1) // 2 == turn),
        )
        for turn in range(PAIRS + 1)
    ]


def block_steps(
    step_s: float, *, limit_s: float, least: int = 1, window_s: float = math.inf
) -> int | None:
    """Number of timed steps a block has; None where no round fits into the limit.

    Args:
        step_s: how long a step takes, about: the same number on all ranks.
        limit_s: what a round may take, with the step before it that shows whether memory suffices.
        least: as many, where they fit.
        window_s: what the window took: the blocks of a round take no longer, if a step each allows
            that.
    """
    fitting = int((limit_s / step_s - 1 - LEAD * (PAIRS + 1)) / (2 * PAIRS))
    block_s = min(_BLOCK_S, window_s / (2 * PAIRS))
    steps = min(max(least, math.ceil(block_s / step_s)), fitting)
    if steps > 0:
        return steps
    return None


def quick_steps(
    step_s: float, *, share_s: float, budget_s: float, noise: float, window_steps: int
) -> int:
    """Count the timed steps of a quick turn: at least one.

    The turn has as many steps as are expected to tell the share to `KNOWN`, within a share of the
    window. A turn of up to `LEAST_QUICK_STEPS` may also use the rest of the budget. Where not one
    step fits there is one all the same: without the exchange it is the shorter, the more the
    exchange matters.

    Args:
        step_s: mean step of the window, in seconds: the same number on all ranks.
        share_s: what is left of the window's share, in seconds.
        budget_s: what is left of all that may follow the window, in seconds; `LEAST_QUICK_STEPS`
            may use it.
        noise: standard deviation of a step as a share of the mean, with the autocorrelation
            counted.
        window_steps: steps of the window, which the turn is compared with.

    >>> quick_steps(0.01, share_s=1.0, budget_s=1.0, noise=0.05, window_steps=400)
    26
    >>> quick_steps(0.01, share_s=0.1, budget_s=0.15, noise=0.05, window_steps=400)
    9
    >>> quick_steps(0.01, share_s=0.02, budget_s=0.07, noise=0.05, window_steps=8)
    6
    >>> quick_steps(2.0, share_s=1.5, budget_s=1.55, noise=math.inf, window_steps=3)
    1
    """
    fitting = int(share_s / step_s) - LEAD
    if fitting < LEAST_QUICK_STEPS:
        fitting = min(LEAST_QUICK_STEPS, int(budget_s / step_s) - LEAD)
    if fitting < 1:
        return 1
    # The half-width is 1.96 · noise · sqrt(1/turn + 1/window), solved here for the steps of the
    # turn.
    if noise > 0:
        share_of_turn = (KNOWN / (_NORMAL_95 * noise)) ** 2 - 1 / window_steps
    else:
        share_of_turn = math.inf
    if share_of_turn > 0:
        wanted = math.ceil(1 / share_of_turn)
    else:
        wanted = fitting
    return min(max(wanted, LEAST_QUICK_STEPS), fitting)


def by_pair(blocks: NDArray[np.float64]) -> tuple[Series, Series]:
    """Divide the blocks of whole rounds into those with and those without the exchange, in pairs.

    >>> with_it, without = by_pair(np.array([3.0, 1.0, 1.0, 3.0]))
    >>> with_it.tolist(), without.tolist()
    ([3.0, 3.0], [1.0, 1.0])
    """
    pairs = blocks.reshape(-1, 2)
    is_first = np.arange(len(pairs)) % 2 == 0
    with_exchange: Series = np.where(is_first, pairs[:, 0], pairs[:, 1])
    without: Series = np.where(is_first, pairs[:, 1], pairs[:, 0])
    return with_exchange, without


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of something as a share of it."""

    value: float

    error: float | None
    """Its standard error; None from fewer than three units."""

    units: int

    @property
    def half_width(self) -> float | None:
        """Half of its 95 % interval."""
        if self.error is None:
            return None
        return float(students_t(self.units - 1)) * self.error


def share_of(part: Series, total: Series) -> Share:
    """Estimate a share from units that follow each other in time.

    Args:
        part: (units,) seconds of each unit.
        total: (units,) seconds; a unit that is longer in all its parts does not change the share.
    """
    value = float(part.sum() / total.sum())
    units = len(part)
    if units < 3:
        return Share(value=value, error=None, units=units)
    deviations = part - value * total
    # Neighbours may resemble each other: pairs of one turn do.
    correlation = 0.0
    if units >= _CORRELATED_FROM:
        correlation = autocorrelation(deviations)
    spread = float(deviations.std(ddof=1) / total.mean())
    error = spread * math.sqrt((1 + 2 * correlation) / units)
    return Share(value=value, error=error, units=units)


def is_known(with_exchange: Series, without: Series) -> bool:
    """True if so many pairs suffice to say what share of a step exchange and wait are.

    Not before a test shows whether neighbours resemble each other: the interval of fewer is too
    narrow where they do.
    """
    half = share_of(with_exchange - without, with_exchange).half_width
    return len(with_exchange) >= _CORRELATED_FROM and half is not None and half <= KNOWN
