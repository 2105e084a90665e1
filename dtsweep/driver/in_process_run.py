"""Run in this process: one worker, no Ray; for debugging and fast errors."""

from __future__ import annotations

import bdb
import os
import signal
import socket
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dtsweep.cluster.node_account import NodeAccount, NodeLife
from dtsweep.driver.members import results_of_points, trials_of_attempt
from dtsweep.driver.planned import PlannedRun
from dtsweep.driver.queue import BatchLayout, Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.signals import signals_noted
from dtsweep.driver.supply import Supply
from dtsweep.driver.tally import RunTally
from dtsweep.driver.unmeasured import INTERRUPTED, Unmeasured
from dtsweep.errors import StorageError, SweepError
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import explaining_failure, memory_facts, other_devices
from dtsweep.plan.plan import Plan
from dtsweep.plan.trial import groups_of

if TYPE_CHECKING:
    from dtsweep.worker.rank import RankContext

_LEFT_STATE = (
    "this trial left something in this process that can't be undone ({}): the trials after it are "
    "flagged"
)


def run_in_process(planned: PlannedRun) -> RunTally:
    """Run a plan of points with one worker, here.

    Ctrl-C, or leaving the debugger, ends it and is stored.

    Raises:
        SweepError: the results are of another device, or this process is in a process group
            already.
    """
    planned.progress.say(
        "using this process: one worker, one launch; its rows are never compared with a cluster's"
    )
    recorder = planned.recorder(planned.sweep)
    queue = planned.queue(planned.sweep, recorder.sources)

    def in_order(plan: Plan) -> BatchLayout:
        # Canaries would watch this process alone.
        return BatchLayout(groups=groups_of(plan.to_run, fresh=False))

    supply = Supply(planned, queue, recorder, lay_out=in_order)
    machine = NodeLife(node_id=socket.gethostname(), node_type="this-machine", began=time.time())
    account = NodeAccount(
        lambda: [machine], prices=planned.options.prices, say=planned.progress.say
    )
    planned.take_account(account)
    try:
        _work_off(planned, queue, recorder, supply, account)
    except StorageError as error:
        recorder.tally.storage_error = str(error)
    account.close()
    recorder.say(account.words())
    return recorder.tally


def _result_of(context: RankContext, rank_result: RankResult, **attempt: Any) -> AttemptResult:
    """Result of an attempt of the only rank."""
    status, reason = explaining_failure({0: rank_result})
    return AttemptResult(
        status=status, reason=reason, facts={0: context.facts}, results={0: rank_result}, **attempt
    )


def _work_off(
    planned: PlannedRun, queue: Queue, recorder: Recorder, supply: Supply, account: NodeAccount
) -> None:
    from dtsweep.session.attempt import run_attempt
    from dtsweep.session.in_process import only_rank
    from dtsweep.worker.step_watch import StepWatch

    session = f"{time.strftime('%Y%m%dT%H%M%S')}-in-process-{os.urandom(3).hex()}"
    is_measuring = threading.Event()
    with (
        only_rank(planned.sweep) as rank,
        signals_noted(is_measuring.is_set) as signals,
        StepWatch(planned.progress.say) as watch,
    ):
        context = replace(rank, watch=watch)
        if message := other_devices({0: context.facts}, known_devices=planned.known_devices):
            raise SweepError(message)
        flags: tuple[str, ...] = ()
        while not signals and supply.refill():
            began = time.monotonic()
            started_at = datetime.now(UTC)
            trial, task = queue.next(0, now=began)
            members = trials_of_attempt(trial, task)
            for one, _ in members:
                recorder.began(one)
            account.handed_out(0, session=session)
            is_measuring.set()
            try:
                rank_result = run_attempt(context, task)
            except (KeyboardInterrupt, bdb.BdbQuit):
                if not signals:  # the end of a debugger
                    signals.append(signal.SIGINT)
                cut = [
                    Unmeasured(trial=one, task=of_one, status="cancelled", reason=INTERRUPTED)
                    for one, of_one in members
                ]
                recorder.store_unmeasured(
                    replace(one, started_at=started_at, columns=account.cut(0)) for one in cut
                )
                break
            finally:
                is_measuring.clear()
            wall_s = time.monotonic() - began
            result = _result_of(context, rank_result, flags=flags, session=session, trial_s=wall_s)
            charge = account.ended(0, result, wall_s=wall_s, is_trial=True)
            results = results_of_points(result, [of_one for _, of_one in members])
            own_s = wall_s / len(results)
            for (one, of_one), own in zip(members, results, strict=True):
                recorder.store(one, of_one, own, started_at=started_at, wall_s=own_s, charge=charge)
                recorder.store_pruned(queue.prune(one, own.status, memory_facts(own.results)))
                queue.ended(0, one, of_one, own.status, session_has_ended=False)
            if rank_result.needs_new_process and not flags:
                # There is no other process: what goes on disturbs all later trials.
                flags = ("left_state",)
                planned.progress.say(_LEFT_STATE.format("; ".join(rank_result.left_state)))
        if signals:
            recorder.tally.signal_number = signals[0]
