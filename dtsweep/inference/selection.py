"""Selection of the best point, or of one that is equal to it within an indifference zone.

It is decided launch after launch, as in fully sequential selection (Kim & Nelson 2001), with the
variances of `dtsweep.inference.contrasts`. docs/adr/0018 says what differs, and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dtsweep.inference.contrasts import Contrasts, Rows
from dtsweep.inference.forecast import Forecast, forecast_of
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import Numbers
from dtsweep.inference.verdicts import Answer
from dtsweep.measure.statistics import students_t

_Truth = NDArray[np.bool_]

LEAST_AGAIN = 3
"""Points that the second round launches at least: one alone shows no difference of launches."""

ASSUMED_SIGMA = 0.03
"""Assumed standard deviation between launches where nothing shows it, as a share of the value."""

_UNKNOWN_ERROR = 0.025
"""Assumed standard error of a window that doesn't know its own, as a share of the value."""


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
    is_tested: _Truth
    """True where launches show the error; else it is assumed."""
    launches: Numbers
    """Launches of each of the two points that the error falls with."""

    def half_width(self, level: float) -> Numbers:
        """Half-width of the intervals of confidence 1 - level, two-sided."""
        half_width: Numbers = students_t(self.degrees, level=level) * self.error + self.drift
        return half_width


def differences_of(
    contrast: Contrasts,
    launches: Launches,
    first: Rows,
    second: Rows,
    *,
    sizes: Numbers | None = None,
    drift: Numbers | None = None,
) -> Differences:
    """Take contrasts of points with others, with assumed errors where there is no test.

    Args:
        contrast: of the first points with the second ones.
        launches: of costs.
        first: rows of `launches`.
        second: rows of `launches`.
        sizes: (points,) what shares are of, where costs are not logarithms.
        drift: (first, second) added to half-widths.
    """
    is_tested = contrast.tested
    assumed = _assumed_error(launches, first, second, sizes=sizes)
    return Differences(
        estimate=contrast.estimate,
        error=np.where(is_tested, contrast.error, assumed),
        degrees=np.where(is_tested, contrast.degrees, np.inf),
        drift=np.zeros(is_tested.shape) if drift is None else drift,
        is_tested=is_tested,
        launches=contrast.launches,
    )


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

    One-sided; below 0 where a point is worse; nan where it was not compared.
    """
    forecast: Forecast | None
    """Of further rounds of the contenders; None if it is decided, or can't be told.

    It can't where nothing was launched twice, or a condition is open.
    """

    def among(self, places: Rows, count: int) -> Selection:
        """Number the points as a larger set does, which they are a part of.

        Args:
            places: (points,) number of each point among all.
            count: of all.
        """
        shortfall = np.full(count, np.nan)
        shortfall[places] = self.shortfall
        return replace(
            self,
            chosen=int(places[self.chosen]),
            contenders=places[self.contenders],
            equal=places[self.equal],
            shortfall=shortfall,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Properties of the points among which one is selected."""

    counts: Rows
    """(points,) launches."""
    is_met: _Truth
    """(points,) True where the condition is known to be met; else it is open."""
    is_likely: _Truth
    """(points,) True where the mean meets it."""
    prices: Numbers
    """(points, prices), the first counts most: of equal points the cheapest is chosen."""


def select(
    differences: Differences, candidates: Candidates, *, zone: float, level: float
) -> Selection:
    """Select a point by the launches so far.

    A point leaves when one that meets the condition is significantly better. Two kinds of error are
    controlled. That one of two equal points is called the best: each difference is tested at
    `level`, two-sided, and the chosen point has to beat all others, for which no correction for
    their number is needed (Gutmann & Maymin 1987). That a point outside of the zone is taken for an
    equal one: its limits are one-sided. The leader needs no correction, because the limit to the
    true best decides alone, whichever that is (Berger 1982). Another point that is taken in its
    place is one of several: its limits are corrected for their number (Bonferroni). Points that
    left return when the variance turns out larger.

    Args:
        differences: in cost between the candidates; smaller is better.
        candidates: their properties.
        zone: indifference zone, in units of cost.
        level: two-sided significance level of a look, as `look_level` gives it.
    """
    counts, is_met = candidates.counts, candidates.is_met
    points = np.arange(len(counts))
    one_sided = min(1.0, 2 * level)
    greater = differences.estimate > differences.half_width(level)
    is_worse: _Truth = np.logical_or.reduce(greater[:, is_met], axis=1)
    contenders = points[~is_worse]
    # Of contenders alone: those that were measured in turn may have met drift elsewhere.
    means = differences.estimate[:, ~is_worse].mean(axis=1)
    leader = _leader(points, candidates, greater=greater, is_worse=is_worse, means=means)
    excess = _excess(differences, leader, others=len(contenders) - 1, one_sided=one_sided)
    is_equal: _Truth = is_met & ~is_worse & (counts > 1) & (excess <= zone).all(axis=1)
    # Points that were left after one launch each were worse by more than launches usually differ.
    is_tested = bool(differences.is_tested[leader, counts > 1].all())
    answer = _answer(
        candidates, leader, contenders=contenders, is_equal=is_equal, is_tested=is_tested
    )
    chosen, is_decided = leader, answer is Answer.BEST
    if answer is Answer.EQUAL:
        chosen = _cheapest(points[is_equal], candidates.prices, means=means)
        is_cheaper = candidates.prices[:, 0] < candidates.prices[chosen, 0]
        is_cheaper &= ~is_worse & ~is_equal
        is_decided = not is_cheaper.any()
    if answer is Answer.ONLY_CANDIDATE:
        is_decided = bool(is_met[chosen])
    if answer is Answer.UNDECIDED:
        chosen = _least_loss(leader, excess.max(axis=1), is_met & ~is_worse, zone=zone)
    forecast = None
    is_told = answer in (Answer.UNDECIDED, Answer.EQUAL) and is_met[contenders].all()
    if is_told and not is_decided:
        prices = candidates.prices[:, 0]
        if answer is Answer.UNDECIDED:
            # Any answer is the first thing to wait for.
            prices = np.zeros_like(prices)
        forecast = forecast_of(
            differences, contenders, prices, chosen=chosen, zone=zone, levels=(level, one_sided)
        )
    return Selection(
        answer=answer,
        chosen=chosen,
        is_decided=is_decided,
        contenders=contenders,
        equal=contenders if answer is Answer.BEST else points[is_equal],
        shortfall=excess[chosen],
        forecast=forecast,
    )


