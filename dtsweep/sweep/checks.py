"""Validation of a sweep's workload and axes, before any point is built."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, nearest, quoted
from dtsweep.secret import has_credentials, is_secret
from dtsweep.sweep.arguments import check_arguments
from dtsweep.sweep.loader_axes import check_loader_setting
from dtsweep.sweep.modes import declaration_of, has_train_step
from dtsweep.sweep.named_grid import MEANINGS
from dtsweep.sweep.point_axes import AXES
from dtsweep.sweep.values import (
    ARGS,
    LOADER,
    NAME_LENGTH,
    Scalar,
    is_own_loop,
    is_storable_name,
    workload_fields,
)
from dtsweep.sweep.variables import check_variable_name, check_variable_value


def check_workload(workload: Any, *, kind: str = "training") -> None:
    """Refuse what is not a workload, by the name of what is wrong.

    Raises:
        SweepError: no dataclass, a method or declaration missing, or a field that JSON can't hold.
    """
    if isinstance(workload, type):
        name = workload.__name__
        raise SweepError(f"workload is the class {name}; give an object of it: {name}()", word=name)
    name = type(workload).__name__
    _check_methods(workload, kind)
    if not is_dataclass(workload):
        raise SweepError(
            f"workload {name} is not a dataclass; put @dataclass(frozen=True) above it", word=name
        )
    _check_own_mode(workload)
    check_arguments(getattr(workload, "arguments", ()) if is_own_loop(workload) else ())
    for field_name, value in workload_fields(workload).items():
        _check_storable(field_name, of=f"field {quoted(field_name)} of workload {name}")
        if not _is_json(value):
            raise SweepError(
                f"field {field_name!r} of workload {name} is {quoted(value)}, no JSON value; make "
                "it in a method",
                word=field_name,
            )
        if isinstance(value, str) and value and is_secret(field_name):
            raise SweepError(
                f"the name of field {field_name!r} of workload {name} marks a secret, and "
                "fields are stored; rename it, or read the secret from a variable in a method, and "
                "set that in "
                "Resources(environment=…)",
                word=field_name,
            )
        if has_credentials(json.dumps(value)):
            raise SweepError(
                f"field {field_name!r} of workload {name} has a URL with a password, or a token, "
                "and fields are stored; read it from a variable in a method, and set that in "
                "Resources(environment=…)",
                word=field_name,
            )
        if isinstance(value, int) and not abs(value) < 2**63:
            raise SweepError(
                f"field {field_name!r} of workload {name} is {quoted(value)}, which 64 bits can't "
                "hold; use a smaller one",
                word=field_name,
            )


INFERENCE = "inference"
"""Kind of a sweep that measures `serve` of its workload."""

REPLICAS = {"replicas": "workers"}
"""Names of axes in such a sweep, for those of points."""

_INFERENCE_AXES = (
    "workers",
    "replicas",
    "micro_batch",
    "rate",
    "max_batch",
    "max_wait_s",
    "precision",
    "compile",
    "attention",
    "placement",
)
"""Fields of a point that can be axes of such a sweep."""


def check_kind(kind: str, axes: Iterable[str]) -> None:
    """Refuse an unknown kind of sweep, and axes that don't belong to it.

    Raises:
        SweepError: with what to write instead.
    """
    if kind not in ("training", INFERENCE):
        raise SweepError(
            f"kind={quoted(kind)} is unknown; {did_you_mean(str(kind), ['training', INFERENCE])}",
            word="kind",
        )
    if kind == "training":
        if served := sorted({"rate", "max_batch", "max_wait_s", "replicas"} & {*map(str, axes)}):
            raise SweepError(
                f"axis {served[0]!r} is of inference; write Sweep(kind='inference')",
                word=served[0],
            )
        return
    if {"replicas", "workers"} <= {*axes}:
        raise SweepError("axes 'replicas' and 'workers' are one; leave one out", word="replicas")
    for axis in map(str, axes):
        if not axis.startswith(("workload.", "env.")) and axis not in _INFERENCE_AXES:
            raise SweepError(
                f"axis {axis!r} is none of inference; {did_you_mean(axis, _INFERENCE_AXES)}",
                word=axis,
            )


def _check_methods(workload: Any, kind: str) -> None:
    """Refuse a workload without a method that it needs, by the method's name."""
    name = type(workload).__name__
    methods = ["build", "batch", "loss"]
    if is_own_loop(workload):
        methods = []
    elif kind == INFERENCE:
        methods = ["build", "batch", "serve"]
    elif has_train_step(workload):
        methods.remove("loss")
    if "batch" in methods and callable(getattr(workload, "dataset", None)):
        # Batches are made of its items, unless it has both.
        methods.remove("batch")
    for method in methods:
        if not callable(getattr(workload, method, None)):
            public = [attribute for attribute in dir(workload) if not attribute.startswith("_")]
            near = nearest(method, public)
            hint = f"it needs build, batch or dataset, and {methods[-1]}"
            if near:
                hint = f"did you call it {near!r}?"
            raise SweepError(f"workload {name} has no method {method}(); {hint}", word=name)


