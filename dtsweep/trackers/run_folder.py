"""A folder for each trial, which is there whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from dtsweep.trackers.exported import ExportedTrial, as_folder_name


class RunFolders:
    """Folders of trials in a place; a name ends with the attempt."""

    def __init__(self, folder: Path) -> None:
        """List the attempts that have a folder."""
        self.place = folder
        self.sent = {entry.name.rpartition("-")[2] for entry in folder.glob("*-*")}

    @contextmanager
    def written_whole(self, trial: ExportedTrial, name: str) -> Iterator[Path]:
        """Give an empty folder to write to, which takes its place once this context ends well.

        An interrupted export leaves no part of a trial behind that would count as sent.
        """
        self.place.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix=".dtsweep_", dir=self.place))
        try:
            yield draft
            draft.chmod(0o755)
            draft.rename(self.place / f"{as_folder_name(name)}-{trial.key}")
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self.sent.add(trial.key)
