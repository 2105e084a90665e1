"""What counts of a class that was typed into a notebook or a shell, and has no file."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dtsweep.provenance.typed import typed
from tests.pages import ROOT

CELLS = """
import functools
from dataclasses import dataclass, field
from pathlib import Path
import numpy as np

WIDTH = 3
SIZES = {"small": (1, 2), "large": (3, 4)}
UNUSED = 5

class Block:
    depth = 1
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
        return Path("data")

    def loss(self, model, batch): ...

from dtsweep.provenance.sources import sources_of
import json
found = sources_of(Own(), file=None)
print(json.dumps([found.digests, sorted(found.packages)]))
"""


def said(cells: str, folder: Path, *, seed: int = 0) -> tuple[dict[str, str], list[str]]:
    """What counts where this is typed: Python reads from a pipe, so that its `__main__` has no file."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONHASHSEED": str(seed)}
    run = [sys.executable, "-"]
    done = subprocess.run(run, input=cells, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    digests, packages = ast.literal_eval(done.stdout)
    return digests, packages


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    (tmp_path / "my_layers.py").write_text("from my_sizes import SIZE\nclass Layer: ...\n")
    (tmp_path / "my_sizes.py").write_text("SIZE = 1\n")
    return tmp_path


def test_a_class_counts_with_what_it_uses_and_what_it_imports_in_its_methods(beside: Path) -> None:
    digests, packages = said(CELLS, beside)
    own = {"class Own", "class Net", "class Block", "helper", "WIDTH", "SIZES", "scaled.<locals>.scale"}
    assert set(digests) == {*own, "my_layers.py", "my_sizes.py", "package numpy"}
    assert packages == ["numpy"]
    assert said(CELLS, beside, seed=1) == (digests, packages)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("x * 2", "x * 3", {"helper"}),
        ('{"a", "b", "c"}', '{"a", "b", "d"}', {"helper"}),
        ("WIDTH = 3", "WIDTH = 4", {"WIDTH"}),
        ('"small": (1, 2)', '"small": (1, 3)', {"SIZES"}),
        ("depth = 1", "depth = 2", {"class Block"}),
        ("np.abs", "np.sin", {"class Block"}),
        ("return helper()", "return 1 + helper()", {"class Net"}),
        ("scaled(7)", "scaled(8)", {"scaled.<locals>.scale"}),
        ("return net, factor", "return factor, net", {"scaled.<locals>.scale"}),
        ("least=1", "least=2", {"class Own"}),
        ("self.check()", "self.check(0)", {"class Own"}),
        ('Path("data")', 'Path("other")', {"class Own"}),
        ('SIZES["small"]', 'SIZES["large"]', {"class Own"}),
        ("UNUSED = 5", "UNUSED = 6", set()),
        ("def unused():\n    return 1", "def unused():\n    return 2", set()),
        ("x * 2", "x  *  2  # twice\n        ", set()),
        ("width: int = 3", "width: int = 4", set()),
        ("class Net(Block):", "# a net\n\nclass Net(Block):", set()),
    ],
)
def test_an_edit_changes_what_is_edited(beside: Path, old: str, new: str, changes: set[str]) -> None:
    assert old in CELLS
    (before, _), (after, _) = said(CELLS, beside), said(CELLS.replace(old, new), beside)
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == changes


@pytest.mark.parametrize(
    ("old", "new", "changes"), [("least=1", "least=2", {"class Own"}), ("x * 2", "x * 3", {"helper"})]
)
def test_a_class_with_slots_counts_like_any_other(beside: Path, old: str, new: str, changes: set[str]) -> None:
    slots = CELLS.replace("frozen=True", "frozen=True, slots=True")
    (usual, _), (before, _), (after, _) = (said(cells, beside) for cells in (CELLS, slots, slots.replace(old, new)))
    assert before.keys() == usual.keys()
    assert {name for name in before if before[name] != after[name]} == changes


@dataclass(frozen=True, slots=True)
class Slotted:
    """Its method has the class that was there before the decorator made this one of it."""

    width: int = 1

    def own(self) -> str:
        return __class__.__qualname__  # type: ignore[name-defined]  # Python has it in every method


def test_a_class_with_slots_counts_once() -> None:
    assert Slotted.own.__closure__[0].cell_contents is not Slotted  # type: ignore[attr-defined]
    parts = typed(Slotted).parts
    assert set(parts) == {"class Slotted"}
    assert parts["class Slotted"].count("('own', ") == 1


def test_a_module_imported_in_a_method_is_followed_by_its_imports(beside: Path) -> None:
    before, _ = said(CELLS, beside)
    (beside / "my_sizes.py").write_text("SIZE = 2\n")
    after, _ = said(CELLS, beside)
    assert {name for name in before if before[name] != after[name]} == {"my_sizes.py"}
