"""Private folders of this user on a machine that others use, too."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path

from dtsweep.errors import SweepError


def make_private(folder: Path) -> None:
    """Make a folder that belongs to this user alone, or check that it does.

    Raises:
        SweepError: it is a link, no folder, or somebody else's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        way_out = "remove it"
        if folder.is_relative_to(tempfile.gettempdir()):
            # Nobody can remove what another user has made in /tmp.
            way_out += ", or set TMPDIR to a folder of yours"
        raise SweepError(
            f"{folder} is not a folder of this user, so others could read or change what is there; "
            f"{way_out}"
        )
    if stat.S_IMODE(info.st_mode) != 0o700:
        folder.chmod(0o700)


def is_locked(file: Path) -> bool:
    """True if a process holds a file's lock; False for a file that is gone."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
