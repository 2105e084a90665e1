"""Log files of ranks on their node: private, bounded, and gone some time after their process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from dtsweep.results.private import is_locked, make_private

LOG_BYTES = 4 * 2**20
"""Most bytes of a rank's log before a trial; older trials are left out."""

_MOST_LOG_BYTES = 16 * 2**20
"""Output of one trial beyond which it is cut at once."""

KEPT_BYTES = 2**16
"""Of a trial that failed, or was cut, so much of its first and of its last output is kept."""

_LOOK_S = 1.0
"""Interval of the checks of a log's size: output within it may exceed the limit."""

KEPT_S = 3600.0
"""Time for which the logs of an ended process stay for its session to read."""

_NOTE_BYTES = 64
"""Most bytes of the line that says what is left out."""

_LEFT_OUT = re.compile("dtsweep: … ([0-9,]+) bytes left out …\n".encode())
_LINE_END = re.compile(rb"[\r\n]")


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
            if newest < now - KEPT_S and not any(is_locked(file) for file in folder.iterdir()):
                shutil.rmtree(folder)
        except (
            FileNotFoundError,
            NotADirectoryError,
        ):  # another rank has swept it away, or it is no session's
            continue


class RankLog:
    """The log of this rank: of a trial with much output, the first and the last of it stay."""

    def __init__(self, path: Path, *, most_bytes: int = _MOST_LOG_BYTES) -> None:
        """Take the file that this process appends to."""
        self.path = path
        self._most_bytes = most_bytes
        self._start = 0
        """Place in the file at which the output of the trial begins."""
        self._lock = threading.Lock()

    def begin_trial(self) -> None:
        """Make room for the output of the next trial."""
        # A log may be cleaned away while the session lives.
        with self._lock, contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size > LOG_BYTES:
                self.cut()
            if self.path.stat().st_size > LOG_BYTES:
                os.truncate(self.path, 0)
            self._start = self.path.stat().st_size

    def keep_bounded(self, *, look_s: float = _LOOK_S) -> threading.Thread:
        """Cut the output of a trial when it is too long, from a thread, while the file exists."""

        def watch() -> None:
            while True:
                time.sleep(look_s)
                try:
                    with self._lock:
                        if self.path.stat().st_size - self._start > self._most_bytes:
                            self.cut()
                except FileNotFoundError:  # its last reader has removed it
                    return

        thread = threading.Thread(target=watch, name="dtsweep-log", daemon=True)
        thread.start()
        return thread

    def cut(self) -> None:
        """Leave out the middle of the trial's output."""
        with self.path.open("r+b") as file:
            text = _first_and_last(file, self._start)
            file.seek(self._start)
            file.write(text)
            file.truncate()


def trial_in(log: Path, heading: str) -> str:
    """First and last output of a trial in a rank's log.

    Args:
        log: on this node.
        heading: of the trial. Without one in the log, the trial has all of it.
    """
    with log.open("rb") as file:
        # Before a trial, a log has at most `LOG_BYTES`.
        begin = file.read(LOG_BYTES + KEPT_BYTES)
        start = max(0, begin.rfind(heading.encode(errors="backslashreplace")))
        return _first_and_last(file, start).decode(errors="backslashreplace")


def _first_and_last(file: IO[bytes], start: int) -> bytes:
    """The output from a place on, without its middle if it is long; a line says what is left out.

    It is cut between lines: of a password cut in two nothing would be found.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(start)
    if size - start <= 2 * KEPT_BYTES + _NOTE_BYTES:
        return file.read()
    begin = file.read(KEPT_BYTES + _NOTE_BYTES)
    earlier_cut = _LEFT_OUT.search(begin)
    if earlier_cut is None:
        begin = begin[:KEPT_BYTES]
        first = begin[: max(begin.rfind(b"\n"), begin.rfind(b"\r")) + 1]
        left_out = -len(first)
    else:
        first = begin[: earlier_cut.start()]
        left_out = int(earlier_cut[1].replace(b",", b"")) - earlier_cut.end()
    file.seek(size - KEPT_BYTES)
    end = file.read()
    left_out += file.tell() - start
    line_end = _LINE_END.search(end)
    last = b""
    if line_end is not None:
        last = end[line_end.end() :]
    note = f"dtsweep: … {left_out - len(last):,} bytes left out …\n"
    return first + note.encode() + last
