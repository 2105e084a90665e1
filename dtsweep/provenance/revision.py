"""The revision of the sweep's own files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_TIMEOUT_S = 5.0
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
"""Variables that git sets in its hooks; they would select another repository."""


def git_commit(folder: Path | None) -> str | None:
    """The commit of a folder.

    Returns:
        12 digits, then `+changes` where a file below the folder differs from the commit or a Python
        file is not in it (other new files are most often results); None outside a repository, and
        where git is missing or slow.
    """
    if folder is None:
        return None
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    status = _git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".")
    if commit is None or status is None:
        return None
    entries = [entry for entry in status.split("\0") if entry]
    changed = any(not entry.startswith("??") or entry.endswith(".py") for entry in entries)
    return commit.strip() + ("+changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    # Without optional locks: a lock would make a commit fail that someone makes at the same moment.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return os.fsdecode(done.stdout)
