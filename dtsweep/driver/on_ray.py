"""Run on a Ray cluster, private or not.

Connects, has `prepare` lay out the plan and `tuner` run it, and stores the end of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from dtsweep.cluster.capacity import Cluster
from dtsweep.cluster.connect import connected
from dtsweep.cluster.heartbeat import ClusterGoneError, Heartbeat, heartbeat_of_ray, watched
from dtsweep.cluster.node_account import NodeAccount
from dtsweep.cluster.ray_nodes import lives_on_ray
from dtsweep.cluster.run_folders import TRAIN_PREFIX, remove_run_folder, run_folder
from dtsweep.cluster.shipping import own_modules, pickled_workload
from dtsweep.cluster.visit import refuse_other_versions
from dtsweep.driver.attempts import Attempts
from dtsweep.driver.budget import CUT, BudgetSpentError
from dtsweep.driver.members import trials_of_attempt
from dtsweep.driver.placement import StayingNodes
from dtsweep.driver.planned import PlannedRun
from dtsweep.driver.prepare import Prepared, fewer_sessions, lay_out, prepare, resources_of_worker
from dtsweep.driver.signals import Interrupted, signals_noted
from dtsweep.driver.supply import Supply
from dtsweep.driver.tally import RunTally
from dtsweep.driver.tuner import run_tuners, stopped_on_error
from dtsweep.driver.unmeasured import INTERRUPTED, Unmeasured
from dtsweep.errors import StorageError, error_line
from dtsweep.plan.plan import Plan
from dtsweep.serving.apps import check_serve, leave_cluster
from dtsweep.session.session_settings import Code, Settings
from dtsweep.session.trainer import train_settings
from dtsweep.sweep.settings import Sweep

_STOPPED = "{} has stopped, or can't be reached any more"

_LAST_WORDS_S = 5.0
"""Time limit to store what waits where Ray hangs after its cluster has stopped."""


def run_on_ray(planned: PlannedRun) -> RunTally:
    """Run a plan on the Ray that its options name."""
    folder = None
    if planned.sweep.file:
        folder = planned.sweep.file.parent
    # Before anything starts: a workload that can't travel is refused in a moment.
    code = _code_of(planned.sweep)
    for_train = train_settings(planned.options.node_timeout_s, is_private=True)
    with (
        run_folder(TRAIN_PREFIX) as storage,
        connected(
            planned.options.address,
            folder=folder,
            modules=own_modules(planned.sweep),
            environment=for_train,
        ) as cluster,
        # After Ray has started: it takes SIGTERM for itself.
        signals_noted() as signals,
    ):
        stopped = _STOPPED.format(cluster.name)
        heartbeat = heartbeat_of_ray()

        def last_words() -> None:
            stored = "what was done is stored; the same command goes on"
            if planned.record is not None:
                planned.record.end("failed", stopped)
            try:
                planned.outbox.close(_LAST_WORDS_S)
            except StorageError as error:
                stored = str(error)
            planned.progress.say(f"dtsweep: {stopped}; {stored}")
            for left in filter(None, (storage, cluster.folder)):
                remove_run_folder(left)

        # From the first: whatever Ray is asked may not come back.
        with watched(heartbeat, last_words=last_words, exit_code=4) as cluster_gone:
            for note in (f"using {cluster.described()}", *cluster.notes):
                planned.progress.say(note)
            if not cluster.is_private:
                refuse_other_versions(cluster, tell=planned.progress.say)
            prepared = prepare(planned.sweep, planned.plan, cluster)
            if fewer := fewer_sessions(planned.sweep, prepared):
                planned.progress.say(fewer)
            prices = planned.options.prices
            planned.take_account(
                NodeAccount(
                    lives_on_ray(resources_of_worker(prepared.sweep), prices),
                    prices=prices,
                    say=planned.progress.say,
                    shares_nodes=prepared.sweep.resources.share_nodes,
                )
            )
            settings = _slot_settings(planned, prepared, cluster, code=code, storage=str(storage))
            with _serve_left(planned, cluster):
                tally = _drive(
                    planned,
                    prepared,
                    settings,
                    heartbeat=heartbeat,
                    cluster_gone=cluster_gone,
                    signals=signals,
                )
            if tally.cluster_error is None:
                _leave(planned, cluster)
            return tally


def _code_of(sweep: Sweep) -> Code:
    """Code of the workload, as it travels; a run that can't serve its open loops is refused."""
    if "rate" in sweep.axes:
        check_serve()
    return pickled_workload(sweep)


@contextmanager
def _serve_left(planned: PlannedRun, cluster: Cluster) -> Iterator[None]:
    """At the end, end what the run has started of Ray Serve on a cluster that goes on."""
    try:
        yield
    finally:
        if "rate" in planned.sweep.axes and not cluster.is_private:
            try:
                leave_cluster()
            except Exception as error:  # noqa: BLE001  # the run has ended, whatever the cluster does
                planned.progress.say(f"Ray Serve is not cleaned up: {error_line(error)}")


