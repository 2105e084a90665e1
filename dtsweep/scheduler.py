"""Ray Tune drives the sweep: one trial is one Tune trial, sessions do the work, the driver stores rows."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtsweep.errors import StorageError, SweepError
from dtsweep.order import Order, order_of
from dtsweep.plan import Trial
from dtsweep.ranks import Settings
from dtsweep.schema import RETRIED
from dtsweep.session import Report, Session

TRIALS_PER_TUNER = 500
"""A Tuner slows down and grows with its trials; a fresh one over the same sessions does not."""

ATTEMPTS = 3
"""Attempts at a trial within one run, where the fault was not its own."""

TUNE_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Tune's own handler ends the run with exit code 0.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # The Parquet rows say what is done: Tune need not write its state.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}
"""Environment of the driver, which Tune reads."""


class Interrupted(BaseException):
    """The run was told to stop; not an Exception, so that Tune passes it on."""

    def __init__(self, signal_number: int) -> None:
        """Keep which signal said so."""
        super().__init__(signal_number)
        self.signal_number = signal_number


@dataclass(kw_only=True)
class Lane:
    """A place where one session lives at a time."""

    actor: Any
    name: str
    group: deque[tuple[Trial, int]] = field(default_factory=deque)
    """Trials of one launch with the number of their attempt; the lane works them off."""
    busy: bool = False


@dataclass(kw_only=True)
class Running:
    """An attempt under way."""

    trial: Trial
    order: Order
    lane: Lane
    began: float
    started_at: datetime


Stored = Callable[[Trial, Order, Report, Mapping[str, Any]], str]
"""Stores an attempt; returns the status under which it was stored."""


class TrialRunner(tune.Trainable):
    """What Tune sees of a trial: its step asks a lane to run the order."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take the first order."""
        self._config = config

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next one, in the same process."""
        self._config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """Run it to its end."""
        lane = ray.get_actor(self._config["lane"], namespace=self._config["namespace"])
        try:
            ended = ray.get(lane.run.remote(self._config["order"]))
        except ray.exceptions.RayActorError:
            # The lane was killed: by us, at the end of an interrupted run, or by its node's lack of memory.
            ended = {"attempt_id": self._config["order"].attempt_id, "status": "collateral", "lane_died": True}
        return {**ended, tune.result.DONE: True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Keep nothing: a measurement is never resumed half-way."""


class Scheduler(Searcher):  # type: ignore[misc]  # Ray has no types
    """Hands out trials lane by lane and takes what came of them; Tune calls it in the driver."""

    def __init__(
        self, sweep: Any, groups: Sequence[Sequence[Trial]], settings: Sequence[Settings], stored: Stored
    ) -> None:
        """Start the lanes.

        Args:
            sweep: whose orders are handed out.
            groups: trials that may share a launch, in the order of the plan.
            settings: of the session of each lane.
            stored: called with each attempt that ended.
        """
        super().__init__()
        self._sweep, self._stored, self._settings = sweep, stored, settings
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
        if not lane.group:
            lane.group = self._waiting.popleft()
        trial, attempt = lane.group.popleft()
        order = order_of(self._sweep, trial.point, repeat=trial.repeat, attempt=attempt)
        now = datetime.now(UTC)
        self.running[trial_id] = Running(trial=trial, order=order, lane=lane, began=time.monotonic(), started_at=now)
        lane.busy = True
        self._handed_out += 1
        return {"order": order, "lane": lane.name, "namespace": ray.get_runtime_context().namespace}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial has one result, its last."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Take an attempt's report, store it, and queue another attempt where that may help."""
        try:
            self._complete(self.running.pop(trial_id), result or {"lane_died": True})
        except (StorageError, SweepError) as failure:
            # Raised here it would be lost in Tune; the driver raises it when Tune has stopped.
            self.failure = failure

    def _complete(self, ended: Running, result: Mapping[str, Any]) -> None:
        lane = ended.lane
        if result.get("lane_died"):
            report = Report(outcomes={}, status="collateral", reason="the session's process was killed")
            self._revive(lane)
        else:
            report = ray.get(lane.actor.take.remote(ended.order.attempt_id))
        lane.busy = False
        wall_s = time.monotonic() - ended.began
        times = {
            "started_at": ended.started_at,
            "startup_s": report.startup_s,
            "overhead_s": max(0.0, wall_s - (report.startup_s or 0.0) - (report.trial_s or 0.0)),
        }
        status = self._stored(ended.trial, ended.order, report, times)
        if status in RETRIED and ended.order.attempt < ATTEMPTS:
            lane.group.append((ended.trial, ended.order.attempt + 1))
        if status == "no_nodes":
            # The others of this world would wait as long for the same nodes.
            self._give_up(lane, report)

    def _give_up(self, lane: Lane, report: Report) -> None:
        for trial, attempt in lane.group:
            order = order_of(self._sweep, trial.point, repeat=trial.repeat, attempt=attempt)
            self._stored(trial, order, report, {"started_at": datetime.now(UTC)})
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

    def _new_lane(self, index: int) -> Lane:
        name = f"dtsweep-lane-{index}-{os.urandom(4).hex()}"
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = (
            ray.remote(num_cpus=0)(Session)
            .options(
                name=name, scheduling_strategy=here, runtime_env={"env_vars": _train_settings(self._settings[index])}
            )
            .remote(self._settings[index])
        )
        return Lane(actor=actor, name=name)

    def _revive(self, lane: Lane) -> None:
        fresh = self._new_lane(self._lanes.index(lane))
        lane.actor, lane.name = fresh.actor, fresh.name


