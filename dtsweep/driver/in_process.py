"""The run in this very process: one worker, no Ray; for a debugger, and to see a mistake at once."""

from __future__ import annotations

import bdb
import os
import signal
import time
from datetime import UTC, datetime

from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.errors import SweepError
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rows import explaining_failure, other_devices
from dtsweep.sweep.settings import Sweep


def run_in_process(sweep: Sweep, queue: Queue, recorder: Recorder, *, known_devices: frozenset[str]) -> None:
    """Work off a queue of one lane; Ctrl-C, or leaving the debugger, ends it after storing what was done.

    Raises:
        SweepError: the results are of another device.
        StorageError: rows could not be stored.
    """
    from dtsweep.worker.attempt import run_attempt
    from dtsweep.worker.in_process import only_rank, without_deadline

    session = f"{time.strftime('%Y%m%dT%H%M%S')}-in-process-{os.urandom(3).hex()}"
    with only_rank(sweep) as context:
        facts = {0: context.facts}
        if message := other_devices(facts, known=known_devices):
            raise SweepError(message)
        while not queue.is_empty:
            began, started_at = time.monotonic(), datetime.now(UTC)
            trial, task = queue.next(0, now=began, rivals=recorder.rivals)
            try:
                results = {0: run_attempt(context, without_deadline(task))}
            except (KeyboardInterrupt, bdb.BdbQuit):
                recorder.store_cancelled(trial, task, started_at)
                recorder.tally.signal_number = signal.SIGINT
                return
            wall_s = time.monotonic() - began
            result = AttemptResult(
                **explaining_failure(results), facts=facts, results=results, session=session, trial_s=wall_s
            )
            status = recorder.store(trial, task, result, started_at=started_at, wall_s=wall_s)
            queue.ended(0, trial, task, status, session_has_ended=False)
