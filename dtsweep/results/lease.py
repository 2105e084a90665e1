"""Lease on a place of results: one run at a time measures there.

A run writes a file of its own into the folder `lease`, lists the folder, and yields if another live
run is there. Listings of disks and object stores show a file once it is written, so of two runs
that start at once at least one yields. The file is written again as long as the run lives.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dtsweep.errors import StorageError, SweepError, one_line
from dtsweep.results.local_files import OddFileError
from dtsweep.results.storage import Storage, StoredFile
from dtsweep.text import duration

FOLDER = "lease"

_SUFFIX = ".json"

_BEAT_S = 20.0
"""Interval at which a live run writes its file again."""

_STALE_S = 100.0
"""Age of a lease from which on its run counts as ended, if nothing else shows that it lives."""

_JOINED_S = 5.0
"""Time limit for a sign of life that is under way at the end of a run."""

_HELD: set[str] = set()
"""Files of the leases that runs of this process hold."""

_TRIES = 10
"""Attempts at a lease where another run starts at the same moment."""


@contextmanager
def leased(
    storage: Storage,
    say: Callable[[str], None],
    *,
    run_id: str | None = None,
    beat_s: float = _BEAT_S,
    stale_s: float = _STALE_S,
) -> Iterator[None]:
    """Hold the lease on a place while this context lasts.

    Args:
        storage: the place.
        say: takes lines for the user.
        run_id: name of the record of the run; None where it writes none.
        beat_s: interval of signs of life.
        stale_s: age of a lease whose run counts as ended.

    Raises:
        SweepError: another run holds it; the message names it.
        StorageError: the place can't be written to or read.
    """
    lease = _Lease(storage, say, run_id=run_id, stale_s=stale_s)
    lease.take()
    ended = threading.Event()
    beating = threading.Thread(
        target=lease.beat, args=(ended, beat_s), name="dtsweep-lease", daemon=True
    )
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join(_JOINED_S)
        lease.give_back()


@dataclass(frozen=True, kw_only=True)
class LiveRun:
    """The run that holds the lease on a place."""

    run_id: str | None
    """Name of its record; None if it writes none."""

    host: str
    pid: int
    since: str
    """Time at which it took the lease, ISO 8601 in UTC."""

    silent_s: float
    """Seconds since its last sign of life."""

    @property
    def description(self) -> str:
        """The run in words."""
        return (
            f"a run on {self.host} (process {self.pid}, since {self.since}, last sign of life "
            f"{duration(self.silent_s)} ago)"
        )


def holder(storage: Storage) -> LiveRun | None:
    """The run that holds the lease on a place; None without one. Writes nothing."""
    ages = storage.ages(FOLDER)
    for name, age_s in sorted(ages.items()):
        owner = _owner(storage, name)
        if owner is not None and _lives(owner, name, age_s=age_s, stale_s=_STALE_S):
            return _run_of(owner, age_s=age_s)
    return None


class _Lease:
    """The file of this run among those of others."""

    def __init__(
        self, storage: Storage, say: Callable[[str], None], *, run_id: str | None, stale_s: float
    ) -> None:
        self._storage = storage
        self._say = say
        self._stale_s = stale_s
        self._name = ""
        self._owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process": _process_of(os.getpid()),
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "run_id": run_id,
        }

    def take(self) -> None:
        """Write the file, unless another live run has one.

        A run first says that it wants the lease and looks at the others; then it says that it holds
        it, and looks again. Of two runs at least the one that writes later sees the other.
        """
        try:
            self._take()
        except BaseException:
            self.give_back()
            raise

    def _take(self) -> None:
        other = None
        for _ in range(_TRIES):
            self._name = f"{uuid.uuid4().hex}{_SUFFIX}"
            _HELD.add(self._name)
            self._write(is_holder=False)
            others = self._live_runs()
            holders = [run for run in others if run.is_holder]
            if not others or (not holders and self._name < min(run.name for run in others)):
                self._write(is_holder=True)
                others = [run for run in self._live_runs() if run.is_holder]
                if not others:
                    return
            self.give_back()
            other = (holders or others)[0]
            if holders:
                break
            # Two runs that start at once try again, one after the other.
            time.sleep(random.uniform(0.1, 1.0))
        what = other.description if other else "another run"
        raise SweepError(
            f"{self._storage.shown} is in use: {what}; wait for its end, or give another --results"
        )

    def beat(self, ended: threading.Event, beat_s: float) -> None:
        """Show that the run lives, until it ends."""
        while not ended.wait(beat_s):
            with suppress(Exception):  # an outage; the outbox says so
                if self._name not in self._storage.ages(FOLDER):
                    self._say(
                        f"another run has taken {self._storage.shown} over, since this one gave no "
                        "sign of life; both measure now"
                    )
                    return
                self._write(is_holder=True)
                if ended.is_set():  # the run has given it back meanwhile
                    self.give_back()

    def give_back(self) -> None:
        """Delete the file."""
        _HELD.discard(self._name)
        with suppress(StorageError):
            self._storage.delete(FOLDER, self._name)

    def _write(self, *, is_holder: bool) -> None:
        data = json.dumps(self._owner | {"is_holder": is_holder}, indent=2).encode()
        self._storage.write(StoredFile(FOLDER, self._name, data))

    def _live_runs(self) -> list[_OtherRun]:
        """Find the other live runs with a lease; leases of runs that have ended are deleted."""
        runs = []
        ages = self._storage.ages(FOLDER, since=self._name)
        for name, age_s in sorted(ages.items()):
            owner = None
            if name != self._name:
                owner = _owner(self._storage, name)
            if owner is None:
                continue
            description = _run_of(owner, age_s=age_s).description
            if _lives(owner, name, age_s=age_s, stale_s=self._stale_s):
                is_holder = owner.get("is_holder") is not False
                runs.append(_OtherRun(name=name, is_holder=is_holder, description=description))
                continue
            self._say(
                f"taking {self._storage.shown} over from a run that ended without a word: "
                f"{description}"
            )
            with suppress(StorageError):
                self._storage.delete(FOLDER, name)
        return runs


@dataclass(frozen=True, kw_only=True)
class _OtherRun:
    """A live run with a lease on the same place."""

    name: str
    """Of its file."""

    is_holder: bool
    """False while it only wants the lease."""

    description: str


def _process_of(pid: int) -> str:
    """Name of a process that no other one has: the kernel's boot, namespace, pid and start.

    Empty if it has ended, or the kernel does not say.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").readlink()
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    started = stat.rpartition(")")[2].split()[19]
    return f"{boot} {namespace} {pid} {started}"


