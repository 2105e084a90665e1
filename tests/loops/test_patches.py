"""Functions of libraries that a training loop replaces."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import nn

from dtsweep.loops.patches import Patches


def load(source: str) -> ModuleType:
    """Load a module as if it were installed."""
    file = f"{sysconfig.get_path('purelib')}/patching_library.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = ModuleType("patching_library")
    module.__file__ = file
    sys.modules[module.__name__] = module
    exec(compile(source, file, "exec"), module.__dict__)
    return module


PATCH = """
from torch import nn
def forward(self, inputs): return inputs
def apply(): nn.Linear.forward = forward
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Undo what the library of a test does."""
    forward = nn.Linear.forward
    yield
    nn.Linear.forward = forward  # type: ignore[method-assign]  # as it was
    sys.modules.pop("patching_library", None)


def test_what_the_user_replaces_or_adds_is_as_before() -> None:
    forward, patches = nn.Linear.forward, Patches()
    nn.Linear.forward = lambda *_: None  # type: ignore[method-assign,assignment]  # to be undone
    torch.Tensor.added = lambda *_: None  # type: ignore[attr-defined]  # to be undone
    restored, remaining = patches.restore()
    assert nn.Linear.forward is forward
    assert not hasattr(torch.Tensor, "added")
    assert sorted(restored) == ["torch.Tensor.added", "torch.nn.modules.linear.Linear.forward"]
    assert remaining == []


def test_what_a_library_replaced_that_was_loaded_before_is_as_before() -> None:
    library = load(PATCH)
    forward, patches = nn.Linear.forward, Patches()
    library.apply()
    assert patches.restore() == (["torch.nn.modules.linear.Linear.forward"], [])
    assert nn.Linear.forward is forward


def test_what_a_new_library_replaced_needs_another_process() -> None:
    patches = Patches()
    load(PATCH).apply()
    label = "torch.nn.modules.linear.Linear.forward, replaced by patching_library"
    assert patches.restore() == ([], [label])


def test_what_a_library_replaces_when_it_is_loaded_is_a_part_of_it() -> None:
    patches = Patches()
    load(PATCH + "nn.Linear.forward = forward\n")
    assert patches.restore() == ([], [])
