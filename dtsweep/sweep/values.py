"""Values of axes and of a workload's fields, in the types that they are declared with."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from dataclasses import fields, replace
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dtsweep.errors import CONTROL, SweepError, quoted

Scalar = str | int | float | bool | None
"""Allowed value of an axis: a JSON scalar."""


def python_value(value: Any) -> Any:
    """Convert a NumPy value to a Python one; others stay."""
    if hasattr(value, "item"):
        return value.item()
    return value


ARGS = "args."
"""Beginning of the names of arguments, as axes and as fields of a workload."""

LOADER = "loader."
"""Beginning of the names of settings of data loaders, likewise."""

OF_LOOPS = (ARGS, LOADER)
"""Beginnings of names that only a training loop of the user has."""


NAME_LENGTH = 300
"""Most characters of the name of a workload's field or argument, `args.` included."""


def is_storable_name(name: str) -> bool:
    r"""True if the results can have a column for a field or argument of this name.

    Commands and code that have such a name quote it.

    >>> is_storable_name("args.lr[0]"), is_storable_name("args.a\nb"), is_storable_name("x" * 301)
    (True, False, False)
    """
    is_short = 0 < len(name) <= NAME_LENGTH
    return is_short and not CONTROL.search(name) and not {"\n", "\t"} & {*name}


def workload_types(workload: Any) -> Mapping[str, Any]:
    """The types of a workload's fields by name, as annotated.

    Raises:
        SweepError: for an annotation that names what is not there.
    """
    kind: Any = type(workload)
    types = _annotations(kind)
    if not is_own_loop(workload):
        return types
    own = {name: hint for name, hint in types.items() if name not in _NOT_STORED}
    arguments = {f"{ARGS}{name}": hint for name, hint in workload.argument_types().items()}
    return {**own, **arguments, **workload.loader_types()}


_NOT_STORED = ("args", "loader", "arg_types", "driven")
"""Fields of a training loop of the user that are stored one by one, or follow from the axes."""


def is_own_loop(workload: Any) -> bool:
    """True if a workload is a training loop of the user, with arguments that axes name.

    Its arguments by name, `args`, count as fields `args.NAME`, and `loader` as `loader.NAME`.
    """
    return hasattr(workload, "argument_types")


def with_fields(workload: Any, values: Mapping[str, Any]) -> Any:
    """Copy of a workload with these fields replaced, those in `OF_LOOPS` among them."""
    changes = {name: v for name, v in values.items() if not name.startswith(OF_LOOPS)}
    for name in values.keys() - changes.keys():
        holder, _, inner = name.partition(".")
        before = changes.get(holder, getattr(workload, holder))
        changes[holder] = {**before, inner: values[name]}
    return replace(workload, **changes)


def _value_of(workload: Any, name: str) -> Any:
    """Value of a field of a workload, or of one in `OF_LOOPS`."""
    if name.startswith(OF_LOOPS):
        holder, _, inner = name.partition(".")
        return getattr(workload, holder)[inner]
    return getattr(workload, name)


@cache
def _annotations(kind: Any) -> Mapping[str, Any]:
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        name = kind.__name__
        raise SweepError(
            f"an annotation of workload {name} can't be read: {error}; import it", word=name
        ) from None
    return MappingProxyType({item.name: hints[item.name] for item in fields(kind)})


def column_types(workload: Any) -> dict[str, type]:
    """The types of a workload's fields by name, None left out.

    `dict` stands for all that is stored as JSON: a list, a dict, or a field of several scalar
    types.
    """
    types: dict[str, type] = {}
    for name, hint in workload_types(workload).items():
        if get_origin(hint) is Literal:
            kinds = {type(value) for value in get_args(hint)}
        else:
            kinds = {*_kinds(hint)}
        kinds -= {type(None)}
        if kinds == {int, float}:
            kinds = {float}
        types[name] = kinds.pop() if len(kinds) == 1 and kinds <= _SCALARS else dict
    return types


def stored_fields(workload: Any) -> dict[str, Scalar]:
    """The fields of a workload as `trials` has them, by the name of the column."""
    kinds = column_types(workload)
    values = read_fields(workload)
    return {
        f"workload_{name}": json.dumps(value, sort_keys=True)
        if kinds[name] is dict and value is not None
        else value
        for name, value in values.items()
    }


def read_fields(workload: Any) -> dict[str, Any]:
    """Fields that tell two workloads of one class apart; `unread_fields` of its model are None."""
    unread = getattr(workload, "unread_fields", ())
    values = {
        name: None if name in unread else value for name, value in workload_fields(workload).items()
    }
    script = getattr(workload, "script_file", None)
    if script is not None:
        # Wherever the script lies: its contents are a source.
        values["path"] = script.name
    return values


def workload_fields(workload: Any) -> dict[str, Any]:
    """All fields of a workload by name, in their types.

    Raises:
        SweepError: for a value of another type than its annotation.
    """
    return {
        name: workload_value(name, _value_of(workload, name), hint)
        for name, hint in workload_types(workload).items()
    }


def workload_value(name: str, value: Any, hint: Any) -> Any:
    """Give a value the type of a workload's field; None stays None, annotated or not.

    Raises:
        SweepError: the value has no such type.
    """
    if value is None:
        return None
    return coerced(f"workload.{name}", value, hint)


def coerced(name: str, value: Any, hint: Any) -> Any:
    """Give a value the type of its field: 1 is 1.0 for a float, 4.0 is 4 for a whole number.

    Values of fields that are not scalars come back unchanged.

    Raises:
        SweepError: the value has no such type.
    """
    kinds = _kinds(hint)
    if not kinds <= _SCALARS:
        return value
    if type(value) is int and abs(value) >= 1 << 63:
        raise SweepError(f"{name}={quoted(value)} must be a number of 64 bits", word=name)
    converted = _as_kind(value, kinds)
    is_infinite = type(converted) is float and not math.isfinite(converted)
    if type(converted) not in kinds or is_infinite:
        wanted = " or ".join(words for kind, words in _KINDS.items() if kind in kinds)
        raise SweepError(f"{name}={quoted(converted)} must be {wanted}", word=name)
    return converted


def _as_kind(value: Any, kinds: Set[Any]) -> Any:
    """A whole number as a float where only floats are allowed, and the other way round."""
    if type(value) is int and float in kinds and int not in kinds:
        return float(value)
    if type(value) is float and value.is_integer() and int in kinds and float not in kinds:
        return int(value)
    return value


@cache
def _kinds(hint: Any) -> frozenset[Any]:
    return frozenset(get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])


_KINDS = {
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    bool: "True or False",
    type(None): "None",
}
_SCALARS = frozenset(_KINDS)


def value_of_axis(point: Any, name: str) -> Any:
    """Value that a point has of an axis, a field of its workload or a variable among them."""
    if name.startswith(("workload.", *OF_LOOPS)):
        return _value_of(point.workload, name.removeprefix("workload."))
    if name.startswith("env."):
        return point.environment.get(name.removeprefix("env."))
    return getattr(point, name)
