"""The working directory of a script: a new one for each trial, which looks like the user's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dtsweep.results.private import make_private

MOST_FILES = 1000
"""A folder with more files and folders in it than this is linked as a whole."""


@contextmanager
def own_folder(name: str, *, start: Path, root: Path | None = None) -> Iterator[Path]:
    """Work in a new folder of this trial; the ranks of a node share it, the last one removes it.

    The folder has the entries of the one in which the user started, so that relative paths lead to
    the same files: its folders are new ones, its files are links. What a script writes under a new
    name is removed with the folder. Hidden folders, those with more than `MOST_FILES` entries, and
    the entries of the folder above, for paths such as `../data`, are links to the user's.

    Args:
        name: of the trial's attempt.
        start: the folder in which the user started; it may be missing on this node.
        root: of all such folders of this user on this node.

    Yields:
        The folder.

    Raises:
        SweepError: the root is a link, or somebody else's.
    """
    root = root or Path(tempfile.gettempdir()) / f"dtsweep-scripts-{os.getuid()}"
    make_private(root)
    above = root / name / "above"
    folder = above / (start.name or "start")
    before = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _locked(root):
            _remove_abandoned(root)
            if not folder.is_dir():
                folder.mkdir(parents=True)
                _fill(folder, start)
            held = os.open(root / name, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(held, fcntl.LOCK_SH)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.fchdir(before)
            with _locked(root):
                fcntl.flock(held, fcntl.LOCK_UN)
                os.close(held)
                _remove_if_free(root / name)
    finally:
        os.close(before)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of all folders of this user on this node, for the time of a change."""
    file = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _remove_abandoned(root: Path) -> None:
    """Remove folders whose processes were killed: nobody holds their lock."""
    for folder in root.iterdir():
        if folder.is_dir():
            _remove_if_free(folder)


def _remove_if_free(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        os.close(file)
    # A process that the script has left may still write there.
    shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, start: Path) -> None:
    """Give a new folder the entries of the user's, and the folder above those above it."""
    for entry in _entries(start):
        inside = None
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            inside = _listed(Path(entry.path))
        if inside is None:
            (folder / entry.name).symlink_to(entry.path)
            continue
        (folder / entry.name).mkdir()
        for path, is_folder in inside:
            copy = folder / path.relative_to(start)
            if is_folder:
                copy.mkdir()
            else:
                copy.symlink_to(path)
    for entry in _entries(start.parent):
        if entry.name != folder.name:
            (folder.parent / entry.name).symlink_to(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Entries of a folder; none where it is missing or must not be read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _listed(folder: Path) -> list[tuple[Path, bool]] | None:
    """Contents of a folder, each with whether it is a folder itself; None if it is too much."""
    listed: list[tuple[Path, bool]] = []
    waiting = [folder]
    while waiting:
        for entry in _entries(waiting.pop()):
            is_folder = entry.is_dir(follow_symlinks=False)
            listed.append((Path(entry.path), is_folder))
            if is_folder:
                waiting.append(Path(entry.path))
            if len(listed) > MOST_FILES:
                return None
    return listed
