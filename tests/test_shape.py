"""Functions and statements stay simple enough to be read at one glance."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import NamedTuple

import pytest

from tests.pages import ROOT

MOST_CORE_LINES, MOST_CORE_TOKENS = 69_500, 373_000
"""Of the package: who adds a room takes one away."""

MOST_TEST_LINES = 51_000
"""Of `tests/`: a new claim takes the place of a weaker one."""

MOST_FILES_OF_ROOM, MOST_LINES_OF_ROOM = 40, 5_000

MOST_LINES_OF_CLASS = 300
"""Of the classes that the others are built around."""

BUSY_CLASSES = {"Attempts", "Point", "Queue", "Results", "Session", "Slot"}

MOST_LINES = 65
"""Of a function, its docstring included and its decorators not."""

MOST_CONDITIONALS = 2
"""Conditional expressions (`a if b else c`) in a function."""

CONDITIONALS_PER_1000 = 12
"""Conditional expressions per 1,000 lines that are not blank."""

TOKENS_PER_LINE = 8.4
"""Tokens per line of code, without comments and docstrings."""

NO_TOKENS = {
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.COMMENT, tokenize.ENDMARKER),
}

FILES = sorted((ROOT / "dtsweep").rglob("*.py"))

TOP_LEVEL = [(node, file) for file in FILES for node in ast.parse(file.read_text("utf-8")).body]
"""Statements of all modules."""


class Shape(NamedTuple):
    """Findings in one file, each as its place with what was counted there."""

    lines_of_functions: dict[str, int]
    conditionals_of_functions: dict[str, int]
    nested: list[str]
    multiplied: list[str]
    conditionals: int
    lines: int
    text_lines: int
    """Lines that are not blank."""

    tokens: int
    code_lines: int
    """Lines on which tokens stand."""


def _conditionals(node: ast.AST) -> int:
    return sum(isinstance(inner, ast.IfExp) for inner in ast.walk(node))


def _is_truth(node: ast.expr) -> bool:
    """True if an expression is visibly a truth value."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool")):
            return True
    return False


def _multiplies_a_truth(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _is_truth(left) or _is_truth(right)
    return False


def _tokens_and_lines(text: str, nodes: list[ast.AST]) -> tuple[int, int]:
    """Count the tokens of a file, and the lines that they stand on."""
    docstrings: set[int] = set()
    for node in nodes:
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


def shape_of(text: str, name: str) -> Shape:
    """Parse a file once for all claims."""
    nodes = list(ast.walk(ast.parse(text)))
    functions = {
        f"{name}:{node.lineno} {node.name}": node
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    conditionals = [node for node in nodes if isinstance(node, ast.IfExp)]
    tokens, code_lines = _tokens_and_lines(text, nodes)
    return Shape(
        lines_of_functions={
            place: (node.end_lineno or 0) - node.lineno + 1 for place, node in functions.items()
        },
        conditionals_of_functions={place: _conditionals(node) for place, node in functions.items()},
        nested=[f"{name}:{node.lineno}" for node in conditionals if _conditionals(node) > 1],
        multiplied=[f"{name}:{node.lineno}" for node in nodes if _multiplies_a_truth(node)],
        conditionals=len(conditionals),
        lines=len(text.splitlines()),
        text_lines=sum(bool(line.strip()) for line in text.splitlines()),
        tokens=tokens,
        code_lines=code_lines,
    )


@pytest.fixture(scope="module")
def shapes() -> list[Shape]:
    """The shape of each file of the package."""
    return [shape_of(file.read_text("utf-8"), str(file.relative_to(ROOT))) for file in FILES]


def test_neither_the_core_nor_its_tests_grow(shapes: list[Shape]) -> None:
    assert sum(shape.lines for shape in shapes) <= MOST_CORE_LINES
    assert sum(shape.tokens for shape in shapes) <= MOST_CORE_TOKENS
    tests = (path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py"))
    assert sum(tests) <= MOST_TEST_LINES


def test_no_room_is_too_full() -> None:
    full = {}
    for room in (path for path in (ROOT / "dtsweep").iterdir() if path.is_dir()):
        files = sorted(room.glob("*.py"))
        lines = sum(file.read_text().count("\n") for file in files)
        if len(files) > MOST_FILES_OF_ROOM or lines > MOST_LINES_OF_ROOM:
            full[room.name] = (len(files), lines)
    assert full == {}


def test_a_class_or_public_function_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for node, file in TOP_LEVEL:
        is_named = isinstance(node, ast.ClassDef | ast.FunctionDef)
        if is_named and not node.name.startswith("_"):
            places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_the_busy_classes_are_short() -> None:
    lengths = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node, _ in TOP_LEVEL
        if isinstance(node, ast.ClassDef) and node.name in BUSY_CLASSES
    }
    assert lengths.keys() == BUSY_CLASSES
    assert max(lengths.values()) < MOST_LINES_OF_CLASS, lengths


def test_no_function_is_longer_than_a_page(shapes: list[Shape]) -> None:
    lengths = {place: lines for s in shapes for place, lines in s.lines_of_functions.items()}
    assert {place: lines for place, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_function_has_many_conditional_expressions(shapes: list[Shape]) -> None:
    counts = {place: n for s in shapes for place, n in s.conditionals_of_functions.items()}
    assert {place: count for place, count in counts.items() if count > MOST_CONDITIONALS} == {}


def test_no_conditional_stands_in_another_and_no_truth_value_is_a_factor(
    shapes: list[Shape],
) -> None:
    assert [place for shape in shapes for place in (*shape.nested, *shape.multiplied)] == []


def test_conditional_expressions_are_rare(shapes: list[Shape]) -> None:
    count = sum(shape.conditionals for shape in shapes)
    lines = sum(shape.text_lines for shape in shapes)
    assert count / lines * 1000 <= CONDITIONALS_PER_1000


def test_lines_hold_few_tokens(shapes: list[Shape]) -> None:
    tokens = sum(shape.tokens for shape in shapes)
    assert tokens / sum(shape.code_lines for shape in shapes) <= TOKENS_PER_LINE


def test_each_fault_of_shape_is_found() -> None:
    long = "def long(a):\n" + "    a\n" * MOST_LINES
    many = "def many(a):\n    return 1 if a else (2 if a else (3 if a else 4)), 5 * bool(a)\n"
    shape = shape_of(long + many, "file.py")
    assert shape.lines_of_functions["file.py:1 long"] == MOST_LINES + 1
    assert max(shape.conditionals_of_functions.values()) == 3 == shape.conditionals
    assert (len(shape.nested), len(shape.multiplied)) == (2, 1)
