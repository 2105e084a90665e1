"""Functions and classes of libraries that a training loop replaces, and their return."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from dtsweep.errors import in_user_code

WATCHED = frozenset(
    {
        "torch",
        "torchvision",
        "transformers",
        "accelerate",
        "peft",
        "diffusers",
        "timm",
        "lightning",
        "lightning_fabric",
        "pytorch_lightning",
    }
)
"""Packages whose functions and classes are compared before and after a trial."""

_MISSING = object()


class Patches:
    """Functions, classes and methods of the packages that are watched and loaded."""

    def __init__(self) -> None:
        """Read them."""
        self._loaded = set(sys.modules)
        self._before = list(_namespaces())

    def restore(self) -> tuple[list[str], list[str]]:
        """Give replaced functions back.

        Returns:
            Names of those that are as before, and of those that another library, loaded in the
            meantime, has replaced for good. What it replaces whenever it is loaded is a part of it.
        """
        restored, remaining = [], []
        for owner, before in self._before:
            for name, old, new in _replaced(owner, before):
                label = f"{_name_of(owner)}.{name}"
                by = _origin(new)
                if _package(by) == _package(_module_of(owner)):
                    continue
                if by in sys.modules and by not in self._loaded and not _is_users(by):
                    if _replaces_when_loaded(by, name):
                        continue
                    remaining.append(f"{label}, replaced by {by}")
                    continue
                _put(owner, name, old)
                restored.append(label)
        return restored, remaining


def _namespaces() -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the modules of the packages and the classes that they define, with their contents."""
    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] not in WATCHED:
            continue
        contents = dict(vars(module))
        yield module, contents
        for value in contents.values():
            if issubclass(type(value), type) and value.__module__ == name:
                yield value, dict(vars(value))


def _replaced(owner: Any, before: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, old and new value of what was a function or class, and of new functions."""
    now = vars(owner)
    for name, old in before.items():
        new = now.get(name, _MISSING)
        if new is not old and _is_code(old):
            yield name, old, new
    if len(now) > len(before):
        for name in [*now.keys() - before.keys()]:
            if _is_code(now[name]) and _is_users(_origin(now[name])):
                yield name, _MISSING, now[name]


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, (property, staticmethod, classmethod))


def _origin(value: Any) -> str:
    """Name of the module that defines a function or class, which wrappers of it don't hide."""
    while isinstance(value, (functools.partial, staticmethod, classmethod, property)):
        inner = getattr(value, "func", None) or getattr(value, "fget", None)
        value = inner or getattr(value, "__func__", None)
    # Not `__module__`: `functools.wraps` copies it.
    names = getattr(value, "__globals__", None)
    if names is not None:
        return str(names.get("__name__", ""))
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _is_users(module: str) -> bool:
    """True for the module of a user, also where it is forgotten already."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return module not in sys.modules or (file is not None and in_user_code(file))


def _replaces_when_loaded(module: str, name: str) -> bool:
    """True if the top level of a module sets an attribute of this name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError):
        return False
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_set and node.attr == name:  # type: ignore[attr-defined]  # an attribute
            return True
        waiting += ast.iter_child_nodes(node)
    return False


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _package(module: str) -> str:
    package = module.partition(".")[0]
    if "lightning" in package:
        return "lightning"
    return package


def _module_of(owner: Any) -> str:
    return str(owner.__module__ if isinstance(owner, type) else owner.__name__)


def _name_of(owner: Any) -> str:
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}"
    return str(owner.__name__)
