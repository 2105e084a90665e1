"""Copy on write for links in a script's folder: what Python writes there is the trial's own."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import shutil
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FICLONE = 0x40049409
"""Request of Linux that makes two files share their blocks until one of them is written."""

MOST_LINKS_ON_PATH = 40
"""Links that a path goes through at most, as for the kernel."""

MOST_LINKS = 100_000
"""Entries of a linked folder that becomes a folder of the trial at most."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC

EVENTS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "os.rename": ((), (0, 1)),
    "os.link": ((0,), (1,)),
    "os.symlink": ((), (1,)),
    "os.remove": ((), (0,)),
    "os.rmdir": ((), (0,)),
    "os.mkdir": ((), (0,)),
    "os.truncate": ((0,), ()),
    "os.chmod": ((0,), ()),
    "os.chown": ((0,), ()),
    "os.utime": ((0,), ()),
    "os.setxattr": ((0,), ()),
    "os.removexattr": ((0,), ()),
    "os.chdir": ((0,), ()),
    "shutil.rmtree": ((0,), ()),
    "sqlite3.connect": ((0,), ()),
}
"""Audit events: positions of paths whose file is changed, and of those whose folder is."""

_guards: list[Guard] = []
"""Guards of this process that are in use: a hook can't be removed."""

_is_copying = threading.local()


class Guard:
    """Replaces links of a folder that lead out of it by copies, just before they are written."""

    def __init__(self, root: Path) -> None:
        """Guard a folder and all below it."""
        self._root = root

    def make_own(self, path: Any, *, is_file: bool = True, keeps: bool = True) -> None:
        """Make what lies at a path of the folder the trial's own.

        Args:
            path: of any kind; paths outside of the folder are left alone.
            is_file: False if only the folder in which it lies is changed.
            keeps: False if the content of the file is dropped.

        Raises:
            OSError: there is no room for a copy.
        """
        if isinstance(path, int):
            return
        whole = Path.cwd() / os.fsdecode(path)
        while (link := self._link_on(whole, is_file=is_file)) is not None:
            if is_special(link):
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
            if links > MOST_LINKS_ON_PATH:
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
        folder = Path(tempfile.mkdtemp(dir=self._root))
        with os.scandir(target) as entries:
            for number, entry in enumerate(entries):
                if number == MOST_LINKS:
                    raise OSError(
                        errno.ENOSPC,
                        f"the trial's folder only links to {target}, which has more than "
                        f"{MOST_LINKS:,} entries; write elsewhere",
                    )
                (folder / entry.name).symlink_to(entry.path)
        link.unlink()
        folder.rename(link)


def is_special(path: Path) -> bool:
    """True for a pipe, a device or a socket: it has no content that a copy could have."""
    return path.exists() and not (path.is_file() or path.is_dir())


def copy_file(source: Path, copy: Path) -> None:
    """Copy a file with its times and permissions, by shared blocks where the file system can."""
    with source.open("rb") as read, copy.open("xb") as written:
        try:
            fcntl.ioctl(written.fileno(), FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, written, 2**20)
        info = os.fstat(read.fileno())
        os.fchmod(written.fileno(), (info.st_mode & 0o777) | 0o600)
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))


@contextmanager
def guarded(root: Path) -> Iterator[Guard]:
    """Guard the links of a folder in this context, in this process and those that it forks."""
    import torch  # a driver needs none

    guard = Guard(root)
    _add_hook()
    # Its writer is in C++ and raises no event.
    save = torch.save
    torch.save = _saving(guard, save)
    _guards.append(guard)
    try:
        yield guard
    finally:
        _guards.remove(guard)
        torch.save = save


def _saving(guard: Guard, save: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.save`, which makes its file the trial's own before."""

    @functools.wraps(save)
    def saving(obj: object, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            guard.make_own(f, keeps=False)
        return save(obj, f, *args, **kwargs)

    return saving


@functools.cache
def _add_hook() -> None:
    """Have events of this process seen, from the first call on."""
    sys.addaudithook(_on_event)


def _on_event(event: str, args: tuple[Any, ...]) -> None:  # a callback, also of every `id()`
    """Make own what an event of Python is about to change."""
    if not _guards or (event != "open" and event not in EVENTS):
        return
    if getattr(_is_copying, "now", False):
        return
    if event == "open" and not (isinstance(args[2], int) and args[2] & WRITES):
        return
    _is_copying.now = True
    try:
        for guard in _guards:
            _make_own(guard, event, args)
    finally:
        _is_copying.now = False


def _make_own(guard: Guard, event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        guard.make_own(args[0], keeps=not args[2] & os.O_TRUNC)
        return
    files, entries = EVENTS[event]
    for index in files:
        guard.make_own(args[index])
    for index in entries:
        guard.make_own(args[index], is_file=False)
