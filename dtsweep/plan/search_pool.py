"""Points of a search as arrays: settings, chance of a trial to end well, and its cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.settings import settings_of_points
from dtsweep.plan.estimate import TRIAL_REST_S, start_s
from dtsweep.plan.pruning import MeasuredPeaks, peaks_of, variables_text, workload_text
from dtsweep.plan.trial import Row, Rows, Trial, fits_session, groups_of, sessions_of
from dtsweep.predict.choice import Charges
from dtsweep.predict.encoding import encoding_of, measured_of, setups_of_settings, usable_trials
from dtsweep.predict.setups import Flags, MeasuredSetups, Numbers, Setups
from dtsweep.results.current_attempt import current_attempts
from dtsweep.results.statuses import FINAL
from dtsweep.sweep.axes import by_world
from dtsweep.sweep.mode_info import SEMANTICS, UNASKED
from dtsweep.sweep.point import Point, World, identity
from dtsweep.sweep.settings import Measure, Sweep

if TYPE_CHECKING:
    import pandas as pd


Numbering: TypeAlias = NDArray[np.int64]

_Ended: TypeAlias = Mapping[str, Row]

_LIKENESS = 0.5
"""Weight of a trial for the chance of another point, for each axis in which the two differ."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchPool:
    """The n points of a sweep, and the m trials that were measured of them."""

    points: Sequence[Point]
    names: Mapping[str, int]
    """Number of each point by its `point_id`."""

    setups: Setups
    """Settings of all points."""

    trials: pd.DataFrame
    """Measured trials, one row for each point."""

    rows: Numbering
    """(m,) numbers of the trials' points."""

    measured_setups: Setups
    measured: MeasuredSetups


def pool_of(sweep: Sweep, points: Sequence[Point], trials: pd.DataFrame) -> SearchPool:
    """Turn points and trials into arrays."""
    trials = usable_trials(trials)
    settings = settings_of_points(points, environment=sweep.resources.environment)
    encoding = encoding_of(trials, settings)
    names = {identity(point): number for number, point in enumerate(points)}
    measured_setups, measured = measured_of(trials, encoding)
    return SearchPool(
        points=points,
        names=names,
        setups=setups_of_settings(settings, encoding),
        trials=trials,
        rows=np.array([names[name] for name in trials["point_id"]], dtype=np.int64),
        measured_setups=measured_setups,
        measured=measured,
    )


def chances_of(sweep: Sweep, pool: SearchPool, rows: Rows, chosen: Collection[str]) -> Numbers:
    """Give the (n,) probabilities that a trial ends with a measurement.

    The fewer axes two points differ in, the more one's end says of the other's. 0 for points that
    were chosen, that would run out of memory, whose world the cluster can't hold, or whose updates
    the goal does not allow.
    """
    ended = ended_in(rows)
    ok = np.ones(len(pool.points))
    ends = np.ones(len(pool.points))
    # All settings that may decide how a trial ends.
    settings = [(*p.scalars().values(), workload_text(p), variables_text(p)) for p in pool.points]
    axes = np.stack([numbered(values) for values in zip(*settings, strict=True)])
    for name, row in ended.items():
        weights = _LIKENESS ** (axes != axes[:, [pool.names[name]]]).sum(axis=0)
        ends += weights
        if row["status"] == "ok":
            ok += weights
    chances: Numbers = ok / ends
    impossible = {*chosen, *_without_memory(sweep, pool, ended), *_without_room(pool, ended)}
    chances[[pool.names[name] for name in impossible]] = 0.0
    chances[~is_allowed(sweep, pool)] = 0.0
    return chances


def ended_in(rows: Rows) -> _Ended:
    """Last attempts that ended for good or were refused by the cluster, by `point_id`."""
    current = [rows[index] for index in current_attempts(rows).values()]
    return {row["point_id"]: row for row in current if row["status"] in FINAL | {"infeasible"}}


def is_allowed(sweep: Sweep, pool: SearchPool) -> Flags:
    """(n,) True where the sweep's goal allows the updates of a point."""
    allowed = {*SEMANTICS}
    if sweep.question is not None and sweep.question.goal is not None:
        allowed = {*UNASKED, *sweep.question.goal.allow}
    return np.array([point.semantics in allowed for point in pool.points], dtype=np.bool_)


def numbered(values: Iterable[Any]) -> Numbering:
    """Number values in the order of their first occurrence, (n,); equal ones share a number."""
    values = [*values]
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return np.array([numbers[value] for value in values], dtype=np.int64)


def _without_memory(sweep: Sweep, pool: SearchPool, ended: _Ended) -> set[str]:
    """Points that would run out of device memory, as smaller ones did or by the peaks so far."""
    if not sweep.measure.prune:
        return set()
    trials = [
        Trial(point=pool.points[number], repeat=1, trial_id=name, why="")
        for name, number in pool.names.items()
    ]
    peaks = peaks_of([trial for trial in trials if trial.trial_id in ended], ended)
    return {*MeasuredPeaks(peaks).out_of_memory(trials, new=pool.names.keys() - ended)}


def _without_room(pool: SearchPool, ended: _Ended) -> set[str]:
    """Points in worlds that the cluster can't hold, as far as trials show."""
    points = {name: pool.points[number] for name, number in pool.names.items()}
    places = {name: (p.workers, p.placement, p.precision) for name, p in points.items()}
    refused = {places[name] for name, row in ended.items() if row["status"] == "infeasible"}
    refused -= {places[name] for name, row in ended.items() if row["status"] != "infeasible"}
    return {name for name, place in places.items() if place in refused}


def live_world(sweep: Sweep, batches: Iterable[Sequence[Point]]) -> World | None:
    """Replay the sessions of batches, and give the largest world of the one that is then live.

    Returns:
        None before the first batch, and where no session outlives its batch: with
        `Measure(fresh=True)`, and where several run at the same time.
    """
    if sweep.measure.fresh or sweep.resources.concurrent > 1:
        return None
    nests = sweep.measure.nested
    live = None
    for points in batches:
        trials = [
            Trial(point=point, repeat=1, trial_id=identity(point), why="")
            for inside in by_world(points).values()
            for point in inside
        ]
        # As in the queue: the first trial of a session is of its largest world.
        for session in sessions_of(groups_of(trials, fresh=False), nests=nests, slots=1):
            world = session[0].point.world
            if live is None or not fits_session(world, live, nests=nests):
                live = world
    return live


def charges_in(
    sweep: Sweep, pool: SearchPool, rows: Rows, *, measure: Measure, live: World | None
) -> tuple[Charges, int | None]:
    """Give the accelerator-seconds of a trial of each point, and the number of the live world.

    A live session also runs its smaller worlds, if sessions nest, and all of its workers are held
    meanwhile.
    """
    worlds = [point.world for point in pool.points]
    if live is not None:
        # The live session runs a point that fits into it.
        nests = sweep.measure.nested
        worlds = [live if fits_session(world, live, nests=nests) else world for world in worlds]
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
