"""The parts of a module that count: its statements, without docstrings and its question."""

from __future__ import annotations

import ast

import pytest

from dtsweep.provenance.syntax import parse_counted


def text_of(source: str) -> str:
    """The statements that count."""
    return ast.unparse(parse_counted(source))


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("x = 1  # one", "x=1", True),
        ("f(1,\n  2)", "f(1, 2)", True),
        ('def f():\n    """Do."""\n    g()', "def f():\n  g()", True),
        ('class A:\n    """Of."""', 'class A:\n    """On."""', True),
        ("x = 1", "x = 1.0", False),
        ("x = 'a'", "x = 'b'", False),
        ("if a:\n    b\nc", "if a:\n    b\n    c", False),
    ],
)
def test_comments_layout_and_docstrings_do_not_count(
    one: str, other: str, *, are_equal: bool
) -> None:
    assert (text_of(one) == text_of(other)) == are_equal


SCRIPT = """
import dtsweep
from dtsweep import Sweep, run
HEADS = 3

class Net:
    def build(self):
        return HEADS
"""


@pytest.mark.parametrize(
    ("lines", "is_counted"),
    [
        ("# a comment", False),
        ("sweep = Sweep(workload=Net(), axes={'seed': [1, 2]})", False),
        ("sweep: Sweep = make_sweep(2)", False),
        ("big = Sweep(\n    workload=Net(), axes={'seed': [1, 2]}\n)", False),
        ("frame = run(sweep)", False),
        ("dtsweep.run(sweep, 'results')", False),
        ("if __name__ == '__main__':\n    print(HEADS)\n    run(sweep)", False),
        ("if TYPE_CHECKING:\n    import torch", False),
        ("OTHER = 1", True),
        ("axes = {'seed': [1, 2]}", True),
        ("print(HEADS)", True),
        ("subprocess.run(['ls'])", True),
        ("HEADS, sweep = 4, Sweep(workload=Net())", True),
        ("if __name__ != '__main__':\n    HEADS = 4", True),
        ("if __name__ == '__main__':\n    HEADS = 4\nelse:\n    HEADS = 5", True),
        ("if __name__ == '__main__':\n    class Other:\n        size = 1", True),
        ("def study():\n    return run(Sweep(workload=Net(), axes={'seed': [1, 2]}))", True),
    ],
)
def test_all_but_questions_runs_and_what_is_under_main_counts(
    lines: str, *, is_counted: bool
) -> None:
    """Lines at the end of a script."""
    assert (text_of(f"{SCRIPT}{lines}") != text_of(SCRIPT)) == is_counted
