"""The tables of docs/ agree with the code."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest

from dtsweep import Measure, Point, Resources
from dtsweep.measure.stopping import Rule
from dtsweep.results.statuses import FINAL, RETRIED
from dtsweep.sweep.modes import MODES, SEMANTICS, SyncMode
from dtsweep.sweep.point import CHOICES, FIELD_TYPES
from tests.pages import ROOT, tables


def documented(kind: type) -> dict[str, tuple[str, str]]:
    """Default and docstring of each field of a dataclass, as its source has them."""
    (body,) = [node.body for node in ast.walk(ast.parse(inspect.getsource(kind))) if isinstance(node, ast.ClassDef)]
    words = {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
    found = {}
    for item in fields(kind):
        default: Any = item.default if item.default_factory is MISSING else item.default_factory()
        found[item.name] = (f"`{default!r}`", words[item.name])
    return found


def shown(first: str) -> dict[str, tuple[str, str]]:
    rows = tables("sweep-files.md", first=first)
    return {row[first].strip("`"): (row["default"], row["meaning"]) for row in rows}


def test_the_fields_of_a_point_are_documented_as_they_are() -> None:
    known = documented(Point)
    assert shown("field") == {name: known[name] for name in FIELD_TYPES}


def test_measure_and_resources_are_documented_as_they_are() -> None:
    assert shown("setting") == documented(Measure) | documented(Resources)


@pytest.mark.parametrize("field", ["optimizer", "precision", "placement"])
def test_every_choice_of_a_field_is_named(field: str) -> None:
    text = (ROOT / "docs" / "sweep-files.md").read_text("utf-8")
    (sentence,) = re.findall(rf"`{field}` is ([^;]*?)(?:;|\.\s)", text)
    assert re.findall(r"`(\w+)`", sentence) == list(CHOICES[field])


def test_every_mode_has_its_semantics_and_what_it_reads() -> None:
    rows = {row["mode"].strip("`"): row for row in tables("sync-modes.md", first="mode")}
    assert list(rows) == list(MODES)
    for name, row in rows.items():
        assert f"`{Point(sync=name).semantics}`" in row["semantics"]
        assert re.findall(r"`(\w+)`", row["reads"]) == list(MODES[name].reads)
        assert re.findall(r"`(\w+)`", row["default"]) == list(map(str, MODES[name].reads.values()))


def test_every_semantics_is_explained() -> None:
    text = (ROOT / "docs" / "sync-modes.md").read_text("utf-8")
    assert [name for name in SEMANTICS if f"`{name}`" not in text] == []


def test_every_method_of_a_mode_is_listed_with_its_arguments() -> None:
    methods = [method for name, method in vars(SyncMode).items() if inspect.isfunction(method)]
    known = []
    for method in methods:
        if method.__module__ == SyncMode.__module__:
            own = [p.replace(annotation=p.empty) for p in inspect.signature(method).parameters.values()][1:]
            known.append(f"{method.__name__}({', '.join(map(str, own))})")
    assert [row["method"].strip("`") for row in tables("sync-modes.md", first="method")] == known


def test_what_is_kept_and_what_is_tried_again_is_what_the_code_says() -> None:
    kept, *_ = tables("results.md", first="newest status")
    assert set(re.findall(r"`(\w+)`", kept["newest status"])) == FINAL
    text = (ROOT / "docs" / "results.md").read_text("utf-8")
    (sentence,) = re.findall(r"a trial that ended as ([^.]*) gets\s+two more attempts", text)
    assert set(re.findall(r"`(\w+)`", sentence)) == RETRIED


def test_every_rule_that_ends_a_window_is_listed() -> None:
    rows = tables("measuring.md", first="`stop_reason`")
    named = {word for row in rows for word in re.findall(r"\w+", row["`stop_reason`"])}
    fixed = Rule(Measure(half_width=None, min_steps=1, min_seconds=0, max_steps=3, max_seconds=9))
    limits = {fixed.limit(steps=steps, seconds=seconds) for steps, seconds in [(3, 0.0), (1, 9.0), (1, 0.0)]}
    sure, raced = Rule(Measure()), Rule(Measure(race=True), samples_per_step=1, rivals=[(0.5, 2.0)])
    shown = {[rule.look(np.ones(30), seconds=30) for _ in range(2)][-1] for rule in (sure, raced)}
    assert named == limits | shown == {"precise", "dominated", "enough", "max_steps", "max_seconds"}
