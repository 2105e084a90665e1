"""Hands the queue's attempts to lanes and takes what came of them, called by Ray Tune.

In Tune's words this is a *search algorithm*: Tune asks it for the next trial and tells it how one ended. (Tune's own
*schedulers* stop trials early, which `dtsweep.measure.stopping` does here.)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import ray
from ray.tune.search import Searcher

from dtsweep.driver.ahead import ComingAndGoing
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.errors import SweepError
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.plan.trial import Trial
from dtsweep.session.lane import Lane
from dtsweep.session.nodes import pinned_to
from dtsweep.session.request import withdraw_all
from dtsweep.session.settings import Settings
from dtsweep.session.trainer import train_settings
from dtsweep.sweep.point import World
from dtsweep.sweep.task import Task

TRIALS_PER_TUNER = 500
"""A Tuner slows down and grows with its trials; a fresh one over the same sessions does not."""


CLOSE_S = 120.0
"""How long a lane may take to end its session and fetch its logs."""

LANE_CALLS = 100_000
"""Calls that a lane may serve at once: each rank waits in one for its task, while it makes others. Ray's default is
1,000, with which as many ranks would leave no room for their answers."""


@dataclass(kw_only=True)
class LaneActor:
    """The actor of a lane, and whether it runs an attempt."""

    actor: Any
    name: str
    settings: Settings
    is_busy: bool = False
    asked_for: World | None = None
    """The world whose missing nodes it was told to ask for."""


@dataclass(kw_only=True)
class Running:
    """An attempt under way."""

    trial: Trial
    task: Task
    lane: int
    began: float
    started_at: datetime


class Scheduler(Searcher):  # type: ignore[misc]  # Ray has no types
    """Ray Tune's search algorithm: what it suggests is the next attempt of a lane that is free."""

    def __init__(
        self, queue: Queue, settings: Sequence[Settings], recorder: Recorder, *, nodes: ComingAndGoing | None = None
    ) -> None:
        """Start the lanes.

        Args:
            queue: says what comes next; it has as many lanes.
            settings: of the sessions of each lane.
            recorder: stores each attempt that ended.
            nodes: those of an autoscaler; None where nodes stay.
        """
        super().__init__()
        self._queue, self._recorder, self._nodes = queue, recorder, nodes
        self._lanes = [start_lane(index, lane_settings) for index, lane_settings in enumerate(settings)]
        for lane, (group, world) in zip(self._lanes, queue.first_sessions(), strict=False):
            # While Tune starts.
            lane.actor.prepare.remote(group, world)
        self._handed_out = 0
        self.running: dict[str, Running] = {}
        self.failure: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Be pickled empty: a Tuner writes a copy of its settings that nobody reads."""
        return {}

    @property
    def lanes(self) -> int:
        """Attempts that may run side by side."""
        return len(self._lanes)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to hand out."""
        return self._queue.is_empty

    def next_tuner(self) -> None:
        """Count trials anew: the last Tuner has ended."""
        self._handed_out = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Give Tune the next task: None to wait, FINISHED only when nothing runs any more."""
        if self.failure is not None or self._handed_out >= TRIALS_PER_TUNER or self.is_empty:
            return None if self.running else Searcher.FINISHED
        free = (i for i, lane in enumerate(self._lanes) if not lane.is_busy and self._queue.has_work(i))
        index = next(free, None)
        if index is None:
            return None
        now = time.monotonic()
        trial, task = self._queue.next(index, now=now, rivals=self._recorder.rivals)
        self.running[trial_id] = Running(trial=trial, task=task, lane=index, began=now, started_at=datetime.now(UTC))
        self._lanes[index].is_busy = True
        self._ask_ahead(index)
        self._handed_out += 1
        return {"task": task, "lane": self._lanes[index].name, "namespace": ray.get_runtime_context().namespace}

    def _ask_ahead(self, index: int) -> None:
        """Have a lane ask for the nodes that its next session lacks, while the last trials of this one run."""
        if self._nodes is None:
            return
        lane, world = self._lanes[index], self._queue.next_world(index)
        if world != lane.asked_for:
            lane.asked_for = world
            lane.actor.ask_ahead.remote(world if world and self._nodes.lack(world) else None)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Ignore it: a trial has one result, its last."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Take an attempt's result, store it, and queue another attempt where that may help."""
        try:
            self._complete(self.running.pop(trial_id), result or {"lane_died": True})
        except Exception as failure:  # noqa: BLE001  # Tune would wrap it; the driver raises it as it is
            # The first says what is wrong, and with a full disk where its trial was kept.
            self.failure = self.failure or failure

    def _complete(self, ended: Running, reply: Mapping[str, Any]) -> None:
        lane = self._lanes[ended.lane]
        result = self._collect(ended, reply)
        if result.lane_is_spent:
            ray.kill(lane.actor)
            withdraw_all(lane.name)
            lane = self._lanes[ended.lane] = start_lane(ended.lane, lane.settings)
        lane.is_busy = False
        if result.refusal is not None:
            raise SweepError(result.refusal)
        wall_s = time.monotonic() - ended.began
        if self._nodes is not None:
            result = replace(result, idle_node_s=self._nodes.idle_node_s(result, wall_s=wall_s))
        status = self._recorder.store(ended.trial, ended.task, result, started_at=ended.started_at, wall_s=wall_s)
        self._recorder.store_pruned(self._queue.prune(ended.trial, status))
        given_up = self._queue.ended(
            ended.lane,
            ended.trial,
            ended.task,
            status,
            session_has_ended=result.session_has_ended,
            session_workers=result.session_workers,
        )
        self._recorder.store_given_up(given_up, result)

    def _collect(self, ended: Running, reply: Mapping[str, Any]) -> AttemptResult:
        """Fetch an attempt's result; where its lane's process has ended, make one that says so."""
        if not reply.get("lane_died"):
            try:
                result: AttemptResult = ray.get(self._lanes[ended.lane].actor.collect.remote(ended.task.attempt_id))
            except ray.exceptions.RayActorError:
                pass
            else:
                return result
        said = "the session's process was killed"
        return AttemptResult(status="collateral", reason=said, lane_is_spent=True, session_has_ended=True)

    def save(self, checkpoint_path: str) -> None:
        """Keep nothing: the Parquet rows say what is done."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing, since nothing was kept."""

    def close(self, say: Callable[[str], None]) -> dict[str, str]:
        """End all sessions in order; return the logs that became known.

        Args:
            say: told of a session that could not be ended so: all that it measured is stored.
        """
        logs: dict[str, str] = {}
        for closed in [lane.actor.close.remote() for lane in self._lanes]:
            try:
                logs |= ray.get(closed, timeout=CLOSE_S)
            except ray.exceptions.RayError as error:
                say(
                    f"a session was not ended in order ({type(error).__name__}); logs of its last trials may be missing"
                )
        self.kill()
        return logs

    def kill(self) -> None:
        """End all sessions at once; their ranks go with them."""
        for lane in self._lanes:
            ray.kill(lane.actor)


def start_lane(index: int, settings: Settings) -> LaneActor:
    """Start the actor of a lane beside this process."""
    name = f"dtsweep-lane-{index}-{os.urandom(4).hex()}"
    actor = ray.remote(Lane).options(name=name, **lane_options(settings)).remote(settings)
    return LaneActor(actor=actor, name=name, settings=settings)


def lane_options(settings: Settings) -> dict[str, Any]:
    """Ray's options of the actor of a lane."""
    options = {
        "num_cpus": 0,
        "max_concurrency": LANE_CALLS,
        "scheduling_strategy": pinned_to(ray.get_runtime_context().get_node_id()),
    }
    if not settings.is_private:
        # A private Ray was started with them, so that the processes that it keeps ready fit.
        options["runtime_env"] = {"env_vars": train_settings(settings.node_timeout_s, is_private=False)}
    return options