def _train_settings(settings: Settings) -> dict[str, str]:
    """The environment of a session, which Ray Train reads."""
    return {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": f"{settings.node_timeout_s:g}",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "3",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }


class _StopWatch(tune.Callback):
    """Ends a Tuner between two of its steps, where nothing is half stored."""

    def __init__(self, heard: list[int], scheduler: Scheduler) -> None:
        self._heard, self._scheduler = heard, scheduler

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self._heard:
            # First the lanes: Tune waits for its trials to end, and they wait for the lanes.
            self._scheduler.kill()
            raise Interrupted(self._heard[0])


def drive(scheduler: Scheduler) -> None:
    """Run Tuner after Tuner until nothing is left.

    Raises:
        Interrupted: a signal came; what was done is stored.
        StorageError: rows could not be stored.
    """
    os.environ |= TUNE_SETTINGS | {"TUNE_MAX_PENDING_TRIALS_PG": str(max(4, len(scheduler._lanes)))}
    address = ray.util.get_node_ip_address()
    place = tune.PlacementGroupFactory([{f"node:{address}": 0.001}])
    with _signals_heard() as heard, tempfile.TemporaryDirectory(prefix="dtsweep-tune-") as storage:
        while not scheduler.is_empty:
            scheduler.next_tuner()
            tuner = tune.Tuner(
                tune.with_resources(TrialRunner, place),
                tune_config=tune.TuneConfig(search_alg=scheduler, num_samples=10**6, reuse_actors=True),
                run_config=tune.RunConfig(
                    name=f"tuner-{time.monotonic_ns()}",
                    storage_path=storage,
                    verbose=0,
                    callbacks=[_StopWatch(heard, scheduler)],
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            )
            tuner.fit()
            if scheduler.failure is not None:
                raise scheduler.failure
        if heard:
            raise Interrupted(heard[0])


@contextmanager
def _signals_heard() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM instead of stopping wherever the driver happens to be."""
    heard: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            os._exit(128 + number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def groups_of(trials: Sequence[Trial], *, fresh: bool) -> list[list[Trial]]:
    """Split a plan's trials into those that share a launch, in its order."""
    groups: dict[Any, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.trial_id if fresh else (trial.repeat, trial.point.world), []).append(trial)
    return list(groups.values())


def storage_folder() -> Path:
    """A folder for what Ray Train leaves, on the driver's node."""
    return Path(tempfile.mkdtemp(prefix="dtsweep-train-"))
