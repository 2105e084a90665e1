"""The working directory of a script: a new one for each trial, with copies of the user's files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dtsweep.loops.script_guard import copy_file, guarded
from dtsweep.results.private import make_private
from dtsweep.text import listed

_MOST_ENTRIES = 5000
"""Files and folders of the user's that are looked at; folders beyond them are links."""

MOST_BYTES_OF_FILE, MOST_BYTES = 64 * 2**20, 256 * 2**20
"""Bytes of a file, and of all files, that are copied at most; larger files are links."""

_LINKED = frozenset({"node_modules"})
"""Folders of other tools, which are links, as hidden folders are."""

_LEFT_OUT = frozenset({"__pycache__"})


def _root_of_trials() -> Path:
    """Folder of the folders of all trials of this user on this node."""
    return Path(tempfile.gettempdir()).resolve() / f"dtsweep-scripts-{os.getuid()}"


@dataclass(kw_only=True)
class _FolderLayout:
    """Entries of a folder of the user's, by how each comes into the folder of a trial."""

    folders: list[Path] = field(default_factory=list)
    """Made, in this order."""

    copied: list[Path] = field(default_factory=list)
    linked: list[Path] = field(default_factory=list)
    """Large files, large folders and those of other tools."""

    large: list[Path] = field(default_factory=list)
    """Those of them that the user should know of."""


@dataclass(frozen=True, kw_only=True)
class ScriptFolder:
    """The folder of a trial, as long as it is there."""

    path: Path
    """The working directory."""

    places: Sequence[tuple[Path, Path]]
    """Folders of the trial, each with the user's folder that it is a copy of."""

    changes: list[str] = field(default_factory=list)
    """Files of the user's that the trial has changed; known once it has ended."""

    def copy_of(self, path: Path) -> Path:
        """Place of a file of the user's in the trial's folder."""
        for copy, original in self.places:
            if path.is_relative_to(original):
                return copy / path.relative_to(original)
        return path


@contextmanager
def own_folder(
    name: str,
    *,
    start: Path,
    script: Path | None = None,
    arguments: Sequence[str] = (),
    root: Path | None = None,
) -> Iterator[ScriptFolder]:
    """Work in a new folder of this trial; the ranks of a node share it, the last one removes it.

    The folder has copies of the files of the one in which the user started, so that relative paths
    lead to the same contents, and what the script writes is removed with the folder. Large files,
    and the entries of the folder above, for paths such as `../data`, are links: a copy replaces one
    before Python writes there. A script that lies elsewhere is copied with its folder.

    Args:
        name: of the trial's attempt.
        start: the folder in which the user started; it may be missing on this node.
        script: that will run there, as a path without links.
        arguments: of the script; files that they name by absolute paths are watched.
        root: of all such folders of this user on this node.

    Yields:
        The folder.

    Raises:
        SweepError: the root is a link, or somebody else's.
    """
    root = root or _root_of_trials()
    make_private(root)
    own = root.resolve() / name
    start = start.resolve()
    places = [(own / "above" / (start.name or "start"), start)]
    if script is not None and not script.is_relative_to(start):
        places.append((own / "script" / (script.parent.name or "start"), script.parent))
    folder = ScriptFolder(path=places[0][0], places=places)
    watched = _absolute_files(arguments)
    for _, original in places:
        watched.extend(folder_layout(original).large)
    before = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _locked(root):
            _remove_abandoned(root)
            is_first = not folder.path.is_dir()
            if is_first:
                for copy, original in places:
                    copy.mkdir(parents=True)
                    _fill(copy, original)
            held = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(held, fcntl.LOCK_SH)
        os.chdir(folder.path)
        try:
            with guarded(own, watched=watched if is_first else ()) as guard:
                yield folder
        finally:
            os.fchdir(before)
            folder.changes.extend(guard.changes)
            with _locked(root):
                fcntl.flock(held, fcntl.LOCK_UN)
                os.close(held)
                _remove_if_free(own)
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


