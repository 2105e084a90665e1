"""Writes the record of a run into its results, on a thread, as long as the run lives.

A place that does not answer delays the record alone: it is written again later. The last record
goes the way of the rows, so that it is kept locally if the place is away at the end.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtsweep.driver.progress import Progress
from dtsweep.errors import StorageError, error_line
from dtsweep.results.outbox import Outbox
from dtsweep.results.run_record import FOLDER, MOST_POINTS, SUFFIX, RunRecord
from dtsweep.results.storage import StoredFile
from dtsweep.results.store import Results
from dtsweep.secret import without_secrets
from dtsweep.sweep.settings import Sweep

_BEAT_S = 20.0
"""Interval at which the record of a live run is written again."""

_APART_S = 5.0
"""Shortest interval between two records, whatever has changed."""

_JOINED_S = 5.0
"""Time limit for a record that is on its way when the run ends."""


class RunWriter:
    """The record of a run that is under way."""

    def __init__(
        self,
        results: Results,
        outbox: Outbox,
        progress: Progress,
        *,
        run_id: str,
        sweep: Sweep,
        max_hours: float | None = None,
    ) -> None:
        self.node_account: Callable[[], Mapping[str, Any]] = dict
        """Fields of the record on nodes and money. It is called from any thread, and must answer
        at once: it asks nothing of Ray, which may be gone."""
        self._results = results
        self._outbox = outbox
        self._progress = progress
        self._environment = sweep.resources.environment
        now = time.time()
        self._record = RunRecord(
            run_id=run_id,
            sweep=sweep.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=now,
            updated_at=now,
            max_hours=max_hours,
        )
        self._changed = threading.Event()
        self._is_over = threading.Event()
        self._last: StoredFile | None = None
        self._said: set[str] = set()
        """Lines that were said: each is said once."""
        self._thread = threading.Thread(target=self._work, name="dtsweep-record", daemon=True)

    def list_points(self, points: Sequence[str]) -> None:
        """Add the points that the run is to measure, unless they are too many; before `start`."""
        if len(points) <= MOST_POINTS:
            self._record = replace(self._record, points=points)

    def start(self) -> None:
        """Begin to write."""
        self._progress.listen(self._changed.set)
        self._thread.start()

    def end(self, ended_as: str, reason: str | None = None) -> None:
        """Store the record a last time; called again, it does nothing.

        Args:
            ended_as: as `RunRecord.ended_as`.
            reason: error of a run that has failed.
        """
        if self._is_over.is_set():
            return
        self._is_over.set()
        self._changed.set()
        self._thread.join(_JOINED_S)
        now = time.time()
        reason = reason and without_secrets(reason, self._environment)
        # What is still running ends with the run.
        ended = {"ended_at": now, "ended_as": ended_as, "reason": reason, "running": ()}
        self._last = self._file(**ended)
        try:
            if self._outbox.has_failed:
                self._results.write([self._last])
            else:
                self._outbox.put_extra("the record of the run", [self._last])
        except StorageError:  # of the rows, which the run says
            return

    def renew_certificate(self) -> None:
        """Store the certificate of a search that has nothing left to measure, if it is a new one.

        It is called in the place of `start` and `end`.
        """
        certificate = self._progress.standing()["certificate"]
        stored = None
        for run in self._results.run_records():
            stored = run.record.certificate
        if certificate is not None and certificate != stored:
            self.start()
            self.end("done")

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._changed.clear()
            self._write(self._file())
            self._is_over.wait(_APART_S)
            if not self._is_over.is_set():
                self._changed.wait(_BEAT_S - _APART_S)
        if self._last is not None:
            # The last record is stored already, and an older one may have come after it.
            self._write(self._last)

    def _write(self, file: StoredFile) -> None:
        try:
            self._results.write([file])
        except StorageError as error:
            # Of an outage the outbox says a line.
            if not error.may_pass:
                self._say_once(f"the record of the run is not stored: {error}")

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._progress.say(line)

    def _file(self, **ended: Any) -> StoredFile:
        """The record by now."""
        standing = {**self._progress.standing(), "updated_at": time.time(), **ended}
        record = replace(self._record, **standing)
        try:
            record = replace(record, **self.node_account())
        except Exception as error:  # noqa: BLE001  # no number, whatever it is, may end the run
            self._say_once(f"the record of the run lacks nodes and cost: {error_line(error)}")
        return StoredFile(FOLDER, f"{record.run_id}{SUFFIX}", record.to_json())
