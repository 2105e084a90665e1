"""A place where results are to lie, tried before a run."""

from __future__ import annotations

import uuid
from pathlib import Path

from dtsweep.errors import StorageError
from dtsweep.results.storage import Storage, StoredFile

_FOLDER = "probe"
"""Folder of the file that is written to try a place; no reader opens it."""


def try_place(where: str | Path) -> list[str]:
    """Write, list and delete a file where results are to lie; list the problems.

    Each problem has the next step.
    """
    # Files of other names are not listed.
    name = f"{uuid.uuid4().hex}.parquet"
    try:
        storage = Storage(where)
        storage.write(StoredFile(_FOLDER, name, b"dtsweep doctor\n"))
    except StorageError as error:
        return [f"results: {error}"]
    problems = []
    try:
        if name not in storage.sizes(_FOLDER):
            problems.append(
                f"results: what was written to {storage.shown} is not listed there; use another "
                "place"
            )
    except StorageError as error:
        problems.append(f"results: {error}")
    try:
        storage.delete(_FOLDER, name)
    except StorageError as error:
        problems.append(
            "results: written, but not deleted, so they stay in many small files; allow it: "
            f"{error}"
        )
    return problems
