"""Contents and imports of a module's source: its tokens without comments, and its syntax tree."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

_QUESTION = frozenset({"Sweep", "dtsweep.Sweep", "run", "dtsweep.run"})
"""Calls by which a module builds a question or runs it."""

_NOT_RUN = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"})
"""Conditions of what a workload does not need."""

_IMPORTERS = frozenset({"import_module", "importlib.import_module", "__import__"})

_NOT_COMPARED = frozenset({tokenize.COMMENT, tokenize.NL})

_LAYOUT = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
"""Tokens that count by their kind: four spaces mean the same as a tab."""


def without_question(source: str) -> str:
    r"""Source without statements that are not a part of the workloads that it defines.

    Left out are at module level `sweep = …`, calls of `Sweep` and `run`, and what stands under
    `if TYPE_CHECKING:` and `if __name__ == "__main__":`, unless a class is defined there.

    >>> without_question("WIDTH = 3\nsweep = Sweep()\nprint()")
    'WIDTH = 3\n\nprint()'
    """
    lines = source.split("\n")
    for node in ast.parse(source).body:
        if _is_left_out(node):
            start, end = node.lineno - 1, node.end_lineno or node.lineno
            lines[start:end] = [""] * (end - start)
    return "\n".join(lines)


def _is_left_out(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name("sweep")]) | ast.AnnAssign(target=ast.Name("sweep")):
            return True
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=called)):
            return ast.unparse(called) in _QUESTION
        case ast.Expr(value=ast.Call(func=called)):
            return ast.unparse(called) in _QUESTION
        case ast.If(test=test, orelse=[]):
            defines = any(isinstance(inner, ast.ClassDef) for inner in ast.walk(node))
            return ast.unparse(test) in _NOT_RUN and not defines
    return False


def tokens_of(source: str) -> str:
    r"""Tokens of a source that can be parsed, a line each: comments and blanks don't count.

    >>> tokens_of("x  =  1  # one") == tokens_of("x = 1\n")
    True
    """
    return "\n".join(
        tokenize.tok_name[token.type] if token.type in _LAYOUT else token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NOT_COMPARED
    )


def imported(tree: ast.AST, *, package: str) -> Iterator[str]:
    r"""Name what code imports, in functions too.

    `from a import b` gives `a` and `a.b`, which may be no module.

    Args:
        tree: of the code.
        package: that the module lies in, for relative imports.

    >>> list(imported(ast.parse("import a.b\ndef f():\n    from ..c import d"), package="x.y"))
    ['a.b', 'x.c', 'x.c.d']
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = []
                if level:
                    parents = package.split(".")[: len(package.split(".")) - level + 1]
                origin = ".".join([*parents, *([module] if module else [])])
                yield from (origin, *(f"{origin}.{alias.name}" for alias in names))
            case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]) if (
                ast.unparse(called) in _IMPORTERS
            ):
                yield name
