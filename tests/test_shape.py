"""Functions and statements stay simple enough to be read at one glance."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT

MOST_LINES = 65
"""Of a function, its docstring included and its decorators not."""

MOST_CONDITIONALS = 2
"""Conditional expressions (`a if b else c`) in a function."""

CONDITIONALS_PER_1000 = 12
"""Conditional expressions per 1,000 lines that are not blank."""

TOKENS_PER_LINE = 8.5
"""Tokens per line of code, without comments and docstrings."""

NO_TOKENS = {
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.COMMENT, tokenize.ENDMARKER),
}

FILES = sorted((ROOT / "dtsweep").rglob("*.py"))


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield each function with its place."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node


def _conditionals(node: ast.AST) -> list[ast.IfExp]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.IfExp)]


def _is_truth(node: ast.expr) -> bool:
    """True if an expression is visibly a truth value."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "bool"
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.Compare)


def _tokens_and_lines(file: Path) -> tuple[int, int]:
    """Count the tokens of a file, and the lines that they stand on."""
    text = file.read_text("utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.update(range(node.lineno, (node.end_lineno or 0) + 1))
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_TOKENS and token.start[0] not in docstrings
    ]
    lines: set[int] = set()
    for token in tokens:
        lines.update(range(token.start[0], token.end[0] + 1))
    return len(tokens), len(lines)


def test_no_function_is_longer_than_a_page() -> None:
    too_long = [
        f"{place}: {lines} lines"
        for place, node in _functions()
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES
    ]
    assert too_long == []


def test_no_function_has_many_conditional_expressions() -> None:
    many = [
        f"{place}: {count}"
        for place, node in _functions()
        if (count := len(_conditionals(node))) > MOST_CONDITIONALS
    ]
    assert many == []


def test_no_conditional_expression_stands_in_another() -> None:
    nested = [
        f"{file.relative_to(ROOT)}:{outer.lineno}"
        for file in FILES
        for outer in _conditionals(ast.parse(file.read_text("utf-8")))
        if len(_conditionals(outer)) > 1
    ]
    assert nested == []


def test_conditional_expressions_are_rare() -> None:
    texts = [file.read_text("utf-8") for file in FILES]
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    count = sum(len(_conditionals(ast.parse(text))) for text in texts)
    assert count / lines * 1000 <= CONDITIONALS_PER_1000


def test_nothing_is_multiplied_by_a_truth_value() -> None:
    multiplied = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and (_is_truth(node.left) or _is_truth(node.right))
    ]
    assert multiplied == []


def test_lines_hold_few_tokens() -> None:
    counts = [_tokens_and_lines(file) for file in FILES]
    tokens = sum(count for count, _ in counts)
    assert tokens / sum(lines for _, lines in counts) <= TOKENS_PER_LINE
