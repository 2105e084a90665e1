"""Temporary folders of a run: locked while its driver lives, later removed by the next start.

A driver that is killed at once leaves its folders, and its private Ray may leave processes. The
kernel gives a lock back when the driver ends, in whatever way.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname

RAY_PREFIX, TRAIN_PREFIX = "dtsweep-ray-", "dtsweep-train-"
"""Beginnings of the names of folders: of a private Ray, and for what Ray Train leaves."""

RAY_PARENT = "/tmp"  # noqa: S108  # the folder in it has a random name, and is this user's alone
"""Folder of private Rays: the paths of their sockets must be short."""

FOLDER_VARIABLE = "DTSWEEP_RAY_FOLDER"
"""Variable of all processes of a private Ray; its value is the folder."""

LOCK = "lock"
"""File in each folder that its driver has locked; it has the name of the driver's machine."""

_ENDED_S = 5.0
"""Time limit for killed processes to be gone."""


@contextmanager
def run_folder(prefix: str, *, parent: str | None = None) -> Iterator[Path]:
    """A private folder for as long as this process needs it, locked meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = os.open(folder / "unlocked", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Where the file system has no locks, the folder has no lock file: nobody else removes it.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, gethostname().encode())
            # Under its name it is locked from the first.
            (folder / "unlocked").rename(folder / LOCK)
        yield folder
    finally:
        remove_run_folder(folder)
        os.close(lock)


def remove_run_folder(folder: Path) -> None:
    """Remove a folder, and end the processes of a private Ray that still run from it."""
    until = time.monotonic() + _ENDED_S
    while (process_ids := processes_of(folder)) and time.monotonic() < until:
        for process_id in process_ids:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def remove_left_folders() -> list[Path]:
    """Remove the folders of this user's dead runs on this machine, and return them."""
    parents = dict.fromkeys([RAY_PARENT, tempfile.gettempdir()])
    left = []
    for parent in map(Path, parents):
        for folder in [*parent.glob(f"{RAY_PREFIX}*"), *parent.glob(f"{TRAIN_PREFIX}*")]:
            lock = _lock_of_dead(folder)
            if lock is not None:
                remove_run_folder(folder)
                os.close(lock)
                left.append(folder)
    return left


def _lock_of_dead(folder: Path) -> int | None:
    """Lock a folder whose run is dead.

    None for a link, a folder of another user or machine, and one in use.
    """
    try:
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            return None
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:  # another start has removed it, or it was never locked
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Of a folder that machines share, another one's locks may not be seen.
        if os.read(lock, 1000) == gethostname().encode():
            return lock
    except OSError:  # its run lives
        pass
    os.close(lock)
    return None


def processes_of(folder: Path) -> list[int]:
    """Ids of this user's processes, but this one, that run for the private Ray of a folder."""
    process_ids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_own = process.stat().st_uid == os.getuid() and process.name != str(os.getpid())
            if is_own and _runs_for(process, folder):
                process_ids.append(int(process.name))
        except OSError:  # it has ended
            continue
    return process_ids


def _runs_for(process: Path, folder: Path) -> bool:
    """True if a process, a folder of /proc, was started for the private Ray of a folder."""
    mark = f"{FOLDER_VARIABLE}={folder}".encode()
    if mark in (process / "environ").read_bytes().split(b"\0"):
        return True
    # The title that Ray gives to a process may overwrite its variables; its log stays open.
    if not (process / "cmdline").read_bytes().startswith(b"ray::"):
        return False
    for file in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if file.readlink().is_relative_to(folder):
                return True
    return False
