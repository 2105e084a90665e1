"""Local spool of files that could not be stored yet: on disk, in order, sent by a later run.

A folder per place of results, below the first of `_spool_roots` that can be written to. Each entry
is one tar archive, whole or absent, which holds the files of an attempt.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from dtsweep.errors import StorageError, SweepError
from dtsweep.results.private import is_locked, make_private
from dtsweep.results.storage import StoredFile, write_local

_LOCK = "lock"

_EXTRA = "-extra"
"""Ending of the names of entries without rows."""

_MOST_BYTES = 256 * 2**20
"""Size of all entries together; then measuring waits."""


def _spool_roots() -> list[Path]:
    """Folders in which a spool may lie, the preferred one first."""
    user = f"dtsweep-spool-{os.getuid()}"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return [
        Path(tempfile.gettempdir()) / user,
        Path(state) / "dtsweep-spool",
        Path("/dev/shm") / user,  # noqa: S108  # the last resort where all disks are full
    ]


class Spool:
    """Entries of one run for one place; other runs leave them alone while this one lives."""

    def __init__(self, place: str, *, roots: Sequence[Path] | None = None) -> None:
        """Make nothing yet.

        Args:
            place: `Storage.identity` of the results.
            roots: folders in which it may lie, the preferred one first.
        """
        self._place = place
        self._roots = list(roots or _spool_roots())
        self._folder: Path | None = None
        self._locks: list[IO[bytes]] = []
        self._sizes: dict[Path, int] = {}

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._sizes)

    @property
    def folder(self) -> Path | None:
        """The folder of the newest entry; None before the first one."""
        return self._folder

    def has_room(self, files: Sequence[StoredFile]) -> bool:
        """True if these files fit next to the entries that are there."""
        size = sum(len(file.data) for file in files)
        return not self._sizes or sum(self._sizes.values()) + size <= _MOST_BYTES

    def add(self, files: Sequence[StoredFile], *, is_extra: bool = False) -> Path:
        """Keep files until `remove`; return their entry.

        Args:
            files: of one entry.
            is_extra: they have no rows, as a log.

        Raises:
            StorageError: no folder can be written to; it names all of them.
        """
        archive = _packed(files)
        kind = _EXTRA if is_extra else ""
        name = f"{len(self._locks)}-{time.monotonic_ns():020d}{kind}.tar"
        errors = []
        while self._roots:
            try:
                if self._folder is None:
                    self._folder = self._new_folder(self._roots[0])
                entry = self._folder / name
                write_local(entry, archive, is_private=True)
            except (OSError, SweepError) as error:
                errors.append(f"{self._roots.pop(0)}: {error}")
                self._folder = None
                continue
            self._sizes[entry] = len(archive)
            return entry
        raise StorageError(f"no local folder can be written to ({'; '.join(errors)})")

    def remove(self, entry: Path) -> None:
        """Forget an entry whose files are stored."""
        self._sizes.pop(entry, None)
        remove_entry(entry)

    def close(self) -> None:
        """Let other runs send the entries that are left."""
        for lock in self._locks:
            lock.close()
            folder = Path(lock.name).parent
            if not any(folder.glob("*.tar")):
                _remove_run(folder)
        self._locks = []

    def _new_folder(self, root: Path) -> Path:
        """Make this run's folder below a root, locked as long as the run lives."""
        make_private(root)
        make_private(root / self._place)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=root / self._place))
        lock = (folder / _LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._locks.append(lock)
        return folder


def left_entries(place: str, *, roots: Sequence[Path] | None = None) -> list[Path]:
    """Entries that runs which have ended left for a place, the oldest first."""
    entries: list[Path] = []
    for root in roots or _spool_roots():
        # A folder of another user could lead to files that are none of ours.
        if not _is_own_folder(root) or not _is_own_folder(root / place):
            continue
        runs = [run for run in (root / place).glob("run-*") if _is_own_folder(run)]
        for run in sorted(runs, key=_changed_at):
            if not is_locked(run / _LOCK):
                tars = run.glob("*.tar")
                entries += sorted(entry for entry in tars if _is_own(entry, stat.S_ISREG))
    return entries


def is_extra(entry: Path) -> bool:
    """True if an entry has no rows."""
    return entry.stem.endswith(_EXTRA)


def _is_own_folder(path: Path) -> bool:
    """True for a folder of this user; a link is none."""
    return _is_own(path, stat.S_ISDIR)


def _is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """True for an entry of this user of a kind, by `lstat`."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return is_kind(info.st_mode) and info.st_uid == os.getuid()


def _changed_at(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:  # another run has removed it meanwhile
        return 0


def remove_entry(entry: Path) -> None:
    """Remove an entry, and the folder of its run if that has ended and this was the last one."""
    with suppress(OSError):
        entry.unlink()
    folder = entry.parent
    if not any(folder.glob("*.tar")) and not is_locked(folder / _LOCK):
        _remove_run(folder)


def _remove_run(folder: Path) -> None:
    with suppress(OSError):
        (folder / _LOCK).unlink(missing_ok=True)
        folder.rmdir()
        folder.parent.rmdir()


def files_in(entry: Path) -> list[StoredFile]:
    """Unpack an entry.

    Raises:
        OSError: it can't be read.
        ValueError: it is not an entry of a spool.
    """
    files = []
    try:
        with tarfile.open(entry) as archive:
            for member in archive:
                content = archive.extractfile(member)
                folder, _, name = member.name.rpartition("/")
                if content is None or not folder or ".." in member.name:
                    raise ValueError(f"{entry} holds {member.name!r}")
                is_private = member.mode == 0o600
                files.append(StoredFile(folder, name, content.read(), is_private=is_private))
    except tarfile.TarError as error:
        raise ValueError(f"{entry} is damaged: {error}") from error
    return files


def _packed(files: Sequence[StoredFile]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for file in files:
            member = tarfile.TarInfo(f"{file.folder}/{file.name}")
            member.size = len(file.data)
            member.mode = 0o644
            if file.is_private:
                member.mode = 0o600
            archive.addfile(member, io.BytesIO(file.data))
    return sink.getvalue()
