"""What a class does that has no file, typed into a notebook or a shell: from the compiled code of its methods."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(...))


@dataclass(frozen=True)
class Typed:
    """What a class is made of."""

    parts: dict[str, str] = field(default_factory=dict)
    """What counts, by name: the class, and the functions, classes and constants of its module that it uses."""

    imports: set[str] = field(default_factory=set)
    """Names of the modules that these import, or use things of."""


def typed(kind: type) -> Typed:
    """Follow a class to what it uses of its own module, and so on.

    Compiled code is the same whatever comments there are; another release of Python may compile to another.
    """
    found, waiting, seen = Typed(), [kind], set[int]()
    while waiting:
        thing: Any = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        functions = list(_functions_in(thing))
        constants = sorted((name, as_text(value)) for name, value in _own(thing).items())
        text = repr((constants, [(name, _function_text(function)) for name, function in functions]))
        name = f"class {thing.__qualname__}" if isinstance(thing, type) else thing.__qualname__
        # Functions that one function has made share its name.
        found.parts[name] = found.parts.get(name, "") + text
        used = dict(pair for _, function in functions for pair in _used(function))
        used |= {base.__name__: base for base in getattr(thing, "__bases__", ())}
        found.imports.update(name for _, function in functions for name in _imported(function.__code__))
        for used_name, value in sorted(used.items()):
            waiting += _sort(found, used_name, value, module=kind.__module__)
    return found


def _sort(found: Typed, name: str, value: Any, *, module: str) -> list[Any]:
    """Note a thing that is used; give it back where it is to be followed."""
    value = inspect.unwrap(value) if callable(value) else value
    origin = getattr(value, "__module__", None)
    if isinstance(value, ModuleType):
        found.imports.add(value.__name__)
    elif isinstance(value, (type, FunctionType)) and origin == module:
        return [value]
    elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        found.imports.update([origin] if origin else [])
    else:
        found.imports.add(type(value).__module__)
        found.parts[name] = as_text(value)
    return []


def _own(thing: Any) -> dict[str, Any]:
    """The constants of a class; its fields are part of a trial's name."""
    if not isinstance(thing, type):
        return {}
    fields: Mapping[str, Any] = getattr(thing, "__dataclass_fields__", {})
    values = {name: value for name, value in vars(thing).items() if not name.startswith("__") and name not in fields}
    return {name: value for name, value in values.items() if isinstance(value, (*PLAIN, tuple, list, dict, set))}


def _functions_in(thing: Any) -> Iterator[tuple[str, FunctionType]]:
    """The functions that a class defines, by name; a function is one itself."""
    members = sorted(vars(thing).items()) if isinstance(thing, type) else [("", thing)]
    for name, member in members:
        if isinstance(member, type) and member.__qualname__.startswith(f"{thing.__qualname__}."):
            yield from ((f"{name}.{inner}", function) for inner, function in _functions_in(member))
            continue
        getters = [getattr(member, part, None) for part in ("__func__", "fget", "fset", "func")]
        for function in (inspect.unwrap(one) for one in (member, *getters) if callable(one)):
            if isinstance(function, FunctionType) and not _is_made_by_dataclass(thing, function):
                yield name, function


def _is_made_by_dataclass(thing: Any, function: FunctionType) -> bool:
    is_special = function.__name__.startswith("__") and function.__name__ != "__post_init__"
    return hasattr(thing, "__dataclass_fields__") and is_special and function.__code__.co_filename == "<string>"


def _function_text(function: FunctionType) -> str:
    values = (function.__defaults__, function.__kwdefaults__, [value for _, value in _around(function)])
    return f"{_code_text(function.__code__)} {as_text(values)}"


def _code_text(code: CodeType) -> str:
    constants = [_code_text(value) if isinstance(value, CodeType) else as_text(value) for value in code.co_consts]
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return repr((code.co_code.hex(), code.co_names, code.co_freevars, parameters, constants))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the functions and classes in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function uses of its module, and of things from the functions around it, by name."""
    for code in _codes(function.__code__):
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in function.__globals__:
                yield step.argval, function.__globals__[step.argval]
    yield from ((name, value) for name, value in _around(function) if isinstance(value, (type, FunctionType)))


def _around(function: FunctionType) -> list[tuple[str, Any]]:
    """What a function uses of the functions around it, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [(name, cell.cell_contents) for name, cell in cells if name != "__class__"]


def _imported(code: CodeType) -> Iterator[str]:
    """Name what a function imports when it runs; of `from a import b` both `a` and `a.b`."""
    for inner in _codes(code):
        origin = ""
        for step in dis.get_instructions(inner):
            if step.opname == "IMPORT_NAME":
                origin = step.argval
                yield origin
            elif step.opname == "IMPORT_FROM":
                yield f"{origin}.{step.argval}"


def as_text(value: Any) -> str:
    """A constant as text, the same in every process; of other things the type alone.

    >>> as_text({"b", "a"}), as_text((1, [2.0])), as_text(object())
    ("set('a' 'b')", 'tuple(1 list(2.0))', 'builtins.object')
    """
    if isinstance(value, PLAIN):
        return repr(value)
    items: Iterable[str] | None = None
    if isinstance(value, (tuple, list)):
        items = map(as_text, value)
    elif isinstance(value, (set, frozenset)):
        items = sorted(map(as_text, value))
    elif isinstance(value, dict):
        items = (f"{as_text(key)}: {as_text(item)}" for key, item in value.items())
    kind = type(value)
    return f"{kind.__name__}({' '.join(items)})" if items is not None else f"{kind.__module__}.{kind.__qualname__}"