def _check_own_mode(workload: Any) -> None:
    """Refuse a declaration that can't be used, and parts of an own mode that nothing would call."""
    name = type(workload).__name__
    own_mode = declaration_of(workload)
    if own_mode is not None:
        for read in own_mode.reads:
            if read not in AXES:
                raise SweepError(
                    f"OwnMode(reads={quoted(own_mode.reads)}) has {quoted(read)}, which is not a "
                    f"field of a point; {did_you_mean(str(read), AXES)}",
                    word="reads",
                )
        return
    if is_own_loop(workload):
        return
    for part in ("own_mode", "train_step"):
        if hasattr(type(workload), part):
            others = {known for known in dir(workload) if not known.startswith("_")} - {"prepare"}
            near = nearest("prepare", sorted(others))
            hint = f"did you call it {near!r}?" if near else f"add it, or leave {part} out"
            raise SweepError(
                f"workload {name} has {part} but no method prepare(model, job), without which it "
                f"has no effect; {hint}",
                word=name,
            )


def _is_json(value: Any) -> bool:
    try:
        again = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return False
    return bool(again == (list(value) if isinstance(value, tuple) else value))


def check_axis(name: str, axis: Any, *, workload: Any) -> None:
    """Refuse an axis that is not a field of a point or of the workload, or that holds no values.

    Raises:
        SweepError: with the nearest name, or with what to write instead.
    """
    if is_own_loop(workload):
        _check_effect(name, workload)
    if str(name).startswith(ARGS) and is_own_loop(workload):
        if name == ARGS:
            raise SweepError("axis 'args.' has no name; write args.NAME", word=name)
        _check_storable(name, of=f"axis {quoted(name)}")
    elif str(name).startswith(LOADER) and is_own_loop(workload):
        check_loader_setting(str(name))
    else:
        _check_name(name, workload)
    if name.startswith("env."):
        check_variable_name(name.removeprefix("env."), where="an axis env.NAME")
    if name.startswith("env.") and is_secret(name.removeprefix("env.")):
        raise SweepError(
            f"the name of axis {name!r} marks a secret, and the values of axes "
            "are printed and "
            "stored; rename it, or set the secret in Resources(environment=…), which stores a hash "
            "of it",
            word=name,
        )
    if is_search_space(axis):
        if axis.is_function():
            raise SweepError(
                f"axis {name!r} is tune.sample_from, which no seed reaches; write a function of "
                "the point: lambda p: …",
                word=name,
            )
    elif not callable(axis):
        _check_values(name, axis)


_READ_BY_OWN_LOOPS = frozenset({"workers", "placement"})
"""Fields of a point that have an effect on each training loop of the user."""

READABLE_BY_OWN_LOOPS = (
    "micro_batch",
    "accumulation",
    "global_batch",
    "optimizer",
    "learning_rate",
    "precision",
    "clip_norm",
)
"""Fields that a function may read, and that an argument of a script may take."""


def _fields_read(workload: Any) -> set[str]:
    """Fields of a point that may be axes of a training loop of the user."""
    reads = {*_READ_BY_OWN_LOOPS, *workload.reads()}
    if {"micro_batch", "accumulation"} <= reads:
        # It follows from these.
        reads.add("global_batch")
    return reads


def _check_effect(name: str, workload: Any) -> None:
    """Refuse an axis that a training loop of the user does not read."""
    if name not in {*AXES, "global_batch"} - _fields_read(workload):
        return
    names = getattr(workload, "names", None)
    hint = ""
    if names is not None and name in (*READABLE_BY_OWN_LOOPS, *MEANINGS):
        hint = f"; give it to an argument of the script by Script(names={{{name!r}: 'ARGUMENT'}})"
    elif names is not None:
        hint = "; use an axis args.NAME for an argument of the script"
    raise SweepError(
        f"axis {name!r} has no effect on a training loop of your own, which runs as it is "
        f"written{hint}",
        word=name,
    )


def _check_storable(name: str, *, of: str) -> None:
    """Refuse a name that no column of the results can have."""
    if not is_storable_name(name):
        raise SweepError(
            f"{of} can't be a column of the results; use at most {NAME_LENGTH} characters, no "
            "control characters and no line breaks",
            word=name,
        )


