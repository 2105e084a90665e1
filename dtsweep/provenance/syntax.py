"""What a module's source says as Python reads it, and what it imports, from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

NOT_COMPARED = frozenset({"kind", "type_comment"})
"""Fields of nodes that change nothing when the code runs."""

IMPORTERS = frozenset({"import_module", "importlib.import_module", "__import__"})


def tree_of(source: bytes) -> ast.Module:
    """The syntax tree of a module: no comments, no assignment to `sweep`, nothing that importing it does not run."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _is_sweep(node) and not is_never_run(node)]
    return tree


def _is_sweep(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name("sweep")]) | ast.AnnAssign(target=ast.Name("sweep")):
            return True
    return False


def is_never_run(node: ast.stmt) -> bool:
    """Whether a statement is for type checkers, or for a module that is run as a script."""
    return is_for_type_checkers(node) or is_for_a_script(node)


def is_for_type_checkers(node: ast.stmt) -> bool:
    """Whether a statement is `if TYPE_CHECKING:` without an `else`."""
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=[]):
            return True
    return False


def is_for_a_script(node: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":` without an `else`."""
    match node:
        case ast.If(test=ast.Compare(left=ast.Name("__name__")), orelse=[]):
            return True
    return False


def as_text(tree: Any) -> str:
    """A syntax tree as text, without positions; the same by every release of Python that can read the code.

    `ast.unparse` quotes f-strings otherwise from 3.12 on, and later releases add fields, which are empty in older code.

    >>> as_text(ast.parse("x = -1").body[0])
    "Assign(targets=[Name(id='x' ctx=Store())] value=UnaryOp(op=USub() operand=Constant(value=1)))"
    """
    if isinstance(tree, list):
        return f"[{' '.join(map(as_text, tree))}]"
    if isinstance(tree, ast.JoinedStr):
        # Python 3.12 puts an empty text behind `{width}` in `{x:{width}}`.
        parts = [part for part in tree.values if not isinstance(part, ast.Constant) or part.value != ""]
        return f"JoinedStr(values={as_text(parts)})"
    if not isinstance(tree, ast.AST):
        # Not repr: which characters it prints as they are depends on the release.
        return ascii(tree)
    fields = [(name, value) for name, value in ast.iter_fields(tree) if name not in NOT_COMPARED]
    texts = [f"{name}={as_text(value)}" for name, value in fields if value is not None and value != []]
    return f"{type(tree).__name__}({' '.join(texts)})"


def imported(tree: ast.AST, *, package: str) -> Iterator[str]:
    r"""Name what code imports, in functions too; of `from a import b` both `a` and `a.b`, which may be no module.

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
                parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                origin = ".".join([*parents, *([module] if module else [])])
                yield from (origin, *(f"{origin}.{alias.name}" for alias in names))
            case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]) if ast.unparse(called) in IMPORTERS:
                yield name