def _leave(planned: PlannedRun, cluster: Cluster) -> None:
    """Leave a cluster as it was; say what the nodes have cost, and what those that stay up cost."""
    planned.budget.close()
    account = planned.budget.account
    if account is None:
        return
    lines = account.words()
    if cluster.autoscaler is not None:
        lines += account.words_on_nodes_left(
            "the autoscaler takes them away", idle_timeout_s=cluster.autoscaler.idle_timeout_s
        )
    elif not cluster.is_private:
        lines += account.words_on_nodes_left("you stop them", idle_timeout_s=None)
    for line in lines:
        planned.progress.say(line)


def _drive(
    planned: PlannedRun,
    prepared: Prepared,
    settings: Sequence[Settings],
    *,
    heartbeat: Heartbeat,
    cluster_gone: threading.Event,
    signals: list[int],
) -> RunTally:
    recorder = planned.recorder(prepared.sweep)
    queue = planned.queue(prepared.sweep, recorder.sources, slots=len(settings))
    supply = Supply(planned, queue, recorder, lay_out=partial(lay_out, prepared))
    attempts: Attempts | None = None
    # A single session uses all nodes.
    nodes = None
    if len(settings) > 1:
        shares_nodes = prepared.sweep.resources.share_nodes
        nodes = StayingNodes(resources_of_worker(prepared.sweep), shares_nodes=shares_nodes)
    try:
        with _raises_cluster_gone(heartbeat):
            attempts = Attempts(
                queue,
                settings,
                recorder,
                supply=supply,
                nodes=nodes,
                account=planned.budget.account,
                head_answers=heartbeat.answers,
            )
        with stopped_on_error(attempts), _raises_cluster_gone(heartbeat):
            with planned.progress:
                run_tuners(
                    attempts,
                    signals,
                    cluster_gone,
                    budget=planned.budget,
                    storage=settings[0].storage,
                )
            recorder.store_logs(attempts.close(planned.progress.say))
    except Interrupted as interrupted:
        recorder.tally.signal_number = interrupted.signal_number
        cancelled = _unstored(attempts, status="cancelled", reason=INTERRUPTED)
        recorder.store_unmeasured(cancelled)
    except BudgetSpentError:
        reason = CUT.format(planned.budget.what_is_over())
        cut = _unstored(attempts, status="budget", reason=reason)
        supply.note_cut([unmeasured.trial for unmeasured in cut])
        recorder.store_unmeasured(cut)
    except StorageError as error:
        recorder.tally.storage_error = str(error)
    except ClusterGoneError:
        recorder.tally.cluster_error = _STOPPED.format(prepared.cluster.name)
        lost = _unstored(attempts, status="node_lost", reason="the cluster has stopped")
        recorder.store_unmeasured(lost)
    return recorder.tally


def _unstored(attempts: Attempts | None, *, status: str, reason: str) -> list[Unmeasured]:
    """The attempts without a row, which ended with the run; none where they were never begun."""
    if attempts is None:
        return []
    return [
        Unmeasured(
            trial=trial,
            task=task,
            started_at=running.started_at,
            status=status,
            reason=reason,
            columns=attempts.columns_of_cut(running),
        )
        for running in attempts.unstored
        for trial, task in trials_of_attempt(running.trial, running.task)
    ]


@contextmanager
def _raises_cluster_gone(heartbeat: Heartbeat) -> Iterator[None]:
    """Raise `ClusterGoneError` in place of an error due to a cluster that has stopped.

    Any call of Ray may fail then, with errors of its own, long before the cluster counts as gone.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if heartbeat.is_gone_for_good():
            raise ClusterGoneError from error
        raise


def _slot_settings(
    planned: PlannedRun, prepared: Prepared, cluster: Cluster, *, code: Code, storage: str
) -> list[Settings]:
    resources = prepared.sweep.resources
    if not cluster.is_private:
        # What lies next to the sweep file has travelled with the job.
        code = replace(code, folder=None)
    settings = Settings(
        code=code,
        cpus_per_worker=resources.cpus_per_worker or 1,
        gpus_per_worker=resources.gpus_per_worker or 0,
        environment=dict(resources.environment),
        node_timeout_s=planned.options.node_timeout_s,
        storage=storage,
        is_private=cluster.is_private,
        known_devices=planned.known_devices,
        nests=prepared.nests,
        is_autoscaled=cluster.autoscaler is not None,
    )
    return [settings] * resources.concurrent


def misfits_on(address: str, sweep: Sweep, plan: Plan) -> dict[str, str]:
    """Ask a cluster which trials of a plan don't fit on it; reasons by trial."""
    with connected(address, folder=None) as cluster:
        refused = lay_out(prepare(sweep, plan, cluster), plan).refused
    return {trial.trial_id: why for trial, why in refused}
