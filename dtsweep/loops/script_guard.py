"""Copy on write for links in a script's folder: what Python writes there is the trial's own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import stat
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtsweep.errors import in_user_code, is_own_code

_FICLONE = 0x40049409
"""Request of Linux that makes two files share their blocks until one of them is written."""

_MOST_LINKS_ON_PATH = 40
"""Links that a path goes through at most, as for the kernel."""

_MOST_LINKS = 100_000
"""Entries of a linked folder that becomes a folder of the trial at most."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC

_CHANGES: Mapping[str, Mapping[int, tuple[bool, int | None]]] = {
    "os.rename": {0: (False, 2), 1: (False, 3)},
    "os.link": {0: (True, 2), 1: (False, 3)},
    "os.symlink": {1: (False, 2)},
    "os.remove": {0: (False, 1)},
    "os.rmdir": {0: (False, 1)},
    "os.mkdir": {0: (False, 2)},
    "os.truncate": {0: (True, None)},
    "os.chmod": {0: (True, 2)},
    "os.chown": {0: (True, 3)},
    "os.utime": {0: (True, 3)},
    "os.setxattr": {0: (True, None)},
    "os.removexattr": {0: (True, None)},
    "shutil.rmtree": {0: (True, None)},
    "sqlite3.connect": {0: (True, None)},
}
"""Audit events of Python that change files, by the positions of their paths.

For each whether the file itself is changed, or the folder in which it lies; and the position of the
open folder that the path is relative to.
"""

_SPARED = (Path("/dev"), Path("/proc"), Path("/sys"))
_SPARED_NAMES = frozenset({"__pycache__", "site-packages", "dist-packages"})
"""Places that are not reported."""

_guards: list[_Guard] = []
"""Guards of this process that are in use."""


class _Guard:
    """Replaces links of a folder that lead out of it by copies, just before they are written."""

    def __init__(self, root: Path, *, watched: Iterable[Path] = ()) -> None:
        """Guard a folder and all below it; report changes of watched files elsewhere."""
        self._root = root
        # Looked up now: `tempfile` holds a lock while it tries a folder, and opens a file there.
        self._spared = (root, Path(tempfile.gettempdir()).resolve(), *_SPARED)
        self._states = {str(path): _state_of(path) for path in watched}

    @property
    def changes(self) -> list[str]:
        """Files outside of the folder that were watched or written, and have changed since."""
        states = self._states.items()
        return sorted(path for path, state in states if _state_of(Path(path)) != state)

    def note(self, path: Path) -> None:
        """Watch a file outside of the folder, just before code of the user's writes it."""
        real = Path(os.path.realpath(path.parent), path.name)
        if any(real.is_relative_to(folder) for folder in self._spared):
            return
        if _SPARED_NAMES.isdisjoint(real.parts) and _is_written_by_user():
            self._states.setdefault(str(real), _state_of(real))

    def make_own(self, path: Path, *, is_file: bool = True, keeps: bool = True) -> None:
        """Make what lies at a path of the folder the trial's own.

        Args:
            path: absolute; paths outside of the folder are left alone.
            is_file: False if only the folder in which it lies is changed.
            keeps: False if the content of the file is dropped.

        Raises:
            OSError: there is no room for a copy.
        """
        while (link := self._link_on(path, is_file=is_file)) is not None:
            if _is_special(link):
                return
            self._replace(link, keeps=keeps)

    def _link_on(self, path: Path, *, is_file: bool) -> Path | None:
        """First link on a path that lies in the folder and leads out of it."""
        here, links = Path("/"), 0
        names = deque(path.parts[1:])
        while names:
            name = names.popleft()
            if name == "..":
                here = here.parent
                continue
            entry = here / name
            if not entry.is_symlink() or (not names and not is_file):
                here = entry
                continue
            if self._has(entry) and not self._has(Path(os.path.realpath(entry))):
                return entry
            links += 1
            if links > _MOST_LINKS_ON_PATH:
                return None
            target = entry.readlink()
            names.extendleft(reversed(target.relative_to(target.anchor).parts))
            if target.is_absolute():
                here = Path("/")
        return None

    def _has(self, path: Path) -> bool:
        return path.is_relative_to(self._root)

    def _replace(self, link: Path, *, keeps: bool) -> None:
        lock = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The ranks of a node share the folder.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not link.is_symlink():
                return
            target = Path(os.path.realpath(link))
            if target.is_dir():
                self._replace_folder(link, target)
            elif target.exists():
                self._replace_file(link, target, keeps=keeps)
            else:
                link.unlink()
        finally:
            os.close(lock)

    def _replace_file(self, link: Path, target: Path, *, keeps: bool) -> None:
        info = target.stat()
        size = info.st_size
        if keeps and size > shutil.disk_usage(self._root).free // 2:
            raise OSError(
                errno.ENOSPC,
                f"the script writes to {link.name}, which is only linked, and its "
                f"{size / 2**30:.1f} GiB don't fit twice into {self._root}; set TMPDIR to a larger "
                "disk, or write elsewhere",
            )
        copy = self._root / f"copy-{os.getpid()}-{threading.get_ident()}"
        if keeps:
            copy_file(target, copy)
        else:
            copy.touch()
            copy.chmod((info.st_mode & 0o777) | 0o600)
        copy.replace(link)

    def _replace_folder(self, link: Path, target: Path) -> None:
        folder = self._root / f"folder-{os.getpid()}-{threading.get_ident()}"
        folder.mkdir()
        with os.scandir(target) as entries:
            for number, entry in enumerate(entries):
                if number == _MOST_LINKS:
                    raise OSError(
                        errno.ENOSPC,
                        f"the trial's folder only links to {target}, which has more than "
                        f"{_MOST_LINKS:,} entries; write elsewhere",
                    )
                (folder / entry.name).symlink_to(entry.path)
        link.unlink()
        folder.rename(link)


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Time, size and number of a file; None without one."""
    with contextlib.suppress(OSError):
        info = path.stat()
        if not stat.S_ISDIR(info.st_mode):
            return info.st_mtime_ns, info.st_size, info.st_ino
    return None


def _is_written_by_user() -> bool:
    """True if code of the user's called the function that writes; dtsweep and Ray write, too."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if file != __file__ and is_own_code(file):
            return False
        if in_user_code(file):
            return True
    return False


