"""The parts of a module that count: its tokens, without comments and its question."""

from __future__ import annotations

import pytest

from dtsweep.provenance.syntax import tokens_of, without_question


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("x = 1  # one", "x=1", True),
        ("f(1,\n  2)", "f(1, 2)", True),
        ("x = 1", "x = 1.0", False),
        ("'a' 'b'", "'ab'", False),
        ("if a:\n    b\nc", "if a:\n    b\n    c", False),
    ],
)
def test_two_sources_are_equal_by_their_tokens(one: str, other: str, are_equal: bool) -> None:
    assert (tokens_of(one) == tokens_of(other)) == are_equal


SCRIPT = """
import dtsweep
from dtsweep import Sweep, run
HEADS = 3

class Net:
    def build(self):
        return HEADS
"""
"""Defines a class; a test goes on with lines that count or don't."""


def counted(lines: str) -> str:
    """Tokens of the script with these lines at its end."""
    return tokens_of(without_question(SCRIPT + lines))


@pytest.mark.parametrize(
    "lines",
    [
        "# a comment",
        "sweep = Sweep(workload=Net(), axes={'seed': [1, 2]})",
        "sweep: Sweep = make_sweep(2)",
        "big = Sweep(\n    workload=Net(), axes={'seed': [1, 2]}\n)",
        "frame = run(sweep)",
        "dtsweep.run(sweep, 'results')",
        "if __name__ == '__main__':\n    print(HEADS)\n    run(sweep)",
        "if TYPE_CHECKING:\n    import torch",
    ],
)
def test_questions_runs_and_what_is_under_main_do_not_count(lines: str) -> None:
    assert counted(lines).split() == counted("").split()


@pytest.mark.parametrize(
    "lines",
    [
        "OTHER = 1",
        "axes = {'seed': [1, 2]}",
        "print(HEADS)",
        "subprocess.run(['ls'])",
        "HEADS, sweep = 4, Sweep(workload=Net())",
        "if __name__ != '__main__':\n    HEADS = 4",
        "if __name__ == '__main__':\n    HEADS = 4\nelse:\n    HEADS = 5",
        "if __name__ == '__main__':\n    class Other:\n        size = 1",
        "def study():\n    return run(Sweep(workload=Net(), axes={'seed': [1, 2]}))",
    ],
)
def test_all_else_counts(lines: str) -> None:
    assert counted(lines).split() != counted("").split()
