"""A folder for each trial, which is there whole or not at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write to, which takes its place once this context ends well.

    An interrupted export leaves no part of a trial behind that would count as sent.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=".dtsweep-", dir=folder.parent))
    try:
        yield draft
        draft.chmod(0o755)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def as_folder_name(text: str) -> str:
    """Name of a folder on any system.

    >>> as_folder_name("workers=2 path=../a:b")
    'workers=2,path=.._a_b'
    """
    return re.sub(r"[^\w.,=+-]", "_", text.replace(" ", ","), flags=re.ASCII).lstrip(".")


def as_key(attempt_id: str) -> str:
    """Key of an attempt: what stands after the last hyphen in the name of its folder.

    >>> as_key("0a1b"), as_key("table.csv-17")
    ('0a1b', 'table.csv_17')
    """
    return as_folder_name(attempt_id).replace("-", "_")