def folder_layout(start: Path) -> _FolderLayout:
    """Say which entries of a folder are copied for each trial, and which are linked.

    Hidden folders are links, and other file systems, such as `/proc` in a start folder `/`.
    """
    found = _FolderLayout()
    files: list[tuple[int, Path]] = []
    waiting, count = deque([start]), 0
    while waiting:
        folder = waiting.popleft()
        entries = _entries(folder)
        if folder != start:
            if count + len(entries) > _MOST_ENTRIES or _is_of_a_tool(folder, entries):
                found.linked.append(folder)
                if not _is_of_a_tool(folder, entries):
                    found.large.append(folder)
                continue
            found.folders.append(folder)
        count += len(entries)
        for entry in entries:
            if entry.name in _LEFT_OUT or Path(entry.path) == _root_of_trials():
                continue
            is_linked = entry.name.startswith(".") or os.path.ismount(entry.path)
            if entry.is_dir(follow_symlinks=False) and not is_linked:
                waiting.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                files.append((_size_of(entry), Path(entry.path)))
            else:
                found.linked.append(Path(entry.path))
    _share(files, found)
    return found


def _share(files: Iterable[tuple[int, Path]], found: _FolderLayout) -> None:
    """Copy as many files as the limits allow; link the others."""
    whole = 0
    for number, (size, path) in enumerate(sorted(files)):
        whole += size
        if number < _MOST_ENTRIES and size <= MOST_BYTES_OF_FILE and whole <= MOST_BYTES:
            found.copied.append(path)
        else:
            found.linked.append(path)
            found.large.append(path)


def _is_of_a_tool(folder: Path, entries: Sequence[os.DirEntry[str]]) -> bool:
    """True for installed packages, a virtual environment, or results of dtsweep."""
    names = {entry.name for entry in entries}
    return folder.name in _LINKED or "pyvenv.cfg" in names or {"lease", "trials"} <= names


def _fill(folder: Path, start: Path) -> None:
    """Give a new folder the entries of the user's, and the folder above those above it."""
    found = folder_layout(start)
    for original in found.folders:
        (folder / original.relative_to(start)).mkdir()
    for original in found.copied:
        try:
            copy_file(original, folder / original.relative_to(start))
        except OSError:
            found.linked.append(original)
    for original in found.linked:
        copy = folder / original.relative_to(start)
        with contextlib.suppress(FileNotFoundError):
            copy.unlink()
        copy.symlink_to(_target(original, start))
    for entry in _entries(start.parent):
        if entry.name != folder.name:
            (folder.parent / entry.name).symlink_to(entry.path)


def _target(original: Path, start: Path) -> str:
    """Target of the link that stands for an entry of the user's.

    A link between two of the user's files stays one between their copies.
    """
    if original.is_symlink():
        target = original.readlink()
        leads_to = Path(os.path.normpath(original.parent / target))
        if not target.is_absolute() and leads_to.is_relative_to(start):
            return str(target)
    return str(original)


def _size_of(file: os.DirEntry[str]) -> int:
    with contextlib.suppress(OSError):
        return file.stat(follow_symlinks=False).st_size
    return 0  # gone in the meantime


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Entries of a folder; none where it is missing or must not be read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _absolute_files(arguments: Iterable[str]) -> list[Path]:
    """Files and folders that arguments of a script name by absolute paths, and that are there."""
    words = (word.partition("=")[2] or word for word in arguments)
    return [Path(word) for word in words if word.startswith("/") and Path(word).exists()]


def notes_for(start: Path, arguments: Iterable[str]) -> list[str]:
    """Lines for the user, before the first trial, on files that a script could still change."""
    notes = []
    if large := [str(path.relative_to(start)) for path in folder_layout(start).large]:
        notes.append(
            f"too large to be copied for each trial: {listed(large, most=3)}; Python writes to "
            "copies of them, programs that the script starts write to yours"
        )
    if named := sorted({str(path) for path in _absolute_files(arguments)}):
        notes.append(
            f"arguments name absolute paths: {listed(named, most=3)}; what the script writes there "
            "stays"
        )
    return notes
