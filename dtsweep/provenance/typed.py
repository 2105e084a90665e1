"""Source of a class that was typed into a notebook, and of all that it uses of the notebook."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeGuard

from dtsweep.provenance.syntax import as_text, imported

CODE = (type, FunctionType)

PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(...))


@dataclass(frozen=True)
class Typed:
    """Parts of a class."""

    parts: dict[str, str] = field(default_factory=dict)
    """Text of the class, and of the functions, classes and constants of its module that it uses, by
    name."""

    imports: set[str] = field(default_factory=set)
    """Names of the modules that these import, or use things of."""

    unknown: set[str] = field(default_factory=set)
    """Names of the classes and functions whose source cannot be found."""


def typed(kind: type) -> Typed:
    """Collect a class and all that it uses of its own module, and so on.

    IPython keeps the source of each cell for `inspect`, doctest the source of each example, and
    Python from 3.13 on the prompt's and of `-c`. What `exec` or standard input was given is lost.
    """
    source = Typed()
    waiting = [kind]
    seen = set[int]()
    while waiting:
        definition: Any = waiting.pop()
        if id(definition) in seen:
            continue
        seen.add(id(definition))
        if isinstance(definition, type):
            name = f"class {definition.__qualname__}"
        else:
            name = definition.__qualname__
        functions = list(_own_functions(definition))
        statement = _defining_statement(definition, functions)
        values = _values(definition, functions)
        # Functions that one function has made share its name.
        text = f"{as_text(statement)} {value_text(values)}"
        source.parts[name] = source.parts.get(name, "") + text
        used = {key: value for key, value in values.items() if isinstance(value, CODE)}
        if statement is not None:
            source.imports.update(imported(statement, package=""))
            used |= _used(statement, functions)
        elif functions:
            source.unknown.add(name)
            # The workers may need any of the modules that are imported here.
            source.imports.update(map(_module_of, functions[0].__globals__.values()))
        for key, value in sorted(used.items()):
            waiting += _note_used(source, key, value, module=kind.__module__)
    return source


def _note_used(source: Typed, name: str, value: Any, *, module: str) -> list[Any]:
    """Note a value that the source uses; return the classes and functions to follow from it."""
    if callable(value):
        value = inspect.unwrap(value)
    origin = _module_of(value)
    if isinstance(value, CODE) and origin == module:
        return [value]
    source.imports.add(origin)
    if isinstance(value, (*CODE, BuiltinFunctionType, ModuleType)):
        return []
    source.parts[name] = value_text(value)
    if origin != module:
        return []
    return [type(value)]


def _module_of(value: Any) -> str:
    """Name of a module, or of the module that a value or its class comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    return getattr(value, "__module__", None) or type(value).__module__


def _own_functions(definition: Any) -> Iterator[FunctionType]:
    """Yield the functions in the source of a class, or a function itself."""
    if isinstance(definition, FunctionType):
        yield definition
        return
    for member in vars(definition).values():
        getters = [getattr(member, part, None) for part in ("__func__", "fget", "fset", "func")]
        for function in (inspect.unwrap(one) for one in (member, *getters) if callable(one)):
            if isinstance(function, FunctionType):
                code = function.__code__
                # Decorators and assignments add functions that were compiled elsewhere.
                if code.co_qualname == f"{definition.__qualname__}.{code.co_name}":
                    yield function


def _defining_statement(definition: Any, functions: Iterable[FunctionType]) -> ast.stmt | None:
    """Find the statement that defines a class or function, in the source of one of its functions.

    `inspect.getsource` of the class itself would look for a file of its module.
    """
    for function in functions:
        try:
            lines, _ = inspect.findsource(function)
            tree = ast.parse("".join(lines))
        except (OSError, SyntaxError):
            continue
        if isinstance(definition, type):
            name = definition.__name__
        else:
            name = function.__code__.co_name
        line = function.__code__.co_firstlineno
        statements = [node for node in ast.walk(tree) if _is_at(node, name, line=line)]
        if statements:
            # The last one is the innermost.
            return statements[-1]
    return None


def _is_at(node: ast.AST, name: str, *, line: int) -> TypeGuard[ast.stmt]:
    """True if a statement defines this name on this line; for a lambda, if it stands there."""
    if not isinstance(node, ast.stmt):
        return False
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    is_named = getattr(node, "name", "<lambda>") == name
    return is_named and first <= line <= (node.end_lineno or 0)


def _values(definition: Any, functions: Sequence[FunctionType]) -> dict[str, Any]:
    """Values that the source alone does not show, by name.

    They are bases and attributes of a class, and variables of the functions around it.
    """
    values: dict[str, Any] = {}
    if isinstance(definition, type):
        values |= {base.__name__: base for base in definition.__bases__}
        # Python's own names have an underscore at both ends; what an Enum keeps in them depends on
        # the release.
        is_own = re.compile(r"(?!_.*_$)").match
        values |= {name: value for name, value in vars(definition).items() if is_own(name)}
    for function in functions:
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            with contextlib.suppress(ValueError):  # empty: its variable has no value yet
                values[name] = cell.cell_contents
    # The source shows the functions, and Python adds `__class__` where a method needs it.
    for name in ("__class__", *(function.__name__ for function in functions)):
        values.pop(name, None)
    return values


def _used(statement: ast.stmt, functions: Iterable[FunctionType]) -> dict[str, Any]:
    """Find all that a statement uses of the module that its functions are of, by name."""
    names = _outer_names(statement)
    scopes = [function.__globals__ for function in functions]
    return {name: scope[name] for scope in scopes for name in names & scope.keys()}


def _outer_names(statement: ast.stmt) -> set[str]:
    """Name all that a statement takes from around it.

    `inspect.getclosurevars` would take an attribute `.width` for the global `width`, and before
    Python 3.12 would miss a name in a list comprehension.
    """
    try:
        tables = [symtable.symtable(ast.unparse(statement), "<typed>", "exec")]
    except SyntaxError:
        # It has a `nonlocal` of the function around it: then local names count, too.
        return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    names = set[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        names.update(symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    return names


def value_text(value: Any) -> str:
    """A constant as text, the same in every process; of other things the type alone.

    >>> value_text({"b", "a"}), value_text((1, [2.0])), value_text(object())
    ("set('a' 'b')", 'tuple(1 list(2.0))', 'builtins.object')
    """
    if isinstance(value, PLAIN):
        return repr(value)
    items: Iterable[str] | None = None
    if isinstance(value, (tuple, list)):
        items = map(value_text, value)
    elif isinstance(value, (set, frozenset)):
        items = sorted(map(value_text, value))
    elif isinstance(value, dict):
        items = (f"{value_text(key)}: {value_text(item)}" for key, item in value.items())
    kind = type(value)
    if items is None:
        return f"{kind.__module__}.{kind.__qualname__}"
    return f"{kind.__name__}({' '.join(items)})"
