"""What a module's source says as Python reads it, and what it imports, from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set

IMPORTERS = frozenset({"import_module", "importlib.import_module", "__import__"})


def tree_of(source: bytes) -> ast.Module:
    """The syntax tree of a module: no comments, no assignment to `sweep`, nothing that importing it does not run."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _is_sweep(node) and not _is_never_run(node)]
    return tree


def _is_sweep(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name("sweep")]) | ast.AnnAssign(target=ast.Name("sweep")):
            return True
    return False


def _is_never_run(node: ast.stmt) -> bool:
    """Whether it is for type checkers, or for a module that is run as a script."""
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=[]):
            return True
        case ast.If(test=ast.Compare(left=ast.Name("__name__")), orelse=[]):
            return True
    return False


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


def reached(tree: ast.Module, name: str) -> dict[str, list[ast.stmt]]:
    """What a script defines as `name`, and what that uses, and so on; what else the script does is no part of it.

    Returns:
        Statements by the name that they define; empty where the script defines none of that name at its top.
    """
    defining: dict[str, list[ast.stmt]] = {}
    statements = list(_statements(tree.body))
    imported_names = {
        defined for one in statements if isinstance(one, ast.Import | ast.ImportFrom) for defined in _names_defined(one)
    }
    for statement in statements:
        for defined in _names_defined(statement, imports=imported_names):
            defining.setdefault(defined, []).append(statement)
    # What a star brings may be anything that is used.
    waiting, found = [name, *(["*"] if name in defining else [])], {}
    while waiting:
        wanted = waiting.pop()
        if wanted in defining and wanted not in found:
            found[wanted] = defining[wanted]
            nodes = [node for statement in found[wanted] for node in ast.walk(statement)]
            waiting += [node.id for node in nodes if isinstance(node, ast.Name)]
    return found


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if`, `try` and `with` too."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            children = ast.iter_child_nodes(statement)
            yield from _statements(node for node in children if isinstance(node, ast.stmt | ast.ExceptHandler))  # type: ignore[misc]  # a handler holds statements
        else:
            yield statement


def _names_defined(statement: ast.stmt, *, imports: Set[str] = frozenset()) -> set[str]:
    """Names that a statement defines or changes, but for what imports define.

    Args:
        statement: at the top of a module.
        imports: names of modules and what is imported from them.
    """
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            # `CONFIG.update(…)`; what a module's function does is no definition.
            return {_base(method)} - imports
    stored = (node for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Store))
    return {_base(node) for node in stored} - {""}


def _base(node: ast.AST) -> str:
    """The name that `a`, `a.b`, `a[0]` or `a.b().c` begins with; empty where it begins with none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
