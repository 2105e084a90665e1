"""Simulated rounds of launches: what it takes until a question is decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dtsweep.inference.contrasts import Rows, contrasts
from dtsweep.inference.selection import (
    Candidates,
    Selection,
    differences_of,
    points_to_launch,
    select,
)
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import PRIOR_SIGMA, PRIOR_SIGMA_IN_TURN, Numbers
from dtsweep.measure.cycles import effects_of

_NORMAL_95 = 1.96

Draw = Callable[[Rows, int, float], Numbers]
"""Costs of points in a launch, by its number and the standard error of its windows, as a share."""


Turns = Callable[[Rows], Numbers]
"""Costs of points in each cycle of turns, (points, cycles)."""


class Rules(NamedTuple):
    """Rules of a question."""

    zone: float
    """Indifference zone, in units of cost."""
    level: float
    """Two-sided significance level of a look."""
    max_launches: int
    """Of a point."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows of the rounds."""

    first_half_width: float
    """Target half-width of the first round, as a share."""
    half_width: float
    """Of later rounds, at most."""
    second_s: float
    """Standard error of a window of one second, as a share; it falls with the root of the length.
    """
    longest_s: float
    launch_s: float
    """Time that a launch of a point takes besides its window."""

    def length_s(self, error: float) -> float:
        """Length of a window with a standard error."""
        return float(min(self.longest_s, (self.second_s / error) ** 2))


@dataclass(kw_only=True)
class Rehearsal:
    """Rounds that were played, and what they took."""

    means: Numbers
    """(points, launches) costs, nan where a launch did not measure a point."""
    within: Numbers
    """(points, launches) within-launch variances; 0 where a launch did not measure a point."""
    in_turn: Numbers | None = None
    """(points, sessions) levels of points that were measured in turn, nan of others."""
    in_turn_within: Numbers | None = None
    """(points, sessions) their within-launch variances; 0 of others."""
    trials: list[int] = field(default_factory=list)
    """Of each round that was played."""
    window_s: float = 0.0
    """Length of all their windows."""
    selection: Selection | None = None

    @property
    def counts(self) -> Rows:
        """(points,) launches."""
        counts: Rows = (~np.isnan(self.means)).sum(axis=1)
        return counts

    @property
    def launches(self) -> Launches:
        """The launches so far; points have no names."""
        import pandas as pd

        points = pd.DataFrame(index=range(len(self.means)))
        in_turn = None
        if self.in_turn is not None and self.in_turn_within is not None:
            variance = _mean_variance(self.in_turn_within, self.in_turn)
            in_turn = Launches(points, self.in_turn, variance, PRIOR_SIGMA_IN_TURN, is_in_turn=True)
        variance = _mean_variance(self.within, self.means)
        return Launches(points, self.means, variance, PRIOR_SIGMA, in_turn=in_turn)


def _mean_variance(within: Numbers, means: Numbers) -> Numbers:
    counts = (~np.isnan(means)).sum(axis=1)
    variance: Numbers = np.where(counts > 0, within.sum(axis=1) / np.maximum(counts, 1), np.nan)
    return variance


def play(
    rehearsal: Rehearsal,
    draw: Draw,
    candidates: Candidates,
    windows: Windows,
    rules: Rules,
    turns: Turns | None = None,
) -> Rehearsal:
    """Play rounds until the selection is decided or a point has all its launches.

    Args:
        rehearsal: the launches so far; it is changed.
        draw: makes the costs of a launch.
        candidates: properties of the points; `counts` is filled in.
        windows: of the rounds.
        rules: of the question.
        turns: makes the cycles of points that are measured in turn; None measures whole windows.
    """
    launched = _next_points(rehearsal, candidates, rules)
    while len(launched) and rehearsal.counts.max() < rules.max_launches:
        error = _window_error(windows)
        if turns is None or len(launched) == 1:
            _add_launch(rehearsal, draw, launched, error)
        else:
            _add_turns(rehearsal, launched, turns(launched))
        rehearsal.trials.append(len(launched))
        rehearsal.window_s += len(launched) * windows.length_s(error)
        launched = _next_points(rehearsal, candidates, rules)
    return rehearsal


def _next_points(rehearsal: Rehearsal, candidates: Candidates, rules: Rules) -> Rows:
    """Points of the next round: the open ones; none if it is decided or not worth its time."""
    selection = _selected(rehearsal, candidates, rules)
    points = points_to_launch(selection)
    if selection.forecast is None or not len(points):
        return points
    launches = int(rehearsal.counts.max())
    left = max(rules.max_launches - launches, launches)
    share = len(points) / sum(rehearsal.trials)
    return points if selection.forecast.is_worth(share=share, left=left) else points[:0]


def _selected(rehearsal: Rehearsal, candidates: Candidates, rules: Rules) -> Selection:
    rows = np.arange(len(rehearsal.means))
    launches = rehearsal.launches
    differences = differences_of(contrasts(launches, rows, rows), launches, rows, rows)
    rehearsal.selection = select(
        differences,
        replace(candidates, counts=rehearsal.counts),
        zone=rules.zone,
        level=rules.level,
    )
    return rehearsal.selection


def _window_error(windows: Windows) -> float:
    """Standard error of the windows of the next round, as `Settle` sets them."""
    half_width = windows.half_width
    shortest = windows.second_s / windows.longest_s**0.5
    return max(half_width / _NORMAL_95, float(shortest))


def _add_launch(rehearsal: Rehearsal, draw: Draw, points: Rows, error: float) -> None:
    number = rehearsal.means.shape[1]
    means = np.full(len(rehearsal.means), np.nan)
    within = np.zeros(len(rehearsal.means))
    means[points], within[points] = draw(points, number, error), error**2
    rehearsal.means = np.column_stack([rehearsal.means, means])
    rehearsal.within = np.column_stack([rehearsal.within, within])


def _add_turns(rehearsal: Rehearsal, points: Rows, logs: Numbers) -> None:
    levels, errors = effects_of(logs)
    means = np.full(len(rehearsal.means), np.nan)
    within = np.zeros(len(means))
    means[points], within[points] = levels + logs.mean(), errors**2
    rehearsal.means = np.column_stack([rehearsal.means, means])
    rehearsal.within = np.column_stack([rehearsal.within, within])
    if rehearsal.in_turn is None or rehearsal.in_turn_within is None:
        rehearsal.in_turn = rehearsal.in_turn_within = np.empty((len(means), 0))
    rehearsal.in_turn = np.column_stack([rehearsal.in_turn, means])
    rehearsal.in_turn_within = np.column_stack([rehearsal.in_turn_within, within])


def first_round(points: int, draw: Draw, windows: Windows) -> Rehearsal:
    """Launch every point once, with the windows of a first round."""
    rehearsal = Rehearsal(means=np.empty((points, 0)), within=np.empty((points, 0)))
    error = windows.first_half_width / _NORMAL_95
    _add_launch(rehearsal, draw, np.arange(points), error)
    rehearsal.trials.append(points)
    rehearsal.window_s += points * windows.length_s(error)
    return rehearsal
