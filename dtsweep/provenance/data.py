"""Contents of files and folders, by their sizes and both ends."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

_EDGE_BYTES = 2**20
"""Read at the beginning and at the end of a file; of a folder's files together."""

_MOST_FILES = 256
"""Files of a folder that count, the first ones by name."""


def content_digest(path: Path, *, folders: bool = True) -> str | None:
    """A digest of a file, or of a folder's files: names, sizes, first and last MiB.

    Args:
        path: of either.
        folders: whether a folder counts.

    Returns:
        12 hex digits; None where there is nothing that can be read here.
    """
    digest = hashlib.sha256()
    try:
        files = []
        if folders or path.is_file():
            files = list(islice(_files(path), _MOST_FILES))
        for file in files:
            state = file.stat()
            edge = max(_EDGE_BYTES // len(files), 4096)
            content = _edges(file, state.st_size, state.st_mtime_ns, edge)
            name = file.relative_to(path).as_posix()
            digest.update(f"{name}\n{state.st_size}\n{content}\n".encode())
    except (OSError, ValueError):
        # No path at all, or it lies on the workers' nodes alone, or only they may read it.
        return None
    if not files:
        return None
    return digest.hexdigest()[:12]


@lru_cache(maxsize=4 * _MOST_FILES)
def _edges(file: Path, size: int, _changed_ns: int, edge: int) -> str:
    """A digest of both ends of a file; read again once it has changed."""
    with file.open("rb") as stream:
        digest = hashlib.sha256(stream.read(edge))
        stream.seek(max(edge, size - edge))
        digest.update(stream.read(edge))
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    """Yield a file itself, or the files below a folder by name, without hidden ones."""
    if path.is_file():
        yield path
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(place, name) for name in sorted(names) if not name.startswith("."))
        yield from (file for file in files if file.is_file())
