"""Selection of the best point, or of one that is equal to it within an indifference zone.

It is decided launch after launch, as in fully sequential selection (Kim & Nelson 2001), with the
variances of `dtsweep.inference.contrasts`. docs/adr/0018 says what differs, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dtsweep.inference.contrasts import Contrasts, Rows
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import Numbers
from dtsweep.measure.statistics import students_t

Truth = NDArray[np.bool_]

ASSUMED_SIGMA = 0.03
"""Assumed standard deviation between launches where nothing shows it, as a share of the value."""

_UNKNOWN_ERROR = 0.025
"""Assumed standard error of a window that doesn't know its own, as a share of the value."""


class Answer(StrEnum):
    """Answer to the question which point is the best."""

    BEST = "best"
    """One point is significantly better than all others."""
    EQUAL = "equal"
    """No point is better than the chosen one by more than the indifference zone."""
    UNDECIDED = "undecided"
    """Launches show neither."""
    SINGLE_LAUNCH = "single_launch"
    """One launch of each point; nothing shows how far launches differ."""
    ONLY_CANDIDATE = "only_candidate"
    """No other point is a candidate."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Differences:
    """Differences in cost between points: each of them (rows) less each of them (columns)."""

    estimate: Numbers
    error: Numbers
    """Standard error of the estimate."""
    degrees: Numbers
    """Degrees of freedom of that error; infinite where it is assumed."""
    drift: Numbers
    """Drift of the machine that the launches can't average out, added to each half-width."""
    is_tested: Truth
    """True where launches show the error; else it is assumed."""

    def half_width(self, level: float) -> Numbers:
        """Half-width of the intervals of confidence 1 - level, two-sided."""
        half_width: Numbers = students_t(self.degrees, level=level) * self.error + self.drift
        return half_width

    def between(self, first: Rows, second: Rows) -> Differences:
        """Give the differences between some points and others."""
        cells = np.ix_(first, second)
        return Differences(
            estimate=self.estimate[cells],
            error=self.error[cells],
            degrees=self.degrees[cells],
            drift=self.drift[cells],
            is_tested=self.is_tested[cells],
        )


def differences_of(
    contrast: Contrasts,
    launches: Launches,
    rows: Rows,
    *,
    sizes: Numbers | None = None,
    drift: Numbers | None = None,
) -> Differences:
    """Take contrasts of points with each other, with assumed errors where there is no test.

    Args:
        contrast: of the rows with each other.
        launches: of costs.
        rows: of `launches`.
        sizes: (rows,) what shares are of, where costs are not logarithms.
        drift: (rows, rows) added to half-widths.
    """
    is_tested = contrast.tested
    assumed = assumed_error(launches, rows, rows, sizes=sizes)
    error = contrast.half_width / students_t(contrast.degrees)
    return Differences(
        estimate=contrast.estimate,
        error=np.where(is_tested, error, assumed),
        degrees=np.where(is_tested, contrast.degrees, np.inf),
        drift=np.zeros(is_tested.shape) if drift is None else drift,
        is_tested=is_tested,
    )


def assumed_error(
    launches: Launches, first: Rows, second: Rows, *, sizes: Numbers | None = None
) -> Numbers:
    """Standard error of differences of single launches, (first, second), by `ASSUMED_SIGMA`.

    Args:
        launches: of costs.
        first: rows of them.
        second: rows of them.
        sizes: (points,) what shares are of, where costs are not logarithms.
    """
    if sizes is None:
        sizes = np.ones(len(launches.within_variance))
    within_variance = launches.within_variance
    is_unknown = np.isnan(within_variance)
    within_variance = np.where(is_unknown, (_UNKNOWN_ERROR * sizes) ** 2, within_variance)
    variance = within_variance + (ASSUMED_SIGMA * sizes) ** 2
    error: Numbers = np.add.outer(variance[first], variance[second]) ** 0.5
    return error


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Answer so far, and the points that further launches would decide about."""

    answer: Answer
    chosen: int
    """Number of the chosen point."""
    is_decided: bool
    """True if further launches would not change what to choose."""
    contenders: Rows
    """Points that may be the best, or may be cheaper and equal to it: the next ones to launch."""
    equal: Rows
    """Points that no other is better than by more than the indifference zone.

    Any two of them differ by at most the zone.
    """
    shortfall: Numbers
    """(points,) upper limit of how much better each point may be than the chosen one.

    Simultaneous over the contenders; below 0 where a point is worse.
    """


def select(
    differences: Differences,
    *,
    counts: Rows,
    is_met: Truth,
    prices: Rows,
    zone: float,
    level: float,
) -> Selection:
    """Select a point by the launches so far.

    A point leaves when one that meets the condition is significantly better. Two kinds of error are
    controlled. That the best point is beaten by chance: each difference is tested at `level`, and
    the chosen point has to beat all others, for which no correction for their number is needed
    (Gutmann & Maymin 1987). That a point outside of the zone is taken for an equal one: its limits
    are one-sided, corrected for the number of contenders (Bonferroni). Points that left return when
    the variance turns out larger.

    Args:
        differences: in cost between the candidates; smaller is better.
        counts: (points,) launches.
        is_met: (points,) True where the condition is known to be met; else it is open.
        prices: (points,) lower ones are preferred among equal points: workers.
        zone: indifference zone, in units of cost.
        level: two-sided significance level of a look, as `look_level` gives it.
    """
    points = np.arange(len(counts))
    greater = differences.estimate > differences.half_width(level)
    is_worse = greater[:, is_met].any(axis=1)
    contenders = points[~is_worse]
    one_sided = level / max(1, len(contenders) - 1)
    # What the first of two points costs more than the second, at most.
    excess = differences.estimate + differences.half_width(min(1.0, 2 * one_sided))
    np.fill_diagonal(excess, 0.0)
    is_equal = is_met & ~is_worse & (excess <= zone).all(axis=1)
    means = differences.estimate.mean(axis=1)
    leader = _leader(points, is_met & ~is_worse, greater, means)
    equal = points[is_equal & (counts > 1)]
    chosen, answer = leader, Answer.UNDECIDED
    open_points = contenders
    if len(points) == 1:
        answer = Answer.ONLY_CANDIDATE
    elif counts[contenders].max(initial=0) < 2:
        answer = Answer.SINGLE_LAUNCH
    elif len(contenders) == 1 and is_met[leader]:
        answer = Answer.BEST
        equal = contenders
    elif len(equal):
        answer = Answer.EQUAL
        chosen = int(equal[np.lexsort((means[equal], prices[equal]))[0]])
        is_cheaper = prices < prices[chosen]
        open_points = contenders[is_cheaper[contenders] & ~is_equal[contenders]]
    is_decided = answer in (Answer.BEST, Answer.EQUAL, Answer.ONLY_CANDIDATE)
    if answer is Answer.EQUAL:
        is_decided = not len(open_points)
    return Selection(
        answer=answer,
        chosen=chosen,
        is_decided=is_decided,
        contenders=contenders,
        equal=equal,
        shortfall=excess[chosen],
    )


def _leader(points: Rows, is_candidate: Truth, greater: Truth, means: Numbers) -> int:
    """Point of the least mean cost, unless shared launches show another one to be better."""
    among = points[is_candidate]
    if not len(among):
        among = points
    leader = int(among[means[among].argmin()])
    for _ in range(len(among)):
        better = among[greater[leader, among]]
        if not len(better):
            break
        leader = int(better[means[better].argmin()])
    return leader
