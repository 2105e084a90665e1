"""Questions to the table of trials: pure functions of a frame, or of a `Study` of it, which prepares each table once.

Readers; imports pandas and SciPy in functions alone. In reading order:

    superseded      rows of an older source of the workload, or of an older environment
    load            the table of trials
    utilization     shares of what devices can do, by one measure
    launches        from trials to points
    comparisons     a column beside a value: true, false or unknown
    canaries        whether the machine changed while it was measured
    where           conditions on points, as a user writes them
    ladders         groups of points by their number of workers or nodes
    study           tables of one results folder, each prepared once
    naming          which point somebody means
    difference      whether two points can be told apart, with a verdict
    objectives      what should be small or large, and how far launches know it
    standing        how points stand to each other: which are beaten, as far as launches can tell
    redrawn         how often points are on the frontier when their means are drawn anew
    frontier        which points no other one beats
    scaling         what more workers bring
    worthwhile      from how many workers on one more doesn't pay
    laws            laws of scaling, fitted to what was measured
    training_time   how long training takes, by the number of workers
    node_speeds     how fast the nodes of a mixed cluster are beside each other
    next_axes       what to try next at a point that one thing limits
    bottleneck      what limits each point
    against         what points cost more than another one, told also by one launch of each
    candidates      which points may be recommended for a goal, and why others may not
    recommend       which configuration to take for a goal, and how sure that is
"""

from __future__ import annotations

from dtsweep.analysis.bottleneck import bottleneck
from dtsweep.analysis.difference import difference
from dtsweep.analysis.frontier import frontier, hypervolume
from dtsweep.analysis.launches import setting_columns, without_canaries
from dtsweep.analysis.laws import laws
from dtsweep.analysis.node_speeds import node_speeds
from dtsweep.analysis.recommend import Recommendation, recommend
from dtsweep.analysis.scaling import scaling
from dtsweep.analysis.study import Study, canaries, launch_sigma, over_launches
from dtsweep.analysis.training_time import training_time
from dtsweep.analysis.worthwhile import worthwhile
from dtsweep.inference.pareto import on_frontier
from dtsweep.sweep.goal import GOALS, Goal

__all__ = [
    "GOALS",
    "Goal",
    "Recommendation",
    "Study",
    "bottleneck",
    "canaries",
    "difference",
    "frontier",
    "hypervolume",
    "launch_sigma",
    "laws",
    "node_speeds",
    "on_frontier",
    "over_launches",
    "recommend",
    "scaling",
    "setting_columns",
    "training_time",
    "without_canaries",
    "worthwhile",
]
