"""Runs Ray Tune over the attempts: one attempt is one Tune trial, at most 500 to a Tuner."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import ray
from ray import tune
from ray.air._internal import usage
from ray.tune.search import Searcher

from dtsweep.cluster.heartbeat import ClusterGoneError
from dtsweep.driver.attempts import Attempts
from dtsweep.driver.budget import Budget, BudgetSpentError
from dtsweep.driver.signals import Interrupted

_TUNE_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Tune's own handler ends the run with exit code 0.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # The Parquet rows say what is done: Tune need not write its state.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # A process that ends is replaced; a trial that is lost with it says so in its row.
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    # What Tune asks of the head in each of its steps would never come back from a cluster that has
    # stopped.
    "TUNE_STATE_REFRESH_PERIOD": "1000000",
}
"""Environment of the driver, which Tune reads."""


_RUNNER_RESTARTS = 2
"""Number of times that Tune may replace the process of a waiting trial."""


_TRIALS_PER_TUNER = 500
"""A Tuner slows down and grows with its trials; a fresh one over the same sessions does not."""


class Scheduler(Searcher):  # type: ignore[misc]  # Ray has no types
    """Tune's search algorithm: Tune asks it for the next trial, and tells it how one ended.

    (Tune's own *schedulers* stop trials early, which `dtsweep.measure.stopping` does here.)
    """

    def __init__(self, attempts: Attempts) -> None:
        super().__init__()
        self._attempts = attempts
        self.handed_out = 0
        """Trials of this Tuner."""
        self.while_waiting: Callable[[], None] = lambda: None
        """Called where Tune is to wait although nothing runs: it then calls no callback."""

    def __getstate__(self) -> dict[str, Any]:
        """Be pickled empty: a Tuner writes a copy of its settings that nobody reads."""
        return {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Give Tune the next task: None to wait, FINISHED only when nothing runs any more."""
        attempts = self._attempts
        if self.handed_out >= _TRIALS_PER_TUNER or not attempts.goes_on():
            # The last attempts of other slots may be long.
            attempts.free_nodes()
            return None if attempts.running else Searcher.FINISHED
        task = attempts.begin_next(trial_id)
        if task is not None:
            self.handed_out += 1
        elif not attempts.running:
            self.while_waiting()
        return task

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Have the attempt's result fetched and stored."""
        self._attempts.end(trial_id, result or {})

    def save(self, checkpoint_path: str) -> None:
        """Keep nothing: the Parquet rows say what is done."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing, since nothing was kept."""


class _TrialRunner(tune.Trainable):  # type: ignore[misc]  # Ray's types are skipped
    """Tune's trainable for an attempt: its step has a slot run the task, and waits for the end."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take the first task."""
        self._config = config

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next one, in the same process."""
        self._config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """Run it to its end; the slot keeps the result until `running.fetched` asks for it."""
        ended = {tune.result.DONE: True}
        # A slot that was killed: by us, where it is stuck or the run interrupted, or by its node's
        # lack of memory.
        died = {"slot_died": True, **ended}
        try:
            slot = ray.get_actor(self._config["slot"], namespace=self._config["namespace"])
        except ValueError:  # there is none of its name any more
            return died
        try:
            ray.get(slot.run.remote(self._config["task"], self._config["places"]))
        except ray.exceptions.RayActorError:
            return died
        return ended

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Keep nothing: a measurement is never resumed half-way."""


class EachStep(tune.Callback):  # type: ignore[misc]  # as above
    """Looks before each step of a Tuner for what ends a run, when nothing is half stored."""

    def __init__(
        self,
        attempts: Attempts,
        signals: list[int],
        cluster_gone: threading.Event,
        *,
        budget: Budget,
    ) -> None:
        self._attempts = attempts
        self._signals = signals
        self._cluster_gone = cluster_gone
        self._budget = budget

    def __getstate__(self) -> dict[str, Any]:
        """Be pickled empty, as the scheduler is."""
        return {}

    def setup(self, *args: Any, **info: Any) -> None:
        """Have SIGUSR1 end the run as SIGTERM does."""
        # Tune has just put a handler of its own there, which ends a Tuner as if all were done.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGTERM))

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """End the run after a signal, at its budget, or without its cluster; else watch slots."""
        # Calls of Ray may never return once its cluster is gone.
        if self._cluster_gone.is_set():
            raise ClusterGoneError
        if self._signals:
            # First the slots: Tune waits for its trials to end, and they wait for the slots.
            self._attempts.stop()
            raise Interrupted(self._signals[0])
        if self._budget.account is not None:
            self._budget.account.refresh()
        if self._budget.has_limit and self._attempts.running and self._budget.is_over():
            self._attempts.stop()
            raise BudgetSpentError
        runners = {trial.trial_id: trial.temporary_state.ray_actor for trial in trials}
        self._attempts.watch(
            time.monotonic(), {name: runner for name, runner in runners.items() if runner}
        )


def run_tuners(
    attempts: Attempts,
    signals: list[int],
    cluster_gone: threading.Event,
    *,
    budget: Budget,
    storage: str,
) -> None:
    """Run Tuner after Tuner until nothing is left.

    Raises:
        Interrupted: a signal came; what was done is stored.
        ClusterGoneError: the cluster has stopped; likewise.
        BudgetSpentError: the budget was spent while trials ran; likewise.
        StorageError: rows could not be stored.
    """
    os.environ |= _TUNE_SETTINGS | {"TUNE_MAX_PENDING_TRIALS_PG": str(max(4, attempts.slots))}
    address = ray.util.get_node_ip_address()
    own_node_id = ray.get_runtime_context().get_node_id()
    # On this very node: several nodes may share an address.
    place = tune.PlacementGroupFactory(
        [{f"node:{address}": 0.001}], bundle_label_selector=[{"ray.io/node-id": own_node_id}]
    )
    scheduler = Scheduler(attempts)
    each_step = EachStep(attempts, signals, cluster_gone, budget=budget)
    scheduler.while_waiting = partial(each_step.on_step_begin, 0, [])
    while attempts.has_more():
        scheduler.handed_out = 0
        tuner = tune.Tuner(
            tune.with_resources(_TrialRunner, place),
            tune_config=tune.TuneConfig(search_alg=scheduler, num_samples=10**6, reuse_actors=True),
            run_config=tune.RunConfig(
                name=f"tuner-{time.monotonic_ns()}",
                storage_path=f"{storage}/tune",
                verbose=0,
                callbacks=[each_step],
                failure_config=tune.FailureConfig(max_failures=_RUNNER_RESTARTS),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        with _without_imports_of_trackers():
            tuner.fit()
        if attempts.failure is not None:
            raise attempts.failure
        if attempts.running and not signals:
            # A slot that is busy for ever would be waited for without end.
            raise RuntimeError(
                f"Ray Tune ended with {len(attempts.running)} trials under way; run it again"
            )
    if signals:
        raise Interrupted(signals[0])


@contextmanager
def _without_imports_of_trackers() -> Iterator[None]:
    """Keep Tune from importing wandb, mlflow and comet to count its callbacks for Ray's telemetry.

    Where they are installed, that takes more than a second, and wandb makes temporary folders that
    stay behind if the process is killed.
    """
    count_callbacks = usage.tag_callbacks
    usage.tag_callbacks = lambda _: False
    try:
        yield
    finally:
        usage.tag_callbacks = count_callbacks


@contextmanager
def stopped_on_error(attempts: Attempts) -> Iterator[None]:
    """End the sessions of a run that ends by an error or a signal, wherever it came.

    Not where the cluster is gone: what is then asked of Ray may never come back.
    """
    try:
        yield
    except ClusterGoneError:
        raise
    except BaseException:
        attempts.stop()
        raise