def _exists(pid: int) -> bool:
    """True if a process with this id exists, also one that the kernel hides."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _owner(storage: Storage, name: str) -> dict[str, Any] | None:
    """Content of a lease; None if it is gone, under way or no lease."""
    if not name.endswith(_SUFFIX):
        return None
    try:
        owner = json.loads(storage.read(FOLDER, name))
    except (FileNotFoundError, ValueError, RecursionError, OddFileError):
        return None
    kinds = {"host": str, "pid": int, "process": str, "started_at": str}
    if isinstance(owner, dict) and all(
        isinstance(owner.get(name), kind) for name, kind in kinds.items()
    ):
        return {
            key: one_line(value) if isinstance(value, str) else value
            for key, value in owner.items()
        }
    return None


def _lives(owner: dict[str, Any], name: str, *, age_s: float, stale_s: float) -> bool:
    """True if the run of a lease may still work.

    On this machine its process says so, elsewhere the age of its last sign of life. A lease of this
    very process that no run of it holds was left when the place could not be reached.
    """
    own_process = _process_of(os.getpid())
    process: str = owner["process"]
    if process and own_process.split()[:2] == process.split()[:2]:
        if process == own_process:
            return name in _HELD
        if seen := _process_of(owner["pid"]):
            return seen == process
        if not _exists(owner["pid"]):
            return False
        # The kernel hides processes of other users (hidepid).
    return age_s < stale_s


def _run_of(owner: dict[str, Any], *, age_s: float) -> LiveRun:
    run_id = owner.get("run_id")
    if not isinstance(run_id, str):
        run_id = None
    return LiveRun(
        run_id=run_id,
        host=owner["host"],
        pid=owner["pid"],
        since=owner["started_at"],
        silent_s=max(0.0, age_s),
    )