def _check_name(name: Any, workload: Any) -> None:
    settable = [item.name for item in fields(workload) if item.init]
    lists = (list, dict, tuple)
    workload_names = [one for one in settable if not isinstance(getattr(workload, one), lists)]
    # A workload's field is found without its prefix too: to forget it is the likeliest slip.
    allowed = {field: f"workload.{field}" for field in workload_names}
    allowed |= {full: full for full in [*allowed.values(), *AXES, "global_batch"]}
    if name in allowed.values() or (
        isinstance(name, str) and name.startswith("env.") and name != "env."
    ):
        return
    if is_own_loop(workload):
        hint = _hint_on_arguments(str(name), [*_READ_BY_OWN_LOOPS, *workload.reads()])
    elif near := nearest(str(name), allowed):
        hint = f"did you mean {allowed[near]!r}?"
    else:
        names = dict.fromkeys([*AXES, "global_batch", *allowed.values(), "env.NAME"])
        hint = did_you_mean(str(name), names)
    raise SweepError(
        f"axis {name!r} is not a field of a point or of the workload; {hint}", word=str(name)
    )


def _hint_on_arguments(name: str, fields_read: Iterable[str]) -> str:
    """Say what an axis of a training loop of the user may be that is not a field."""
    hint = f"for an argument of the training loop write 'args.{name.lstrip('-')}'"
    near = nearest(name, fields_read)
    if near:
        hint = f"did you mean {near!r}? Else {hint}"
    return hint


def _check_values(name: str, axis: Any) -> None:
    values = axis_values(axis)
    if values is None or type(values) in (str, int, float, bool):
        raise SweepError(
            f"axis {name!r} is {quoted(axis)}, no list; write [{quoted(axis)}]", word=name
        )
    if not isinstance(values, (list, tuple, range)):
        expression = "a list [value, value] of it"
        if isinstance(values, (set, frozenset)):
            expression = "sorted(…)"
        if hasattr(values, "tolist"):
            expression = "….tolist()"
        raise SweepError(
            f"axis {name!r} is a {type(axis).__name__}, no list; write {expression}", word=name
        )
    if not values:
        raise SweepError(
            f"axis {name!r} is empty; give at least one value or leave it out", word=name
        )
    for value in values:
        as_scalar(name, value)


def axis_values(axis: Any) -> Any:
    """The values of an axis that is a list, or a list in Ray Tune's words (`tune.grid_search`)."""
    if isinstance(axis, dict) and set(axis) == {"grid_search"}:
        return axis["grid_search"]
    return axis


def is_search_space(axis: Any) -> bool:
    """True if an axis is a search-space object of Ray Tune; found out without importing it."""
    return any(kind.__module__ == "ray.tune.search.sample" for kind in type(axis).__mro__)


def as_scalar(name: str, value: Any) -> Scalar:
    """Return a value that an axis may hold.

    Raises:
        SweepError: for anything but a JSON scalar, a whole number that 64 bits can't hold, a URL
            with credentials, or what no environment variable can hold.
    """
    if value is not None and type(value) not in (str, int, float, bool):
        kind = type(value).__name__
        raise SweepError(
            f"axis {name!r} has {quoted(value)} ({kind}), no JSON scalar; use str, int, float, "
            "bool or None",
            word=name,
        )
    if isinstance(value, (int, float)) and not abs(value) < (
        2**63 if isinstance(value, int) else float("inf")
    ):
        raise SweepError(
            f"axis {name!r} has {quoted(value)}, no JSON scalar; use a finite 64-bit number",
            word=name,
        )
    if isinstance(value, str) and name.startswith(("workload.", ARGS)):
        _check_no_secret(name)
    if isinstance(value, str) and has_credentials(value):
        raise SweepError(
            f"axis {name!r} has a URL with a password, or a token, and the values of axes are "
            "printed and stored; set it in Resources(environment=…), which stores a hash of it",
            word=name,
        )
    if isinstance(value, str) and name.startswith("env."):
        check_variable_value(value, where=f"axis {name!r}", word=name)
    return value  # type: ignore[no-any-return]  # the lines above made sure


def _check_no_secret(name: str) -> None:
    """Refuse an axis `workload.FIELD` or `args.NAME` of texts whose name marks a secret."""
    if not is_secret(name.removeprefix("workload.").removeprefix(ARGS)):
        return
    way_out = "rename it, or set the secret in Resources(environment=…), which stores a hash of it"
    if name.startswith(ARGS):
        way_out = (
            "have the script read it from a variable, and set that in Resources(environment=…)"
        )
    raise SweepError(
        f"the name of axis {name!r} marks a secret, and the values of axes "
        f"are printed and stored; {way_out}",
        word=name,
    )
