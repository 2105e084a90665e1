"""Functions stay short enough to be read at one glance."""

from __future__ import annotations

import ast

from tests.pages import ROOT

MOST_LINES = 65
"""Of a function, its docstring included and its decorators not."""


def test_no_function_is_longer_than_a_page() -> None:
    too_long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for file in sorted((ROOT / "dtsweep").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES
    ]
    assert too_long == []
