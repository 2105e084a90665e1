"""Statements of a module that count, without comments and docstrings, and its imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_QUESTION = frozenset({"Sweep", "dtsweep.Sweep", "run", "dtsweep.run"})
"""Calls by which a module builds a question or runs it."""

_NOT_RUN = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"})
"""Conditions of what a workload does not need."""

_IMPORTERS = frozenset({"import_module", "importlib.import_module", "__import__"})

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def parse_counted(source: str) -> ast.Module:
    r"""Parse a module without docstrings and statements that are no part of its workloads.

    Left out are at module level `sweep = …`, calls of `Sweep` and `run`, and what stands under
    `if TYPE_CHECKING:` and `if __name__ == "__main__":`, unless a class is defined there.

    >>> ast.unparse(parse_counted("'Doc.'\nWIDTH  =  3  # one\nsweep = Sweep()\nprint()"))
    'WIDTH = 3\nprint()'
    """
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _is_left_out(node)]
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return tree


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
