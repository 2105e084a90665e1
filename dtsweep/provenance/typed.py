"""Source of a class that was typed into a notebook, and of what it uses of the notebook."""

from __future__ import annotations

import ast
import inspect
from pprint import pformat
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

from dtsweep.provenance.syntax import imported, parse_counted

_CODE = (type, FunctionType)


class _Typed(NamedTuple):
    """Parts of a class."""

    parts: dict[str, str]
    """Text of the class, and of the functions, classes and constants that it uses, by name."""

    imports: set[str]
    """Names of the modules that these import, or use things of."""

    unknown: set[str]
    """Names of the classes and functions whose source cannot be found."""


def typed(kind: type) -> _Typed:
    """Collect a class and all that it uses of its own module by name, and so on.

    IPython keeps the source of each cell for `inspect`, and Python from 3.13 on that of the prompt
    and of `-c`. What `exec` or standard input was given is lost.
    """
    source = _Typed({}, set(), set())
    waiting: list[Any] = [kind]
    while waiting:
        definition = waiting.pop()
        name = definition.__qualname__
        if isinstance(definition, type):
            name = f"class {name}"
        function = _function_of(definition)
        if name in source.parts or name in source.unknown or function is None:
            continue
        scope = function.__globals__
        statement = _statement_of(function)
        if statement is None:
            source.unknown.add(name)
            # The workers may need any of the modules that are imported here.
            source.imports.update(map(_module_of, scope.values()))
            continue
        source.parts[name] = ast.unparse(statement)
        source.imports.update(imported(statement, package=""))
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for key in sorted(names & scope.keys()):
            value = inspect.unwrap(scope[key])
            if not isinstance(value, (*_CODE, BuiltinFunctionType, ModuleType)):
                source.parts[key] = _text_of(value)
            if (origin := _module_of(value)) != kind.__module__:
                source.imports.add(origin)
            else:
                waiting.append(value if isinstance(value, _CODE) else type(value))
    return source


def _function_of(definition: Any) -> FunctionType | None:
    """First function in the source of a class, or a function itself; decorators add others."""
    members = [definition]
    if isinstance(definition, type):
        members = [getattr(value, "fget", value) for value in vars(definition).values()]
    for member in filter(callable, members):
        function = inspect.unwrap(member)
        if isinstance(function, FunctionType) and function.__code__.co_qualname.startswith(
            definition.__qualname__
        ):
            return function
    return None


def _statement_of(function: FunctionType) -> ast.stmt | None:
    """Find the statement of a cell or prompt that defines a function, or its class."""
    # `inspect.getsource` of the class itself would look for a file of its module.
    try:
        tree = parse_counted("".join(inspect.findsource(function)[0]))
    except (OSError, SyntaxError):
        return None
    line = function.__code__.co_firstlineno
    return next((node for node in tree.body if (node.end_lineno or 0) >= line), None)


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
    try:
        return pformat(ast.literal_eval(repr(value)), sort_dicts=False)
    except (ValueError, SyntaxError):
        return f"{type(value).__module__}.{type(value).__qualname__}"
