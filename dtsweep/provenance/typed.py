"""Source of a class that was typed into a notebook, and of what it uses of the notebook."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from dtsweep.provenance.syntax import imported, tokens_of

_CODE = (type, FunctionType)

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class _Typed:
    """Parts of a class."""

    parts: dict[str, str] = field(default_factory=dict)
    """Text of the class, and of the functions, classes and constants that it uses, by name."""

    imports: set[str] = field(default_factory=set)
    """Names of the modules that these import, or use things of."""

    unknown: set[str] = field(default_factory=set)
    """Names of the classes and functions whose source cannot be found."""


def typed(kind: type) -> _Typed:
    """Collect a class and all that it uses of its own module, and so on.

    IPython keeps the source of each cell for `inspect`, and Python from 3.13 on that of the prompt
    and of `-c`. What `exec` or standard input was given is lost.
    """
    source = _Typed()
    waiting: list[Any] = [kind]
    while waiting:
        definition = waiting.pop()
        name = definition.__qualname__
        if isinstance(definition, type):
            name = f"class {name}"
        functions = _functions_of(definition)
        if name in source.parts or name in source.unknown or not functions:
            continue
        statement = _defining_statement(definition, functions[0])
        if statement is None:
            source.unknown.add(name)
            # The workers may need any of the modules that are imported here.
            source.imports.update(map(_module_of, functions[0].__globals__.values()))
            continue
        text, tree = statement
        source.parts[name] = tokens_of(text)
        source.imports.update(imported(tree, package=""))
        for key, value in _used(tree, functions[0].__globals__).items():
            origin = _module_of(value)
            if origin != kind.__module__:
                source.imports.add(origin)
            elif isinstance(value, _CODE):
                waiting.append(value)
            else:
                waiting.append(type(value))
            if not isinstance(value, (*_CODE, BuiltinFunctionType, ModuleType)):
                source.parts[key] = _text_of(value)
    return source


def _functions_of(definition: Any) -> list[FunctionType]:
    """Functions in the source of a class, or a function itself; decorators add others."""
    members = [definition]
    if isinstance(definition, type):
        values = vars(definition).values()
        getters = (value.fget for value in values if isinstance(value, property))
        members = [inspect.unwrap(value) for value in (*values, *getters) if callable(value)]
    return [
        member
        for member in members
        if isinstance(member, FunctionType)
        and member.__code__.co_qualname.startswith(definition.__qualname__)
    ]


def _defining_statement(definition: Any, function: FunctionType) -> tuple[str, ast.stmt] | None:
    """Find the statement that defines a class or function, in the source of one of its functions.

    `inspect.getsource` of the class itself would look for a file of its module.
    """
    try:
        lines, _ = inspect.findsource(function)
        tree = ast.parse("".join(lines))
    except (OSError, SyntaxError):
        return None
    line = function.__code__.co_firstlineno
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and node.name == definition.__name__:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or first
            if first <= line <= last:
                return textwrap.dedent("".join(lines[first - 1 : last])), node
    return None


def _used(tree: ast.AST, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Find what a statement uses of its module by name, functions without their decorators."""
    nodes = [*ast.walk(tree)]
    used = [node for node in nodes if isinstance(node, ast.Name)]
    # A local variable may have the name of a global one.
    local = {node.id for node in used if isinstance(node.ctx, ast.Store)}
    local |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    names = {node.id for node in used} - local
    return {name: inspect.unwrap(scope[name]) for name in sorted(names & scope.keys())}


def _module_of(value: Any) -> str:
    """Name of a module, or of the module that a value or its class comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    return getattr(value, "__module__", None) or type(value).__module__


def _text_of(value: Any) -> str:
    """A constant as text, the same in every process; of other things the type alone.

    >>> _text_of((1, "a")), _text_of(object())
    ("(1, 'a')", 'builtins.object')
    """
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    try:
        return repr(ast.literal_eval(repr(value)))
    except (ValueError, SyntaxError):
        return f"{type(value).__module__}.{type(value).__qualname__}"
