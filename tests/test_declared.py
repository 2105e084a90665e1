"""A sync mode or a compression is declared once: all that lists them finds it there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT

ENTRIES = {
    "modes": """
from dataclasses import replace
MODES["hearsay"] = replace(MODES["ring"], sends="S/7", memory="9 S")
""",
    "compressions": """
from dataclasses import replace
COMPRESSIONS["int2"] = replace(
    COMPRESSIONS["int4"], reads={"compression_ratio": 0.5}, payload="N/4", sends="S/16"
)
""",
}
"""Entries that a copy of the package has more, by the module that declares the others."""

ASK = """\
import json
import sys
from pathlib import Path

import dtsweep
from dtsweep import Point, SweepError
from dtsweep.results.schema import table_schema
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.file import read_sweep

def error_of(**fields):
    try:
        Point(**fields)
    except SweepError as error:
        return str(error)

def values_of(sweep, axis):
    points = [found.point for found in read_sweep(Path("sweeps") / sweep)[1]]
    return sorted({str(getattr(point, axis)) for point in points})

print(json.dumps({
    "package": dtsweep.__file__,
    "meanings": {item.name: item.metadata[b"meaning"].decode() for item in table_schema("trials")},
    "unknown mode": error_of(sync="xyz"),
    "near mode": error_of(sync="hearsy"),
    "unknown compression": error_of(compression="xyz"),
    "unread": impossible(Point(sync="hearsay", sync_period=4)),
    "modes of the sweep": values_of("sync_modes.py", "sync"),
    "compressions of the sweep": values_of("compression.py", "compression"),
}))
"""


@dataclass(frozen=True)
class Copy:
    """A copy of the package that has one mode and one compression more."""

    said: dict[str, Any]
    """What `ASK` prints."""

    docs: dict[str, str]
    """Pages as `docs/tables.py` makes them."""

    def rows(self, page: str, name: str) -> list[str]:
        """Lines of a page that name a mode or a compression."""
        return [line for line in self.docs[page].splitlines() if name in line]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    folder = tmp_path_factory.mktemp("copy")
    for name in ("dtsweep", "docs", "sweeps"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for module, entry in ENTRIES.items():
        file = folder / "dtsweep" / "sweep" / f"{module}.py"
        file.write_text(file.read_text("utf-8") + entry, "utf-8")
    (folder / "ask.py").write_text(ASK)
    told = [
        subprocess.run(
            [sys.executable, file],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        for file in ("docs/tables.py", "ask.py")
    ]
    assert [done.returncode for done in told] == [0, 0], [done.stderr for done in told]
    said = json.loads(told[1].stdout)
    assert Path(said["package"]).is_relative_to(folder)
    docs = {file.name: file.read_text("utf-8") for file in (folder / "docs").glob("*.md")}
    return Copy(said=said, docs=docs)


def test_the_schema_names_them_as_readers_of_their_axes(copy: Copy) -> None:
    meanings = copy.said["meanings"]
    assert ", tree, hearsay)" in meanings["bucket_bytes"]
    assert "topk, randomk, int2)" in meanings["compression_ratio"]
    assert "hearsay" not in meanings["sync_period"]


def test_messages_name_them(copy: Copy) -> None:
    said = copy.said
    assert "hogwild, hearsay" in said["unknown mode"]
    assert "did you mean 'hearsay'?" in said["near mode"]
    assert "powersgd, int2" in said["unknown compression"]
    assert said["unread"] == "hearsay has no sync_period"


def test_the_sweeps_over_all_of_them_have_them(copy: Copy) -> None:
    assert "hearsay" in copy.said["modes of the sweep"]
    assert "int2" in copy.said["compressions of the sweep"]


def test_the_tables_of_the_docs_have_them(copy: Copy) -> None:
    mode, carrier = copy.rows("sync-modes.md", "| `hearsay` |")
    known = "`exact` | `bucket_bytes` | `None` | S/7 | 9 S | wait | nowhere"
    assert mode == f"| `hearsay` | {known} |"
    assert carrier.endswith("| yes |")
    heads = copy.rows("sync-modes.md", "`powersgd` | `int2` |")
    assert len(heads) == 1
    assert len(copy.rows("sync-modes.md", "| `int2` | N/4 | each worker averages a share |")) == 1
    for page, name, firsts in (
        ("measuring.md", "`hearsay`", "exchange_isolated_s gradients_agree"),
        ("sweep-files.md", "hearsay", "sync bucket_bytes"),
        ("sweep-files.md", "int2", "compression compression_ratio"),
    ):
        cells = [line.split(" | ")[0] for line in copy.rows(page, name)]
        expected = [f"| `{first}`" for first in firsts.split()]
        assert [cell for cell in cells if " is " not in cell] == expected
    (wait,) = [line for line in copy.rows("measuring.md", "`hearsay`") if " is " in line]
    assert wait.startswith("| `comm_method` is `wait`")
    assert [len(copy.rows("columns.md", name)) for name in ("hearsay", "int2")] == [1, 1]
