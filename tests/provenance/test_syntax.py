"""The parts of a module that count; its syntax tree as text, equal in all releases of Python."""

from __future__ import annotations

import ast
import hashlib

import pytest

from dtsweep.provenance.syntax import as_text, tree_of

CODE = '''
def text(d: dict, *names, width=0x10, **more) -> str:
    """Quotes: " and ' and \\\\."""
    big = 10 ** 5, 1e999, 2j, ..., None, True, b"\\x00'", u"text", "\\U0001fae8", \
"a" f"b{d['a']!r:>{width}}" "c"
    return f"{d['a']}" + f'{d["a"]}' + f"{width = :.2f}" + f"{{}}" + f"""{d["a"]
}"""
'''


def test_the_text_of_a_tree_is_the_same_by_all_releases() -> None:
    # Found with Python 3.11, 3.12 and 3.13: whichever runs this must find it again.
    assert hashlib.sha256(as_text(ast.parse(CODE)).encode()).hexdigest()[:12] == "c4ae1c9fc5a6"


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("f\"{d['a']}\"", "f'{d[\"a\"]}'", True),
        ("x = (1)  # one", "x=1", True),
        ("u'a'", "'a'", True),
        ("'a' 'b'", "'ab'", True),
        ("x = 1", "x = True", False),
        ("x = 1", "x = 1.0", False),
        ("x = 0.0", "x = -0.0", False),
        ("x = None", "x = 'None'", False),
        ("x = ()", "x = []", False),
        ("return_ = f()", "return_ = f", False),
        ("def f(): return", "def f(): return None", False),
        ("f(a, *b)", "f(*b, a)", False),
        ("a[b:c]", "a[b::c]", False),
        ("{**a}", "{a: a}", False),
        ("del x", "x", False),
        ("import a.b", "import a as b", False),
        ("from . import a", "from .. import a", False),
        ("f'{a!r}'", "f'{a!s}'", False),
        ("def f(a, /, b): ...", "def f(a, b): ...", False),
        ("def f(*, a=1, b): ...", "def f(*, a, b=1): ...", False),
        ("async def f(): ...", "def f(): ...", False),
        ("if a:\n    b\nc", "if a:\n    b\n    c", False),
    ],
)
def test_two_texts_are_equal_where_python_reads_the_same(
    one: str, other: str, are_equal: bool
) -> None:
    assert (as_text(ast.parse(one)) == as_text(ast.parse(other))) == are_equal


SCRIPT = """
import json
import dtsweep
from dtsweep import Sweep, run
HEADS = 3

class Net:
    def build(self):
        return HEADS

def study():
    HEADS
"""
"""Defines a class; a test goes on with lines that count or don't."""


def counted(lines: str, *, script_class: str | None = "Net") -> str:
    """What counts of the script with these lines at its end."""
    return ast.unparse(tree_of((SCRIPT + lines).encode(), script_class=script_class))


@pytest.mark.parametrize(
    "lines",
    [
        "# a comment",
        "sweep = Sweep(workload=Net(), axes={'seed': [1, 2]})",
        "sweep: Sweep = make_sweep(2)",
        "big = Sweep(workload=Net(), axes={'seed': [1, 2]})",
        "frame = run(sweep)",
        "frame = dtsweep.run(dtsweep.Sweep(workload=Net(), axes={'seed': [1, 2]})).head()",
        "frame += [run(sweep)]",
        "run(sweep, 'results')",
        "    return run(Sweep(workload=Net(), axes={'seed': [1, 2]}))",
        "if __name__ == '__main__':\n    print(HEADS)\n    run(sweep)",
        "if TYPE_CHECKING:\n    import torch",
    ],
)
def test_questions_runs_and_what_is_under_main_do_not_count(lines: str) -> None:
    assert counted(lines) == counted("")
    assert counted(lines, script_class=None) == counted("", script_class=None)


def test_a_run_by_a_name_that_the_import_of_a_submodule_binds_does_not_count() -> None:
    imported = "import dtsweep.analysis"
    assert counted(f"{imported}\nframe = dtsweep.run(sweep)") == counted(imported)


@pytest.mark.parametrize(
    "lines",
    [
        "OTHER = 1",
        "axes = {'seed': [1, 2]}",
        "print(HEADS)",
        "subprocess.run(['ls'])",
        "json.run(HEADS)",
        "def helper(run):\n    heads = run(3)\n    return heads",
        "HEADS, sweep = 4, Sweep(workload=Net())",
        "if __name__ != '__main__':\n    HEADS = 4",
        "for row in run(sweep):\n    print(row)",
        "if HEADS:\n    print(HEADS)\n    run(sweep)",
        "if __name__ == '__main__':\n    HEADS = 4\nelse:\n    HEADS = 5",
    ],
)
def test_all_else_counts(lines: str) -> None:
    assert counted(lines) != counted("")


def test_a_question_inside_a_loop_does_not_count_but_the_loop_does() -> None:
    loop = "for width in (1, 2):\n    print(width)"
    question = "\n    run(Sweep(workload=Net(), axes={'seed': [SEED]}))"
    assert counted(loop + question) == counted(loop)


def test_names_that_a_module_gives_to_dtsweep_are_followed() -> None:
    imports = "import dtsweep as d\nfrom dtsweep import run as go\n"
    assert counted(f"{imports}go(d.Sweep(workload=Net()))") == counted(imports)
    # Without an import it is another function of this name.
    assert "run" in ast.unparse(tree_of(b"run(1)"))


def test_what_is_under_main_counts_where_the_class_of_a_script_is_defined_there() -> None:
    guard = (
        "if __name__ == '__main__':\n    class {}:\n        size = {}\n"
        "    frame = run(Sweep(axes={}))"
    )
    assert counted(guard.format("Other", 1, 1)) == counted("")
    own = counted(guard.format("Other", 1, 1), script_class="Other")
    assert "class Other" in own
    assert own != counted(guard.format("Other", 2, 1), script_class="Other")
    assert own == counted(guard.format("Other", 1, 2), script_class="Other")
