"""Contents and imports of a module's source, from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from typing import Any

NOT_COMPARED = frozenset({"kind", "type_comment"})
"""Fields of nodes that change nothing when the code runs."""

QUESTION = frozenset({"Sweep", "run"})
"""Names of dtsweep by which a module builds a question and runs it."""

IMPORTERS = frozenset({"import_module", "importlib.import_module", "__import__"})


SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
"""Statements that hold no other statements."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def tree_of(source: bytes, *, script_class: str | None = None) -> ast.Module:
    """Parse a module without what is not a part of the workloads that it defines.

    Left out are assignments to `sweep`, statements that call `dtsweep.Sweep` or `dtsweep.run`, in
    functions too, and what stands under `if TYPE_CHECKING:` and `if __name__ == "__main__":`. A
    statement with a body is kept.

    Args:
        source: of the module.
        script_class: a class of a module that runs as a script. Where it is not defined outside
            `if __name__ == "__main__":`, what stands there is kept.
    """
    tree = ast.parse(source)
    run = [node for node in tree.body if not _is_for_type_checkers(node)]
    counted = [node for node in run if not _is_sweep(node)]
    outside = [node for node in counted if not _is_for_a_script(node)]
    is_outside = script_class is None or _defines(outside, script_class)
    if is_outside:
        tree.body = outside
    else:
        tree.body = counted
    _WithoutQuestion(set(_question_names(tree))).visit(tree)
    return tree


def _is_sweep(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name("sweep")]) | ast.AnnAssign(target=ast.Name("sweep")):
            return True
    return False


def _is_for_type_checkers(node: ast.stmt) -> bool:
    """True of `if TYPE_CHECKING:` without an `else`."""
    match node:
        case ast.If(
            test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=[]
        ):
            return True
    return False


def _is_for_a_script(node: ast.stmt) -> bool:
    """True of `if __name__ == "__main__":` without an `else`."""
    match node:
        case ast.If(
            test=ast.Compare(
                left=ast.Name("__name__"), ops=[ast.Eq()], comparators=[ast.Constant("__main__")]
            ),
            orelse=[],
        ):
            return True
    return False


def _defines(statements: Iterable[ast.stmt], name: str) -> bool:
    """True if a class of this name is defined, in a function too."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in nodes)


class _WithoutQuestion(ast.NodeTransformer):
    """Removes simple statements that call `dtsweep.Sweep` or `dtsweep.run`.

    An assignment to several names stays: one of them may belong to a workload. In a function that
    binds such a name itself, the name is not dtsweep's.
    """

    def __init__(self, names: Set[str]) -> None:
        """Take the names by which the module calls the two."""
        self._names = names

    def visit(self, node: ast.AST) -> Any:
        """Return the replacement of a node, None to remove it."""
        if isinstance(node, FUNCTIONS) and (bound := _bound_in(node) & self._names):
            return _WithoutQuestion(self._names - bound).generic_visit(node)
        if isinstance(node, SIMPLE) and any(map(self._is_question, ast.walk(node))):
            is_of_several = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
            if not is_of_several:
                return None
            return node
        return self.generic_visit(node)

    def _is_question(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) in self._names


def _bound_in(function: ast.AST) -> set[str]:
    """Name the parameters of a function, and what it assigns to."""
    nodes = list(ast.walk(function))
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    assigned = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return parameters | assigned


def _question_names(tree: ast.Module) -> Iterator[str]:
    """Name `dtsweep.Sweep` and `dtsweep.run` as a module imports them: `Sweep`, `dtsweep.run`."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="dtsweep", names=names):
                yield from (alias.asname or alias.name for alias in names if alias.name in QUESTION)
            case ast.Import(names=names):
                modules = [alias.asname or alias.name for alias in names if alias.name == "dtsweep"]
                # `import dtsweep.analysis` binds `dtsweep`.
                modules += [
                    "dtsweep"
                    for alias in names
                    if alias.name.startswith("dtsweep.") and not alias.asname
                ]
                yield from (f"{module}.{name}" for module in modules for name in QUESTION)


def as_text(tree: Any) -> str:
    """Write a syntax tree as text, without positions, equal on all releases of Python.

    `ast.unparse` quotes f-strings differently from 3.12 on, and later releases add fields, which
    are empty in older code.

    >>> as_text(ast.parse("x = -1").body[0])
    "Assign(targets=[Name(id='x' ctx=Store())] value=UnaryOp(op=USub() operand=Constant(value=1)))"
    """
    if isinstance(tree, list):
        return f"[{' '.join(map(as_text, tree))}]"
    if isinstance(tree, ast.JoinedStr):
        # Python 3.12 puts an empty text behind `{width}` in `{x:{width}}`.
        parts = [
            part for part in tree.values if not isinstance(part, ast.Constant) or part.value != ""
        ]
        return f"JoinedStr(values={as_text(parts)})"
    if not isinstance(tree, ast.AST):
        # Not repr: which characters it prints as they are depends on the release.
        return ascii(tree)
    fields = [(name, value) for name, value in ast.iter_fields(tree) if name not in NOT_COMPARED]
    texts = [
        f"{name}={as_text(value)}" for name, value in fields if value is not None and value != []
    ]
    return f"{type(tree).__name__}({' '.join(texts)})"


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
                ast.unparse(called) in IMPORTERS
            ):
                yield name
