"""Files on their way to the results: stored in order, by a thread, while measuring goes on.

Usually a file is stored within a fraction of a second, and the caller waits for that. If the place
does not answer, the files are kept in a local spool, and the thread tries again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dtsweep.errors import StorageError, error_line
from dtsweep.results.spool import Spool, files_in, is_extra, left_entries, remove_entry
from dtsweep.results.storage import StoredFile
from dtsweep.results.store import Results
from dtsweep.results.time_limit import call_within
from dtsweep.text import count_of

_PATIENCE_S = 1.0
"""Time that a caller waits for its files to be stored, before they are kept locally."""

_SILENT_S = 5.0
"""Time after which a line says that the place does not answer."""

_AGAIN_S = (1.0, 2.0, 5.0, 10.0)
"""Seconds between attempts to store the same files; the last one is repeated."""

_COMPACTED_S = 10.0
"""Time that a caller waits for many small files to be merged."""

CLOSE_S = 60.0
"""Time limit at the end of a run for what still waits."""


@dataclass(kw_only=True, eq=False)
class _Parcel:
    """Files that are stored together."""

    files: Sequence[StoredFile]
    name: str | None = None
    """Of an extra, without which a run goes on; None for rows."""

    entry: Path | None = None
    """Its entry in the spool."""


class Outbox:
    """Stores the files of one run in their order."""

    def __init__(
        self, results: Results, say: Callable[[str], None], *, roots: Sequence[Path] | None = None
    ) -> None:
        """Store nothing yet.

        Args:
            results: where the files go.
            say: takes lines for the user, from any thread.
            roots: folders in which the spool may lie; by default those of `spool`.
        """
        self._results = results
        self._say = say
        self._roots = roots
        self._spool = Spool(results.storage.identity, roots=roots)
        self._waiting: deque[_Parcel] = deque()
        """Not stored yet; the thread stores the first."""
        self._changed = threading.Condition()
        self._failure: StorageError | None = None
        """That ended the thread."""
        self._is_closed = False
        self._is_silent = False
        """True if a line said that the place does not answer."""
        self._thread = threading.Thread(target=self._work, name="dtsweep-outbox", daemon=True)

    @property
    def local_root(self) -> str | None:
        """Path of the results on this machine; None of an object store."""
        return self._results.storage.local_root

    def __str__(self) -> str:
        """Give the place of the results."""
        return str(self._results)

    @property
    def is_idle(self) -> bool:
        """True if everything is stored."""
        return not self._waiting

    @property
    def has_failed(self) -> bool:
        """True if nothing can be stored any more, so that it does not try."""
        return self._failure is not None

    def try_writing(self) -> None:
        """Write something and delete it again, before anything is measured for nothing.

        Raises:
            StorageError: the place can't be written to.
        """
        self._results.storage.try_writing("trials")

    def put(self, files: Sequence[StoredFile]) -> None:
        """Have files stored; return once they are stored or kept locally.

        Raises:
            StorageError: the results can't be written any more. It says where these files are kept,
                or that they are lost.
        """
        self._put(_Parcel(files=files))

    def put_extra(self, name: str, files: Sequence[StoredFile]) -> None:
        """Have files stored without which a run goes on, such as a log; say if they can't be."""
        if self._failure is None:
            self._put(_Parcel(files=files, name=name))

    def _put(self, parcel: _Parcel) -> None:
        with self._changed:
            if not self._thread.ident:
                self._thread.start()
            if self._failure is None:
                # Files that waited in vain already: these come after them.
                is_behind = any(waiting.entry is not None for waiting in self._waiting)
                self._waiting.append(parcel)
                self._changed.notify_all()
                if not is_behind:
                    self._changed.wait_for(lambda: self._is_over(parcel), _PATIENCE_S)
            has_said = False
            while not self._is_over(parcel) and (problem := self._keep(parcel)) is not None:
                if not has_said:
                    self._say(f"{self._results} does not answer, and {problem}: measuring waits")
                    has_said = True
                self._changed.wait_for(lambda: self._is_over(parcel), _PATIENCE_S)
            if self._failure is not None:
                raise self._after_failure(parcel) from self._failure

    def compact_if_scattered(self) -> None:
        """Merge the many small files of the last commits, if nothing waits.

        The caller waits, so that nothing is measured meanwhile, but not long.
        """
        if self._results.is_scattered and self.is_idle:
            with suppress(TimeoutError):  # it goes on
                call_within(_COMPACTED_S, self.compact)

    def compact(self) -> None:
        """Merge many small files into few; where that fails they stay as they are."""
        try:
            self._results.compact()
        except Exception as error:  # noqa: BLE001  # all rows are stored, and the run goes on without it
            reason = error_line(error)
            if isinstance(error, StorageError):
                reason = str(error)
            self._say(f"results stay in more files than they need: {reason}")

    def close(self, within_s: float = CLOSE_S) -> None:
        """Wait until everything is stored, and end the thread.

        Raises:
            StorageError: some of it was not; it says where it is kept.
        """
        try:
            with self._changed:
                if self._waiting and self._failure is None:
                    self._say(f"waiting up to {within_s:.0f} s for {self._results}")
                self._changed.wait_for(lambda: not self._waiting or bool(self._failure), within_s)
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
                left = [parcel for parcel in self._waiting if parcel.name is None]
                kept = [(p, self._keep(p)) for p in self._waiting if p.entry is None]
                problems = [problem for p, problem in kept if problem and p.name is None]
                # Another run may send them from now on.
                self._waiting.clear()
            folder = self._spool.folder
            self._spool.close()
        if count := len(left):
            reason = self._failure or f"{self._results} does not answer"
            where = f"wait in {folder}: the same command sends them"
            if problems:
                where = f"could not be stored, and {problems[-1]}"
            raise StorageError(f"{reason}; {count_of(count, 'attempt')} {where}")

    def send_left(self) -> None:
        """Store what runs that have ended left in their spools.

        Raises:
            StorageError: it can't be stored.
        """
        entries = left_entries(self._results.storage.identity, roots=self._roots)
        for entry in entries:
            try:
                files = files_in(entry)
            except (OSError, ValueError) as error:
                self._say(f"left out: {error}")
                continue
            try:
                self._results.write(files)
            except StorageError as error:
                if error.may_pass or not is_extra(entry):
                    raise
                self._say(f"a log is not stored: {error}")
            remove_entry(entry)
        if rows := [entry for entry in entries if not is_extra(entry)]:
            attempts = count_of(len(rows), "attempt")
            self._say(f"stored {attempts} that an earlier run had kept in {rows[0].parent}")

    def _is_over(self, parcel: _Parcel) -> bool:
        return parcel not in self._waiting or self._failure is not None

    def _keep(self, parcel: _Parcel) -> str | None:
        """Keep a parcel in the spool; return the reason if it can't be kept now."""
        if not self._spool.has_room(parcel.files):
            return f"the local spool {self._spool.folder} is full"
        try:
            parcel.entry = self._spool.add(parcel.files, is_extra=parcel.name is not None)
        except StorageError as error:
            return str(error)
        return None

    def _after_failure(self, parcel: _Parcel) -> StorageError:
        """Error for a parcel that can't be stored, once it is kept as well as can be."""
        problem = None
        if parcel.entry is None:
            problem = self._keep(parcel)
        if problem is None:
            where = f"is kept in {self._spool.folder}: the same command sends it"
        else:
            where = f"is lost, since {problem}"
        if parcel in self._waiting:
            self._waiting.remove(parcel)
        return StorageError(f"{self._failure}; the last attempt {where}")

    def _work(self) -> None:
        try:
            self._store_all()
        except Exception as error:  # noqa: BLE001  # without this thread nothing would be stored
            with self._changed:
                self._failure = self._failure or StorageError(error_line(error))
                self._changed.notify_all()

    def _store_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._is_closed)
                if not self._waiting:
                    return
                parcel = self._waiting[0]
            error = self._store(parcel)
            if error is not None and parcel.name is not None:
                self._say(f"{parcel.name} is not stored: {error}")
                error = None
            with self._changed:
                if error is not None:
                    self._failure = error
                    self._changed.notify_all()
                    return
                if self._is_closed:  # what is left is another run's
                    return
                self._waiting.popleft()
                if parcel.entry is not None:
                    self._spool.remove(parcel.entry)
                if self._is_silent and not self._waiting:
                    self._is_silent = False
                    self._say(f"{self._results} answers again: everything is stored")
                self._changed.notify_all()

    def _store(self, parcel: _Parcel) -> StorageError | None:
        """Store a parcel, trying again as long as that may help; return what ends it."""
        timer = threading.Timer(_SILENT_S, self._say_silent)
        timer.daemon = True
        timer.start()
        try:
            for pause_s in itertools.chain(_AGAIN_S, itertools.repeat(_AGAIN_S[-1])):
                try:
                    self._results.write(parcel.files)
                except StorageError as error:
                    if not error.may_pass or self._is_closed:
                        return error
                else:
                    return None
                time.sleep(pause_s)
        finally:
            timer.cancel()
        return None

    def _say_silent(self) -> None:
        if not self._is_silent and not self._is_closed:
            self._is_silent = True
            self._say(
                f"{self._results} does not answer; measuring goes on, and what is measured waits "
                f"in {self._spool.folder or 'memory'}"
            )