def _excess(differences: Differences, leader: int, *, others: int, one_sided: float) -> Numbers:
    """(points, points) what the first of two points costs more than the second, at most.

    Args:
        differences: in cost.
        leader: point whose limits need no correction.
        others: contenders besides a point.
        one_sided: level of a limit.
    """
    excess = differences.estimate + differences.half_width(one_sided / max(1, others))
    excess[leader] = (differences.estimate + differences.half_width(one_sided))[leader]
    np.fill_diagonal(excess, 0.0)
    return excess


def _least_loss(leader: int, losses: Numbers, among: _Truth, *, zone: float) -> int:
    """Point that may lose least; the leader, if it may lose at most a zone more than that.

    Args:
        leader: by the means.
        losses: (points,) upper limits of what another point may be better.
        among: (points,) True where a point may be chosen.
        zone: indifference zone, in units of cost.
    """
    if not among.any():
        return leader
    least = int(np.where(among, losses, np.inf).argmin())
    if losses[leader] <= losses[least] + zone:
        return leader
    return least


def points_to_launch(selection: Selection) -> Rows:
    """Points of the next round: the contenders; none if it is decided."""
    if selection.is_decided:
        return selection.contenders[:0]
    if selection.answer is not Answer.SINGLE_LAUNCH:
        return selection.contenders
    shortfall = np.nan_to_num(selection.shortfall, nan=-np.inf)
    best_first = np.argsort(-shortfall, kind="stable")
    return np.union1d(selection.contenders, best_first[:LEAST_AGAIN])


def _answer(
    candidates: Candidates, leader: int, *, contenders: Rows, is_equal: _Truth, is_tested: bool
) -> Answer:
    """Answer by the points that no other is significantly better than."""
    if len(candidates.counts) == 1:
        return Answer.ONLY_CANDIDATE
    if candidates.counts.max() < 2:
        return Answer.SINGLE_LAUNCH
    if len(contenders) == 1 and candidates.is_met[leader] and is_tested:
        return Answer.BEST
    if is_equal.any():
        return Answer.EQUAL
    return Answer.UNDECIDED


def _cheapest(points: Rows, prices: Numbers, *, means: Numbers) -> int:
    """Point of the least prices; if several have them, the one of the least mean cost."""
    # The last key counts most.
    keys = (means[points], *prices[points].T[::-1])
    return int(points[np.lexsort(keys)[0]])


def _leader(
    points: Rows, candidates: Candidates, *, greater: _Truth, is_worse: _Truth, means: Numbers
) -> int:
    """Point of the least mean cost, unless shared launches show another one to be better."""
    is_candidate = candidates.is_met & ~is_worse
    if not is_candidate.any():
        is_candidate = candidates.is_likely
    among = points[is_candidate] if is_candidate.any() else points
    leader = int(among[means[among].argmin()])
    for _ in range(len(among)):
        better = among[greater[leader, among]]
        if not len(better):
            break
        leader = int(better[means[better].argmin()])
    return leader


def _assumed_error(
    launches: Launches, first: Rows, second: Rows, *, sizes: Numbers | None
) -> Numbers:
    """Standard error of differences of single launches, (first, second).

    It follows from `ASSUMED_SIGMA`, or from the launches so far if they differ more.
    """
    launches = launches.whole or launches
    if sizes is None:
        sizes = np.ones(len(launches.within_variance))
    within_variance = launches.within_variance
    is_unknown = np.isnan(within_variance)
    within_variance = np.where(is_unknown, (_UNKNOWN_ERROR * sizes) ** 2, within_variance)
    between_variance = (ASSUMED_SIGMA * sizes) ** 2
    if launches.pool is not None:
        # Too few launches for a test may still show more noise than is assumed.
        between_variance = np.maximum(between_variance, launches.pool.between_variance)
    variance = within_variance + between_variance
    error: Numbers = np.add.outer(variance[first], variance[second]) ** 0.5
    return error
