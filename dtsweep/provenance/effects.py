"""What a statement of a script defines, and what it may change: names, found without running it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from dtsweep.provenance.modules import find_module

STAR = " import *"

READING = frozenset({"copy", "get", "items", "keys", "values"})
"""Methods that change nothing."""

CONVERSIONS = frozenset({"bool", "dict", "float", "int", "list", "range", "repr", "set", "str", "tuple"})
HARMLESS = CONVERSIONS | {"isinstance", "len", "max", "min", "print", "sorted", "sum"}
"""Functions that change nothing that they are given."""

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITION = (*FUNCTION, ast.ClassDef)


@dataclass(frozen=True)
class Script:
    """What the names of a script stand for."""

    imports: Mapping[str, str]
    """With dots, by the names that they have here."""

    functions: Mapping[str, Sequence[ast.AST]]
    classes: frozenset[str]

    aliases: Sequence[tuple[set[str], set[str]]]
    """Names that are assigned, and those that they may stand for, or for a part of."""

    @classmethod
    def of(cls, tree: ast.Module) -> Script:
        """Read a script's tree."""
        nodes = list(ast.walk(tree))
        functions: dict[str, list[ast.AST]] = {}
        for one in nodes:
            if isinstance(one, FUNCTION):
                functions.setdefault(one.name, []).append(one)
        imports = dict(pair for node in nodes for pair in _imports(node))
        aliases = [pair for node in nodes for pair in _aliases(node)]
        classes = frozenset(node.name for node in nodes if isinstance(node, ast.ClassDef))
        return cls(imports, functions, classes, aliases)

    def callers(self, names: Set[str]) -> set[str]:
        """These names, and those of the functions that name one of them, and so on."""
        found = set(names)
        named = {name: set[str]().union(*map(self.names, parts)) for name, parts in self.functions.items()}
        while more := {name for name, inside in named.items() if inside & found} - found:
            found |= more
        return found

    def names(self, node: ast.AST) -> set[str]:
        """All that code names, with dots."""
        return {self.dotted(part) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))}

    def dotted(self, node: ast.AST) -> str:
        """`torch.nn.Linear` of `nn.Linear`; of what no name stands for, something that is no name."""
        match node:
            case ast.Name(id=name):
                return self.imports.get(name, name)
            case ast.Attribute(value=value, attr=name):
                return f"{self.dotted(value)}.{name}"
        return "()"

    def touched(self, statement: ast.stmt) -> set[str]:
        """Names that a statement defines, and those whose things it may change."""
        return defined(statement) | self.changed(list(_run_by(statement)))

    def changed(self, nodes: Sequence[ast.AST]) -> set[str]:
        """Names whose things may be changed by code, and by the script's functions that it names."""
        called = {node.id for node in nodes if isinstance(node, ast.Name)}
        return self._changed_by(nodes).union(*(self._changes[name] for name in called & self.functions.keys()))

    @cached_property
    def _changes(self) -> dict[str, set[str]]:
        """What each function of the script may change, itself or by those that it names."""
        found, called = {}, {}
        for name, definitions in self.functions.items():
            nodes = [node for one in definitions for node in ast.walk(one)]
            own = {node.arg for node in nodes if isinstance(node, ast.arg)}
            own.update(node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
            shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
            found[name] = self._changed_by(nodes) - own | shared
            called[name] = {node.id for node in nodes if isinstance(node, ast.Name)} & self.functions.keys()
        # As often as the longest chain of calls may be.
        for _ in found:
            found = {name: found[name].union(*(found[other] for other in called[name])) for name in found}
        return found

    def _changed_by(self, nodes: Sequence[ast.AST]) -> set[str]:
        found = set[str]()
        for node in nodes:
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                    found.add(_base(node))
                case ast.AugAssign(target=target):
                    found.add(_base(target))
                case ast.ClassDef(decorator_list=called) | ast.FunctionDef(decorator_list=called):
                    found |= {_base(one) for one in called if self._is_of_object(one)}
                case ast.Call(func=called, args=args, keywords=keywords):
                    found |= {_base(called)} if self._is_of_object(called) else set()
                    found |= set() if self._is_harmless(called) else _handed([*args, *keywords])
        # What is done to an alias is done to what it stands for.
        while more := set[str]().union(*(real for names, real in self.aliases if names & found)) - found:
            found |= more
        return found

    def _is_harmless(self, called: ast.expr) -> bool:
        name = self.dotted(called)
        return name in HARMLESS | self.classes or name.startswith("dtsweep.")

    def _is_of_object(self, called: ast.expr) -> bool:
        """Whether it is a method that may change an object of the script, or a module of the user's own.

        A function of another module does not, nor what is done to a thing that it or a class has just made.
        """
        if not isinstance(called, ast.Attribute) or called.attr in READING:
            return False
        maker: ast.expr = called
        inner: ast.expr = called
        while isinstance(inner, ast.Attribute | ast.Subscript | ast.Call):
            maker = inner.func if isinstance(inner, ast.Call) else maker
            inner = inner.func if isinstance(inner, ast.Call) else inner.value
        name = self.dotted(maker)
        if name in self.classes or hasattr(builtins, name):
            return False
        holder = name.rpartition(".")[0]
        module = find_module(holder) if _base(maker) in self.imports and "()" not in holder and holder else None
        return module is None or (module.is_own and not f"{holder}.".startswith("dtsweep."))


def _run_by(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of code that run where it stands: of a function what stands around its body."""
    yield node
    for name, value in ast.iter_fields(node):
        if name != "body" or not isinstance(node, (*FUNCTION, ast.Lambda)):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _run_by(child)


def defined(statement: ast.stmt) -> set[str]:
    """Names that a statement defines, assigns something of, or deletes."""
    if isinstance(statement, DEFINITION):
        return {statement.name}
    found = set[str]()
    for node in _run_by(statement):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                found.add(node.id)
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                found.add(_base(node))
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                found.add(name)
        found.update(name for name, _ in _imports(node))
    return found


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that an import defines, and what they stand for, with dots."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        case ast.ImportFrom(module=module, names=[ast.alias(name="*")], level=level):
            # What it brings is not known: the import itself is the name.
            yield f"from {'.' * level}{module or ''}{STAR}", ""
        case ast.ImportFrom(module=module, names=names):
            yield from ((alias.asname or alias.name, f"{module or ''}.{alias.name}") for alias in names)


def _aliases(node: ast.AST) -> Iterator[tuple[set[str], set[str]]]:
    """Names that are assigned, and those that they may stand for."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield {_base(one) for target in targets for one in ast.walk(target)} - {""}, _handed([value])
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield {_base(target)}, _handed([value])
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield {_base(one) for one in ast.walk(target)} - {""}, _handed([value])


def _handed(nodes: Iterable[ast.AST]) -> set[str]:
    """Names whose things are handed on by expressions: as they are, in parts, or in something else."""
    found = set[str]()
    for node in nodes:
        match node:
            case ast.Name(id=name):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in READING:
                found |= _handed([value])
            case ast.Call(func=ast.Name(id=name), args=args) if name in HARMLESS:
                found |= _handed(args)
            case ast.Call() | ast.JoinedStr():
                pass
            case _:
                found |= _handed(ast.iter_child_nodes(node))
    return found


def _base(node: ast.AST) -> str:
    """The name that `a`, `a.b`, `a[0]` or `a.b().c` begins with; empty where it begins with none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
