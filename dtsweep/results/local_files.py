"""Files of a local folder, which somebody else may have filled: only plain files are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class OddFileError(Exception):
    """A file that is left out of what is read, with the reason."""


class Entry(NamedTuple):
    """An entry of a folder."""

    name: str
    size: int
    mtime_ns: int
    odd: str | None
    """Kind of entry in words, unless it is a plain file."""


def entries(folder: str) -> Iterator[Entry]:
    """List a folder, links as such; nothing if there is none.

    Raises:
        OSError: it can't be read.
    """
    try:
        listing = os.scandir(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        if os.path.lexists(folder):
            raise
        return
    with listing:
        for entry in listing:
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                # Deleted since it was listed.
                continue
            yield Entry(entry.name, info.st_size, info.st_mtime_ns, _odd(info.st_mode))


def read_file(path: str, *, most_bytes: int) -> bytes:
    """Read a plain file; links are not followed, and pipes not waited for.

    Raises:
        OddFileError: it is not a plain file, or larger than `most_bytes`.
        OSError: it can't be read.
    """
    if (odd := _odd(os.lstat(path).st_mode)) is not None:
        raise OddFileError(f"it is {odd}, not a file")
    # The name may have got another file since.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if (odd := _odd(info.st_mode)) is not None:
            raise OddFileError(f"it is {odd}, not a file")
        check_size(info.st_size, most_bytes)
        return file.read(most_bytes)


def check_size(size: int, most_bytes: int) -> None:
    """Refuse a file of more bytes.

    Raises:
        OddFileError: it has more.
    """
    if size > most_bytes:
        raise OddFileError(f"it has {size} bytes, over {most_bytes}")


def _odd(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "a device")
