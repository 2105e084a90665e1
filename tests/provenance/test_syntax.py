"""The syntax tree of a module as text: what it says, the same by every release of Python."""

from __future__ import annotations

import ast
import hashlib

import pytest

from dtsweep.provenance.syntax import as_text

CODE = '''
def text(d: dict, *names, width=0x10, **more) -> str:
    """Quotes: " and ' and \\\\."""
    big = 10 ** 5, 1e999, 2j, ..., None, True, b"\\x00'", u"text", "\\U0001fae8", "a" f"b{d['a']!r:>{width}}" "c"
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
def test_two_texts_are_equal_where_python_reads_the_same(one: str, other: str, are_equal: bool) -> None:
    assert (as_text(ast.parse(one)) == as_text(ast.parse(other))) == are_equal
