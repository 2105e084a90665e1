"""Run in this process: one worker, no Ray; for debugging and fast errors."""

from __future__ import annotations

import bdb
import os
import signal
import time
from datetime import UTC, datetime

from dtsweep.driver.planned import PlannedRun
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.tally import RunTally
from dtsweep.driver.unmeasured import INTERRUPTED, Unmeasured
from dtsweep.errors import StorageError, SweepError
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rows import explaining_failure, other_devices
from dtsweep.plan.trial import groups_of


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
    plan = planned.plan
    profile = planned.options.profile
    queue = Queue(
        planned.sweep,
        groups_of(plan.to_run, fresh=False),
        canaries={},
        is_profiled=profile,
        fine=plan.fine,
    )
    try:
        _work_off(planned, queue, recorder)
    except StorageError as error:
        recorder.tally.storage_error = str(error)
    return recorder.tally


def _work_off(planned: PlannedRun, queue: Queue, recorder: Recorder) -> None:
    from dtsweep.worker.attempt import run_attempt
    from dtsweep.worker.in_process import only_rank

    session = f"{time.strftime('%Y%m%dT%H%M%S')}-in-process-{os.urandom(3).hex()}"
    with only_rank(planned.sweep) as context:
        facts = {0: context.facts}
        if message := other_devices(facts, known_devices=planned.known_devices):
            raise SweepError(message)
        while not queue.is_empty:
            began = time.monotonic()
            started_at = datetime.now(UTC)
            trial, task = queue.next(0, now=began, rivals=recorder.rivals)
            recorder.began(trial)
            try:
                results = {0: run_attempt(context, task)}
            except (KeyboardInterrupt, bdb.BdbQuit):
                cancelled = Unmeasured(
                    trial=trial,
                    task=task,
                    started_at=started_at,
                    status="cancelled",
                    reason=INTERRUPTED,
                )
                recorder.store_unmeasured([cancelled])
                recorder.tally.signal_number = signal.SIGINT
                return
            wall_s = time.monotonic() - began
            status, reason = explaining_failure(results)
            result = AttemptResult(
                status=status,
                reason=reason,
                facts=facts,
                results=results,
                session=session,
                trial_s=wall_s,
            )
            recorder.store(trial, task, result, started_at=started_at, wall_s=wall_s)
            pruned = queue.prune(trial, status)
            skipped = [Unmeasured(trial=t, status="skipped", reason=why) for t, why in pruned]
            recorder.store_unmeasured(skipped)
            queue.ended(0, trial, task, status, session_has_ended=False)
