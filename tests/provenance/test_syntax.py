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
    with_lines, without = (tokens_of(without_question(f"{SCRIPT}{end}")) for end in (lines, ""))
    assert (with_lines.split() != without.split()) == is_counted
