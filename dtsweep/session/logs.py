"""Log files of ranks on their node: private, bounded, and gone some time after their process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from dtsweep.results.private import make_private

LOG_BYTES = 4 * 2**20
"""A rank's log that has grown beyond this is cut before the next trial."""

MOST_LOG_BYTES = 16 * 2**20
"""One that grows beyond this within a trial is cut at once."""

LOOK_S = 1.0
"""Interval of the checks of a log's size: output within it may exceed the limit."""

KEPT_S = 3600.0
"""Time for which the logs of an ended process stay for its session to read."""


def open_log(session: str, rank: int, *, root: Path | None = None) -> tuple[Path, IO[bytes]]:
    """Open a rank's log to append to it, in a private folder, and remove those of dead sessions.

    The file is locked as long as this process or a child of it has it open.

    Args:
        session: its name.
        rank: in the session.
        root: of all logs of this user on this node.

    Raises:
        SweepError: the folder is a link, or somebody else's.
    """
    root = root or Path(tempfile.gettempdir()) / f"dtsweep-logs-{os.getuid()}"
    make_private(root)
    sweep_away_dead(root)
    folder = root / session
    make_private(folder)
    path = folder / f"{rank}.log"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0)
    fcntl.flock(file, fcntl.LOCK_SH)
    return path, file


def sweep_away_dead(root: Path, *, now: float | None = None) -> None:
    """Remove the logs of sessions whose ranks have ended and were not read since.

    Args:
        root: of all logs of this user on this node.
        now: seconds since the epoch.
    """
    if now is None:
        now = time.time()
    for folder in root.iterdir():
        try:
            newest = max(
                (file.stat().st_mtime for file in folder.iterdir()), default=folder.stat().st_mtime
            )
            if newest < now - KEPT_S and not any(_is_held(file) for file in folder.iterdir()):
                shutil.rmtree(folder)
        except (
            FileNotFoundError,
            NotADirectoryError,
        ):  # another rank has swept it away, or it is no session's
            continue


def _is_held(file: Path) -> bool:
    with file.open("rb") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def keep_bounded(
    log: Path, *, most_bytes: int = MOST_LOG_BYTES, look_s: float = LOOK_S
) -> threading.Thread:
    """Cut a log of this process when it is too long, from a thread, while the file exists."""

    def watch() -> None:
        while True:
            time.sleep(look_s)
            try:
                if log.stat().st_size > most_bytes:
                    os.truncate(log, 0)
            except FileNotFoundError:  # its last reader has removed it
                return

    thread = threading.Thread(target=watch, name="dtsweep-log", daemon=True)
    thread.start()
    return thread