def _is_special(path: Path) -> bool:
    """True for a pipe, a device or a socket: it has no content that a copy could have."""
    return path.exists() and not (path.is_file() or path.is_dir())


def copy_file(source: Path, copy: Path) -> None:
    """Copy a file with its times and permissions, by shared blocks where the file system can."""
    with source.open("rb") as read, copy.open("xb") as written:
        try:
            fcntl.ioctl(written.fileno(), _FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, written, 2**20)
        info = os.fstat(read.fileno())
        os.fchmod(written.fileno(), (info.st_mode & 0o777) | 0o600)
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))


@contextmanager
def guarded(root: Path, *, watched: Iterable[Path] = ()) -> Iterator[_Guard]:
    """Guard the links of a folder in this context, in this process and those that it forks."""
    import torch

    _listen()
    guard = _Guard(root, watched=watched)
    # They write files in C++, without an audit event.
    savers: tuple[Any, ...] = (
        torch,
        torch.serialization,
        torch.jit,
        torch.jit._script.RecursiveScriptModule,
    )
    before = [module.save for module in savers]
    opener = os.open
    _guards.append(guard)
    for module in savers:
        module.save = _guarded_save(module.save)
    os.open = _guarded_open(opener)
    try:
        yield guard
    finally:
        _guards.remove(guard)
        os.open = opener
        for module, save in zip(savers, before, strict=True):
            module.save = save


@functools.cache
def _listen() -> None:
    """Have Python call `_before` for each event, once: a process can't take that back."""
    sys.addaudithook(_before)


def _before(event: str, arguments: tuple[Any, ...]) -> None:
    """Make a file the trial's own before Python changes it."""
    if not _guards:
        return
    if event == "open":
        # Libraries raise this event, too, with a mode alone or with flags of 0.
        path, mode, flags = (*arguments, None, None)[:3]
        if isinstance(flags, int) and flags & _WRITES:
            _guard(path, keeps=not flags & os.O_TRUNC)
        elif isinstance(mode, str) and not set("wax+").isdisjoint(mode):
            _guard(path, keeps="w" not in mode)
    elif event == "os.chdir":
        # Nothing is written yet, so a folder may be too large for its links.
        with contextlib.suppress(OSError):
            _guard(arguments[0], is_written=False)
    else:
        for position, (is_file, folder_at) in _CHANGES.get(event, {}).items():
            folder = -1
            if folder_at is not None:
                folder = arguments[folder_at]
            _guard(arguments[position], folder=folder, is_file=is_file)


def _guard(
    path: Any,
    *,
    folder: int = -1,
    is_file: bool = True,
    keeps: bool = True,
    is_written: bool = True,
) -> None:
    """Make a file the trial's own, and watch one elsewhere.

    Args:
        path: of the file; anything else, such as a descriptor, is left alone.
        folder: descriptor of the open folder that it is relative to; -1 is the working directory.
        is_file: False if only the folder in which it lies is changed.
        keeps: False if its content is dropped.
        is_written: False if it is only about to be written.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    whole = Path(os.fsdecode(path))
    if folder >= 0:
        whole = Path(f"/proc/self/fd/{folder}").resolve() / whole
    elif not whole.is_absolute():
        whole = Path.cwd() / whole
    for guard in _guards:
        guard.make_own(whole, is_file=is_file, keeps=keeps)
        if is_written:
            guard.note(whole)


@functools.cache
def _guarded_open(opener: Callable[..., int]) -> Callable[..., int]:
    """Function in place of `os.open`, whose audit event does not name an open folder."""

    @functools.wraps(opener)
    def opening(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and flags & _WRITES:
            _guard(path, folder=dir_fd, keeps=not flags & os.O_TRUNC)
        return opener(path, flags, mode, dir_fd=dir_fd)

    os.supports_dir_fd.add(opening)
    return opening


def _guarded_save(save: Callable[..., None]) -> Callable[..., None]:
    """Function of torch that saves an object, with the file made the trial's own before."""

    @functools.wraps(save)
    def saving(*args: Any, **kwargs: Any) -> None:
        path = args[1] if len(args) > 1 else kwargs.get("f")
        _guard(path, keeps=False)
        save(*args, **kwargs)

    return saving
