"""Hands out trials to sessions lane by lane, takes what came of them, and tries again where that may help."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import ray
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtsweep.plan.plan import CANARY_TRIALS, Trial
from dtsweep.results.statuses import is_retried
from dtsweep.session.lane import AttemptResult, Lane
from dtsweep.session.worker_loop import Settings
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, task_of

CANARY_EVERY_S = 600.0
"""In a session that goes on for longer, the canary is measured in between as well."""

TRIALS_PER_TUNER = 500
"""A Tuner slows down and grows with its trials; a fresh one over the same sessions does not."""

PROFILE_TRIES = 3
"""Trials of a world that are profiled until one ends well: more of them the profiler itself may break."""


@dataclass(kw_only=True)
class LaneQueue:
    """A place where one session lives at a time."""

    actor: Any
    name: str
    group: deque[tuple[Trial, int]] = field(default_factory=deque)
    """Trials of one session with the number of their attempt; the lane works them off."""
    canary: Trial | None = None
    """What both ends of the session measure."""
    canary_at: float = 0.0
    """When it was last handed out, by the monotonic clock."""
    busy: bool = False


@dataclass(kw_only=True)
class Running:
    """An attempt under way."""

    trial: Trial
    task: Task
    lane: LaneQueue
    began: float
    started_at: datetime


class KeepsResults(Protocol):
    """What the scheduler needs of who keeps the results."""

    def __call__(self, trial: Trial, task: Task, result: AttemptResult, times: Mapping[str, Any]) -> str:
        """Store an attempt; return the status under which it was stored."""

    def rivals(self, point: Point) -> tuple[tuple[float, float], ...]:
        """Latency and throughput of what was measured with a point's semantics."""


