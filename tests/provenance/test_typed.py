"""What counts of a class that was typed into a notebook or a shell, and has no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from dtsweep.provenance.sources import sources_of
from tests.pages import ROOT

CELLS = """
import functools
from dataclasses import dataclass, field
from pathlib import Path
import numpy as np

WIDTH = 3
SIZES = {"small": (1, 2), "large": (3, 4)}
UNUSED = 5

class Scaler:
    def __init__(self, factor):
        self.factor = factor

HALF = Scaler(0.5)

class Block:
    depth = 1
    scaler = HALF
    def forward(self, batch):
        return np.abs(batch) + self.depth

class Net(Block):
    @property
    def wide(self):
        return helper()

@functools.lru_cache
def helper():
    def inner(x):
        return x in {"a", "b", "c"} and [x * 2 for _ in range(WIDTH)]
    return inner

def unused():
    return 1

def scaled(factor):
    def scale(net):
        return net, factor
    return scale

SCALE = scaled(7)

@dataclass(frozen=True)
class Own:
    width: int = 3
    names: list = field(default_factory=list)

    def __post_init__(self):
        self.check()

    def check(self, least=1):
        return self.width > least

    def build(self):
        from my_layers import Layer
        return Net(), SIZES["small"], SCALE, Layer

    @staticmethod
    def batch(samples, device):
        return Path("data"), samples.UNUSED

    def loss(self, model, batch): ...

from dtsweep.provenance.sources import sources_of
import json
found = sources_of(Own(), file=None)
print(json.dumps([found.digests, sorted(found.packages)]))
"""


CELL = """
import linecache, sys
for number, cells in enumerate(sys.stdin.read().split("# next cell")):
    name = f"<cell {number}>"
    linecache.cache[name] = (len(cells), None, cells.splitlines(keepends=True), name)
    exec(compile(cells, name, "exec"), globals())
"""
"""Runs its input and keeps the source for `inspect`, as IPython does."""


Done = subprocess.CompletedProcess[str]


def run_python(*arguments: str, cells: str, folder: Path, seed: int = 0) -> Done:
    """Run a Python whose `__main__` has no file."""
    more = {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONHASHSEED": str(seed)}
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60}
    run = [sys.executable, *arguments]
    done = subprocess.run(run, input=cells, env=os.environ | more, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    return done


def said(*cells: str, folder: Path, seed: int = 0) -> list[tuple[dict[str, str], list[str]]]:
    """Digests and packages of a class in each of these cells."""
    done = run_python("-c", CELL, cells="# next cell".join(cells), folder=folder, seed=seed)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """The folder, with the modules that cells import."""
    (tmp_path / "my_layers.py").write_text("from my_sizes import SIZE\nclass Layer: ...\n")
    (tmp_path / "my_sizes.py").write_text("SIZE = 1\n")
    return tmp_path


def test_a_class_counts_with_what_it_uses_and_what_it_imports_in_its_methods(beside: Path) -> None:
    [(digests, packages)] = said(CELLS, folder=beside)
    classes = {"class Own", "class Net", "class Block", "class Scaler"}
    others = {"helper", "WIDTH", "SIZES", "HALF", "scaled.<locals>.scale"}
    assert set(digests) == {*classes, *others, "my_layers.py", "my_sizes.py", "package numpy"}
    assert packages == ["numpy"]
    assert said(CELLS, folder=beside, seed=1) == [[digests, packages]]
    (beside / "my_sizes.py").write_text("SIZE = 2\n")
    [(after, _)] = said(CELLS, folder=beside)
    assert {name for name in digests if digests[name] != after[name]} == {"my_sizes.py"}


EDITS: list[tuple[str, str, set[str]]] = [
    ("x * 2", "x * 3", {"helper"}),
    ('{"a", "b", "c"}', '{"a", "b", "d"}', {"helper"}),
    ("WIDTH = 3", "WIDTH = 4", {"WIDTH"}),
    ('"small": (1, 2)', '"small": (1, 3)', {"SIZES"}),
    ("depth = 1", "depth = 2", {"class Block"}),
    ("np.abs", "np.sin", {"class Block"}),
    ("return helper()", "return 1 + helper()", {"class Net"}),
    ("return net, factor", "return factor, net", {"scaled.<locals>.scale"}),
    ("least=1", "least=2", {"class Own"}),
    ("self.check()", "self.check(0)", {"class Own"}),
    ('Path("data")', 'Path("other")', {"class Own"}),
    ('SIZES["small"]', 'SIZES["large"]', {"class Own"}),
    ("width: int = 3", "width: int = 4", {"class Own"}),
    ("@dataclass(", "@dataclass(order=True, ", {"class Own"}),
    ("self.factor = factor", "self.factor = -factor", {"class Scaler"}),
    ("UNUSED = 5", "UNUSED = 6", set()),
    ("def unused():\n    return 1", "def unused():\n    return 2", set()),
    ("x * 2", "x  *  2  # twice\n        ", set()),
    ("def helper():", 'def helper():\n    """Make the function."""', set()),
    ("class Net(Block):", "# a net\n\nclass Net(Block):", set()),
]


@pytest.mark.parametrize("options", ["frozen=True", "frozen=True, slots=True"])
def test_an_edit_changes_what_is_edited(beside: Path, options: str) -> None:
    cells = CELLS.replace("frozen=True", options)
    assert all(cells.count(old) for old, _, _ in EDITS)
    variants = [cells.replace(old, new) for old, new, _ in EDITS]
    (before, _), *edited = said(cells, *variants, folder=beside)
    for (after, _), (_, new, names) in zip(edited, EDITS, strict=True):
        assert {n for n in {*before, *after} if before.get(n) != after.get(n)} == names, new


def test_a_class_without_source_has_no_digest_and_a_warning_says_so(beside: Path) -> None:
    columns = CELLS.replace("found.digests", 'found.columns({"workload_width": 1})')
    done = run_python("-", cells=f"from my_layers import Layer\n{columns}", folder=beside)
    unknown = {"sources": None, "workload_digest": None}
    assert json.loads(done.stdout) == [unknown, ["numpy"]]
    assert done.stderr.count("no source of class Own can be found") == 1


def test_a_class_that_exec_makes_has_no_digest() -> None:
    names: dict[str, Any] = {}
    exec("class Made:\n    def build(self): ...", names)
    with pytest.warns(UserWarning, match="no source of class Made"):
        found = sources_of(names["Made"](), file=None)
    row = {"workload_digest": "1", "sources": '{"class Made": "1"}'}
    assert found.differ_from(row) is None


def test_the_digest_follows_the_cells_of_a_notebook() -> None:
    net = "%time 1\nWIDTH = 3\nclass Own:\n    def build(self):\n        return WIDTH"
    show = "print(sources_of(Own(), file=None).columns({}))"
    first = f"from dtsweep.provenance.sources import sources_of\n{net}"
    cells = [first, show, f"# a comment\n{net}  # same", show, "WIDTH = 4", show, f"{net} + 1"]
    code_cells = [nbformat.v4.new_code_cell(cell) for cell in [*cells, show]]
    book = nbformat.v4.new_notebook(cells=code_cells)
    nbclient.NotebookClient(book, timeout=60, resources={"metadata": {"path": str(ROOT)}}).execute()
    same, still, constant, method = (cell.outputs[0].text for cell in book.cells[1::2])
    assert "None" not in same
    assert same == still
    assert len({same, constant, method}) == 3
