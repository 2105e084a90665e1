"""Sessions of a search: the one that is live before a batch, and the cost of a point's trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.plan.estimate import TRIAL_REST_S, start_s
from dtsweep.plan.policy import Rows
from dtsweep.plan.search_pool import SearchPool, numbered
from dtsweep.plan.trial import Trial, fits_session, groups_of, sessions_of
from dtsweep.sweep.axes import by_world
from dtsweep.sweep.point import Point, World, identity
from dtsweep.sweep.settings import Measure, Sweep

if TYPE_CHECKING:
    from dtsweep.search.choice import Charges


def live_world(sweep: Sweep, batches: Iterable[Sequence[Point]]) -> World | None:
    """Replay the sessions of batches, and give the largest world of the one that is then live.

    Args:
        sweep: whose points they are.
        batches: points of each batch, the first one first.

    Returns:
        None before the first batch, and where no session outlives its batch: with
        `Measure(fresh=True)`, and where several run at the same time.
    """
    if sweep.measure.fresh or sweep.resources.concurrent > 1:
        return None
    nests = sweep.measure.nested
    live = None
    for points in batches:
        for session in _sessions(sweep, points):
            world = session[0].point.world
            if live is None or not fits_session(world, live, nests=nests):
                live = world
    return live


def _sessions(sweep: Sweep, points: Sequence[Point]) -> list[Sequence[Trial]]:
    """Sessions of a batch in the order of the queue; the first trial is of the largest world."""
    trials = [
        Trial(point=point, repeat=1, trial_id=identity(point), why="")
        for inside in by_world(points).values()
        for point in inside
    ]
    groups = groups_of(trials, fresh=False)
    return sessions_of(groups, nests=sweep.measure.nested, slots=1)


def charges_in(
    sweep: Sweep, pool: SearchPool, rows: Rows, *, measure: Measure, live: World | None
) -> tuple[Charges, int | None]:
    """Give the accelerator-seconds of a trial of each point, and the number of the live world.

    A live session also runs its smaller worlds, if sessions nest, and all of its workers are held
    meanwhile.

    Args:
        sweep: whose points they are.
        pool: of its points.
        rows: of the trials so far.
        measure: settings of the windows.
        live: as `live_world` gives it.
    """
    from dtsweep.search.choice import Charges

    worlds = [
        _session_world(point.world, live, nests=sweep.measure.nested) for point in pool.points
    ]
    world_numbers = numbered(worlds)
    rests = [
        (row["trial_s"] or row["window_s"]) + (row["overhead_s"] or 0.0) - row["window_s"]
        for row in rows
        if row["status"] == "ok" and row["window_s"]
    ]
    rest_s = float(np.median(rests)) if rests else TRIAL_REST_S
    count = len(worlds)
    charges = Charges(
        workers=np.array([world.workers for world in worlds], dtype=np.float64),
        world=world_numbers,
        start_s=np.full(count, start_s(rows)),
        rest_s=np.full(count, max(0.0, rest_s)),
        steps=float(measure.min_steps),
        least_s=measure.min_seconds,
    )
    if live not in worlds:
        return charges, None
    return charges, int(world_numbers[worlds.index(live)])


def _session_world(world: World, live: World | None, *, nests: bool) -> World:
    """World of the session that runs a point: the live one where the point fits into it."""
    if live is not None and fits_session(world, live, nests=nests):
        return live
    return world