class Scheduler(Searcher):  # type: ignore[misc]  # Ray has no types
    """Hands out trials lane by lane and takes what came of them; Tune calls it in the driver."""

    def __init__(
        self,
        sweep: Sweep,
        groups: Sequence[Sequence[Trial]],
        settings: Sequence[Settings],
        recorder: KeepsResults,
        *,
        canaries: Mapping[Any, Trial],
        profiler: str | None = None,
    ) -> None:
        """Start the lanes.

        Args:
            sweep: whose orders are handed out.
            groups: trials that may share a session, in the order of the plan.
            settings: of the session of each lane.
            recorder: called with each attempt that ended.
            canaries: what the sessions of each world measure at both ends.
            profiler: what the first trial of each world is to be profiled by.
        """
        super().__init__()
        self._sweep, self._recorder, self._settings = sweep, recorder, settings
        self._canaries, self._profiler, self._profiles = canaries, profiler, Counter[Any]()
        self._waiting = deque(deque((trial, 1) for trial in group) for group in groups)
        self._lanes = [self._new_lane(index) for index in range(len(settings))]
        self._handed_out = 0
        self.running: dict[str, Running] = {}
        self.failure: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Be pickled empty: a Tuner writes a copy of its settings that nobody reads."""
        return {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to hand out."""
        return not self._waiting and not any(lane.group for lane in self._lanes)

    def next_tuner(self) -> None:
        """Count trials anew: the last Tuner has ended."""
        self._handed_out = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Give Tune the next order: None to wait, FINISHED only when nothing runs any more."""
        if self.failure is not None or self._handed_out >= TRIALS_PER_TUNER or self.is_empty:
            return None if self.running else Searcher.FINISHED
        lane = next((lane for lane in self._lanes if not lane.busy and (lane.group or self._waiting)), None)
        if lane is None:
            return None
        trial, attempt = self._next_of(lane)
        task = self._order(trial, attempt)
        now = datetime.now(UTC)
        self.running[trial_id] = Running(trial=trial, task=task, lane=lane, began=time.monotonic(), started_at=now)
        lane.busy = True
        self._handed_out += 1
        return {"order": task, "lane": lane.name, "namespace": ray.get_runtime_context().namespace}

    def _next_of(self, lane: LaneQueue) -> tuple[Trial, int]:
        """The next trial of a lane: each session's are between two canaries, with more of them in a long one."""
        measure = self._sweep.measure
        if not lane.group:
            lane.group = self._waiting.popleft()
            watched = measure.canary and len(lane.group) >= CANARY_TRIALS
            lane.canary = self._canaries.get(lane.group[0][0].point.world) if watched else None
            if lane.canary is not None:
                lane.canary = replace(lane.canary, repeat=lane.group[0][0].repeat)
                lane.group.appendleft((lane.canary, 1))
                lane.group.append((lane.canary, 1))
        elif lane.canary is not None and time.monotonic() - lane.canary_at > CANARY_EVERY_S:
            lane.group.appendleft((lane.canary, 1))
        trial, attempt = lane.group.popleft()
        if trial.role == "canary":
            lane.canary_at = time.monotonic()
        return trial, attempt

    def _order(self, trial: Trial, attempt: int) -> Task:
        point = trial.point
        task = task_of(self._sweep, point, repeat=trial.repeat, attempt=attempt, role=trial.role)
        if self._sweep.measure.race and trial.role == "trial":
            task = replace(task, rivals=self._recorder.rivals(point))
        is_profiled = self._profiler and trial.role == "trial" and not MODES[point.sync].needs_ray
        if is_profiled and self._profiles[point.world] < PROFILE_TRIES:
            task = replace(task, profile=self._profiler)
        return task

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial has one result, its last."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Take an attempt's result, store it, and queue another attempt where that may help."""
        try:
            self._complete(self.running.pop(trial_id), result or {"lane_died": True})
        except Exception as failure:  # noqa: BLE001  # Tune would wrap it; the driver raises it as it is
            # The first says what is wrong, and with a full disk where its trial was kept.
            self.failure = self.failure or failure

    def _complete(self, ended: Running, reply: Mapping[str, Any]) -> None:
        lane = ended.lane
        result = self._take(ended, reply)
        if result.lane_is_spent:
            self._revive(lane)
        lane.busy = False
        wall_s = time.monotonic() - ended.began
        times = {
            "started_at": ended.started_at,
            "startup_s": result.startup_s,
            "trial_s": result.trial_s,
            "overhead_s": max(0.0, wall_s - (result.startup_s or 0.0) - (result.trial_s or 0.0)),
        }
        status = self._recorder(ended.trial, ended.task, result, times)
        if ended.task.profile:
            self._profiles[ended.trial.point.world] += PROFILE_TRIES if status == "ok" else 1
        if ended.trial.role == "trial" and is_retried(status, attempt=ended.task.attempt):
            closing = bool(lane.group) and lane.group[-1][0].role == "canary"
            lane.group.insert(len(lane.group) - closing, (ended.trial, ended.task.attempt + 1))
        if result.session_has_ended and all(trial.role == "canary" for trial, _ in lane.group):
            # Another session would say nothing about the one that it was to watch.
            lane.group.clear()
        if status in ("no_nodes", "version_mismatch", "infeasible"):
            # The others of this world would wait as long, for the same nodes.
            self._give_up(lane, result)

    def _take(self, ended: Running, reply: Mapping[str, Any]) -> AttemptResult:
        """Fetch an attempt's result; where its session's process has ended, make one that says so."""
        if not reply.get("lane_died"):
            try:
                taken: AttemptResult = ray.get(ended.lane.actor.collect.remote(ended.task.attempt_id))
            except ray.exceptions.RayActorError:
                pass
            else:
                return taken
        return AttemptResult(
            outcomes={}, status="collateral", reason="the session's process was killed", lane_is_spent=True
        )

    def _give_up(self, lane: LaneQueue, result: AttemptResult) -> None:
        for trial, attempt in lane.group:
            if trial.role == "canary":
                continue
            task = task_of(self._sweep, trial.point, repeat=trial.repeat, attempt=attempt)
            self._recorder(trial, task, result, {"started_at": datetime.now(UTC)})
        lane.group.clear()

    def save(self, checkpoint_path: str) -> None:
        """Keep nothing: the Parquet rows say what is done."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing was kept."""

    def close(self) -> dict[str, str]:
        """End all sessions in order; return the logs that became known."""
        logs: dict[str, str] = {}
        for known in ray.get([lane.actor.close.remote() for lane in self._lanes]):
            logs |= known
        self.kill()
        return logs

    def kill(self) -> None:
        """End all sessions at once; their ranks go with them."""
        for lane in self._lanes:
            ray.kill(lane.actor)

    def _new_lane(self, index: int) -> LaneQueue:
        name = f"dtsweep-lane-{index}-{os.urandom(4).hex()}"
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = (
            ray.remote(num_cpus=0)(Lane)
            .options(
                name=name, scheduling_strategy=here, runtime_env={"env_vars": _train_settings(self._settings[index])}
            )
            .remote(self._settings[index])
        )
        return LaneQueue(actor=actor, name=name)

    def _revive(self, lane: LaneQueue) -> None:
        ray.kill(lane.actor)
        fresh = self._new_lane(self._lanes.index(lane))
        lane.actor, lane.name = fresh.actor, fresh.name


def _train_settings(settings: Settings) -> dict[str, str]:
    """The environment of a session, which Ray Train reads."""
    return {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": f"{settings.node_timeout_s:g}",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        # On this machine alone no node is taken back: a process less to start.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0" if settings.is_private else "1",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "3",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }
