"""The process of `run --log-to`: sends trials to a tracker as they are stored.

The driver starts it (`dtsweep.driver.tracker_feed`) and never waits for it while it measures. It
reads the results like any reader, at the lowest priority. Its standard input has what to do, and
ends with the run; its standard output says how many trials it has sent.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from dtsweep.cli.export import read_export
from dtsweep.driver.tracker_feed import END_S
from dtsweep.errors import StorageError, SweepError, error_line
from dtsweep.results.schema import IMPORTED

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.trackers.destinations import Destination, Tracker
    from dtsweep.trackers.exported import ExportedTrial

EVERY_S = 5.0
"""Least time between two looks at the results."""

SHARE = 0.1
"""Largest share of its time that it works in."""

LONGEST_S = 60.0
"""Most time between two tries at a tracker that fails."""

LAST_S = END_S + 5.0
"""Time limit for the last trials. The driver has a shorter one, unless it was killed."""


class TrialSender:
    """Sends the trials of one results folder to one tracker."""

    def __init__(
        self, where: str, destination: Destination, *, axes: list[str], began_s: float
    ) -> None:
        """Read nothing yet.

        Args:
            where: results.
            destination: where trials go.
            axes: of the sweep; trials are named by them.
            began_s: Unix time at which the run began: later trials are its own.
        """
        from dtsweep.results.store import Results

        self._store = Results(where, keeps_files=True)
        self._steps_store = Results(where)
        self._destination = destination
        self._named_by = [_column_of(axis) for axis in axes]
        self._began = datetime.fromtimestamp(began_s, UTC)
        self._tracker: Tracker | None = None
        self._sent: set[str] = set()
        """Attempts that the tracker has."""

        self._sent_of_run: set[str] = set()
        """Those of them that are of this run."""

    def send(self, *, is_last: bool, say: Callable[[int], object]) -> None:
        """Send the trials that are new.

        Args:
            is_last: send attempts, too, that the run may repeat.
            say: called with the number of trials of the run that the tracker has, as it grows.

        Raises:
            StorageError: the results, or the tracker, can't be used now.
            SweepError: the tracker can't be used.
        """
        from dtsweep.trackers.destinations import send_trials

        if not self._store.files("trials"):  # the first trial has not ended yet
            return
        frame = self._trials(is_last=is_last)
        new = frame[~frame["attempt_id"].isin(self._sent)]
        of_run = set(frame.loc[frame["started_at"] >= self._began, "attempt_id"])
        if new.empty:
            return
        # All trials, since trackers describe columns; but steps of the new ones alone.
        export = read_export(self._steps_store, frame, steps_of=new, named_by=self._named_by)
        if self._tracker is None:
            self._tracker = self._destination.open(export)

        def note(trial: ExportedTrial) -> None:
            self._sent.add(trial.attempt_id)
            if trial.attempt_id in of_run:
                self._sent_of_run.add(trial.attempt_id)
                say(len(self._sent_of_run))

        for trial in export.trials:
            if self._tracker.has(trial):
                note(trial)
        send_trials(export, self._tracker, sent=note)

    def _trials(self, *, is_last: bool) -> pd.DataFrame:
        """Read the trials that were measured, or tried, by dtsweep itself."""
        from dtsweep.analysis.load import load
        from dtsweep.results.statuses import is_retried

        with warnings.catch_warnings(action="ignore"):  # the run says them
            frame = load(self._store)
        frame = frame[frame["harness"] != IMPORTED]
        ended = [
            status != "skipped" and (is_last or not is_retried(status, attempt=attempt))
            for status, attempt in zip(frame["status"], frame["attempt"], strict=True)
        ]
        return frame[ended]


def main() -> None:
    """Send trials until the standard input ends, and once more after that."""
    _lower_priority()
    out = _standard_output()
    task = json.loads(sys.stdin.readline())
    is_over = threading.Event()
    threading.Thread(target=_await_end, args=(is_over,), daemon=True).start()
    sender = _sender_of(task)
    pause_s = EVERY_S
    while True:
        is_last = is_over.is_set()
        began = time.monotonic()
        problem = _problem_of(sender, out, is_last=is_last)
        if problem is not None:
            _say(out, problem=problem)
        if is_last:
            # At once: clients wait for their servers at the end of a process.
            os._exit(0)
        pause_s = EVERY_S if problem is None else min(2 * pause_s, LONGEST_S)
        is_over.wait(max(pause_s, (time.monotonic() - began) / SHARE))


def _problem_of(sender: TrialSender, out: TextIO, *, is_last: bool) -> str | None:
    """Send what is new; return why that failed."""
    try:
        sender.send(is_last=is_last, say=lambda count: _say(out, sent=count))
    except (StorageError, SweepError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  # the next try may go well
        return error_line(error)
    return None


def _sender_of(task: dict[str, Any]) -> TrialSender:
    from dtsweep.trackers.destinations import Destination

    destination = Destination(tracker=task["tracker"], out=task["out"])
    return TrialSender(task["results"], destination, axes=task["axes"], began_s=task["began_s"])


def _await_end(is_over: threading.Event) -> None:
    """Set an event once the run is over; end this process if the last trials take too long."""
    sys.stdin.read()
    is_over.set()
    time.sleep(LAST_S)
    # Nobody else does this where the driver was killed.
    os._exit(1)


def _lower_priority() -> None:
    """Leave the CPUs to the run."""
    # Not SCHED_IDLE, as for the page: on busy CPUs a client would not even be imported in time.
    if hasattr(os, "nice"):
        os.nice(19)


def _standard_output() -> TextIO:
    """The standard output for this process's own lines; what clients print goes nowhere."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _say(out: TextIO, **said: Any) -> None:
    try:
        print(json.dumps(said), file=out, flush=True)
    except BrokenPipeError:  # the driver is gone; the trials are sent all the same
        return


def _column_of(axis: str) -> str:
    """Column of an axis: those of the environment share one.

    >>> _column_of("workload.layers"), _column_of("env.OMP_DYNAMIC")
    ('workload_layers', 'environment')
    """
    if axis.startswith("env."):
        return "environment"
    return axis.replace(".", "_")
