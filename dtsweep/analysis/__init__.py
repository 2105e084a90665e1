"""Questions to the table of trials: functions of a frame or of a `Study`.

The driver and readers; imports pandas and SciPy in functions alone. Only `load` reads
files. In reading order:

    load            reads the table of trials, without rows that newer ones supersede; imported rows
    launches        selects the measured trials; combines the launches of each point into one row
    canaries        drift of the machine while it was measured
    where           conditions on points, as a user writes them
    ladders         groups of points by their number of workers or nodes
    study           tables of one results folder, each prepared once (such as `over_launches`)
    difference      ratio of two points, with a verdict
    objectives      direction of each objective, and its precision over launches
    dominance       dominance between points, and its significance
    frontier        points that no other point beats
    scaling         speed-up, efficiency and gain of more workers, and which don't pay
    settings        settings of points and of trials in one form, and their values
    naming          the point that a name or some settings select
    pairwise        tests points against one of them, even with one launch each
    time_to_loss    trainings to a target: their time, samples and cost, and speed-up
    queueing        latencies of open loops, predicted from closed loops by a simulated queue
    bottleneck      bound of each point
    candidates      points that may be recommended for a goal, and reasons against the others
    noise           noise behind an answer: drift, short windows, variances of launches
    recommend       configuration for a goal: the answer, and what it gives up
    decision        whether the question of a sweep is decided, and which points are open
"""

from __future__ import annotations

from dtsweep.analysis.bottleneck import bottleneck
from dtsweep.analysis.difference import difference
from dtsweep.analysis.frontier import frontier
from dtsweep.analysis.launches import setting_columns, without_canaries
from dtsweep.analysis.queueing import queueing
from dtsweep.analysis.recommend import Recommendation, recommend
from dtsweep.analysis.scaling import scaling, worthwhile
from dtsweep.analysis.study import Study, canaries, launch_sigma, over_launches
from dtsweep.analysis.time_to_loss import time_to_loss
from dtsweep.inference.pareto import on_frontier
from dtsweep.results.campaign import Campaign, read_campaign
from dtsweep.sweep.goal import GOALS, Goal

__all__ = [
    "GOALS",
    "Campaign",
    "Goal",
    "Recommendation",
    "Study",
    "bottleneck",
    "canaries",
    "difference",
    "frontier",
    "launch_sigma",
    "on_frontier",
    "over_launches",
    "queueing",
    "read_campaign",
    "recommend",
    "scaling",
    "setting_columns",
    "time_to_loss",
    "without_canaries",
    "worthwhile",
]


def __dir__() -> list[str]:
    """Offer the public names alone, as in a notebook's completion."""
    return sorted(__all__)
