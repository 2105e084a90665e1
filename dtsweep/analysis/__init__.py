"""Questions to the table of trials: functions of a frame or of a `Study`.

Readers; imports pandas and SciPy in functions alone. Only `load` and `node_speeds` read files. In
reading order:

    superseded      which rows to leave out: of an older source, or of other environment variables
    load            reads the table of trials, without rows that newer ones supersede
    utilization     shares of what devices can do, by one measure
    launches        selects the measured trials; combines the launches of each point into one row
    condition_terms  one comparison of a condition: true, false or unknown for each row
    canaries        whether the machine changed while it was measured
    where           conditions on points, as a user writes them
    ladders         groups of points by their number of workers or nodes
    study           tables of one results folder, each prepared once (such as `over_launches`)
    naming          which point somebody means
    difference      whether two points can be distinguished, with a verdict
    objectives      which columns should be small or large, and how far launches know them
    dominance       dominance between points: which another one beats, and how far launches can tell
    resampling      how often points are on the frontier when their means are drawn again
    frontier        which points no other one beats
    scaling         what more workers bring
    worthwhile      from how many workers on one more doesn't pay
    laws            laws of scaling, fitted to what was measured
    training_time   how long training takes, by the number of workers
    node_speeds     how fast the nodes of a mixed cluster are relative to each other
    next_axes       what to try next at a point that one thing limits
    bottleneck      what limits each point
    pairwise        compares points with one of them by one objective, even with one launch each
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
