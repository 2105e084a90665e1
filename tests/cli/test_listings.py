"""Commands open their results once: how often each folder of them is listed."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.called import called
from tests.show.stored import store_study

LISTED: list[Path] = []
"""Folders that this process has listed since the last test began."""


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.listdir", "os.scandir") and isinstance(arguments[0], str):
        LISTED.append(Path(arguments[0]))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a study; from now on the process notes what it lists."""
    folder = store_study(tmp_path_factory.mktemp("study"))
    sys.addaudithook(_note)
    return folder


@pytest.mark.parametrize(
    ("command", "folders"),
    [
        # A table is listed before it is read, and again after: a compaction may have come between.
        ("report R --json", {"trials": 2, "runs": 1}),
        ("report R --html OUT", {"trials": 2, "runs": 1}),
        ("recommend R", {"trials": 2, "runs": 1}),
        ("export R --out OUT", {"trials": 2, "runs": 1}),
    ],
)
def test_a_command_reads_each_table_and_the_records_of_runs_once(
    results: Path, tmp_path: Path, command: str, folders: dict[str, int]
) -> None:
    LISTED.clear()
    words = command.replace("OUT", str(tmp_path / "out")).split()
    called(*(str(results) if word == "R" else word for word in words))
    listed = Counter(path.name for path in LISTED if path.is_relative_to(results))
    assert listed == folders
