"""Sends trials to a tracker while they are measured, by a process of its own.

The process (`dtsweep.cli.log_to`) reads what is stored. So a tracker that hangs, raises or is away
takes nothing from a trial, and no client is imported here.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from dtsweep.driver.python_process import start_python
from dtsweep.driver.tally import RunTally
from dtsweep.errors import without_credentials
from dtsweep.text import count_of
from dtsweep.trackers.destinations import Destination

COMMAND = "from dtsweep.cli.log_to import main; main()"

END_S = 20.0
"""Time limit for the last trials, once the run is over."""

FAILED_S = 5.0
"""That limit where the tracker has failed, or the user waits."""

READ_S = 1.0
"""Time limit for what the process has said, once it has ended."""


class TrackerFeed:
    """The process that sends the trials of a run."""

    def __init__(self, destination: Destination, results: str, say: Callable[[str], None]) -> None:
        """Start nothing yet.

        Args:
            destination: where trials go.
            results: where they are read.
            say: prints a line for the user.
        """
        self._destination = destination
        self._results = results
        self._say = say
        self._sent = 0
        self._problem: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, name="dtsweep-tracker", daemon=True)

    def start(self, axes: Iterable[str]) -> None:
        """Start the process; trials are named by these axes."""
        self._process = start_python(
            "-c", COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        task = {
            "results": self._results,
            "tracker": self._destination.tracker,
            "out": self._destination.out,
            "axes": list(axes),
            "began_s": time.time(),
        }
        self._tell(json.dumps(task) + "\n")
        self._reader.start()

    def end(self, tally: RunTally | None) -> None:
        """Wait for the last trials, but not long, and say how many were not sent.

        Args:
            tally: of the run; None if an error has ended it.
        """
        process = self._process
        if process is None:
            return
        is_hasty = self._problem is not None or tally is None or tally.signal_number is not None
        try:
            self._tell(None)
            if code := process.wait(FAILED_S if is_hasty else END_S):
                self._note(f"the process that sends to {self._destination} ended with code {code}")
        except subprocess.TimeoutExpired:
            self._note(f"{self._destination} does not answer")
        finally:
            with suppress(ProcessLookupError):
                # The service that W&B starts has a group of its own; it ends itself in seconds.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._reader.join(READ_S)
            # After a second Ctrl-C, too.
            self._say_unsent(tally)

    def _say_unsent(self, tally: RunTally | None) -> None:
        how = f"dtsweep export {shlex.quote(self._results)} --to {self._destination.tracker}"
        if self._destination.out is not None:
            how += f" --out {shlex.quote(without_credentials(self._destination.out))}"
        if tally is None:
            self._say(f"trials may be missing in {self._destination.tracker}; send them: {how}")
            return
        run = tally.statuses.total() - tally.statuses["skipped"]
        if unsent := run - self._sent:
            self._say(
                f"{count_of(unsent, 'trial')} of {run} not sent to {self._destination.tracker}; "
                f"send them: {how}"
            )

    def _tell(self, line: str | None) -> None:
        """Write a line to the process; None ends its input."""
        if self._process is None or self._process.stdin is None:
            return
        with suppress(BrokenPipeError):
            if line is None:
                self._process.stdin.close()
            else:
                self._process.stdin.write(line)
                self._process.stdin.flush()

    def _read(self) -> None:
        """Take what the process says, until it ends."""
        if self._process is None or self._process.stdout is None:
            return
        with self._process.stdout as lines:
            for line in lines:
                if not line.endswith("\n"):  # it was ended while it wrote
                    return
                said = json.loads(line)
                self._sent = said.get("sent", self._sent)
                if problem := said.get("problem"):
                    self._note(problem)

    def _note(self, problem: str) -> None:
        """Say the first problem, and no other."""
        if self._problem is None:
            self._problem = problem
            self._say(f"--log-to: {problem}; this changes no trial")
