"""From the axes of a sweep to its points, the impossible ones with their reason."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dtsweep.errors import SweepError, quoted
from dtsweep.sweep.checks import INFERENCE, as_scalar, axis_values, is_search_space
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.modes import (
    AS_WRITTEN,
    CLOSED_LOOP,
    OPEN_LOOP,
    OWN,
    SERVING,
    has_own_mode,
)
from dtsweep.sweep.point import Point, World, identity
from dtsweep.sweep.point_axes import AXES
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.values import (
    ARGS,
    OF_LOOPS,
    Scalar,
    coerced,
    is_own_loop,
    python_value,
    with_fields,
    workload_types,
    workload_value,
)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A point that a sweep lists, and why it is skipped if it is."""

    point: Point
    reason: str | None = None
    """None where the point is to be measured."""

    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    """Columns whose values differ from the point's: a `global_batch` that does not divide."""


def candidates(sweep: Sweep) -> list[Candidate]:
    """List all points of a sweep once each, the skipped ones with their reason.

    The order follows the axes, the last one fastest; the same sweep gives the same list.

    Raises:
        SweepError: for a value that no point can have, or a function that fails.
    """
    seen: dict[str, Candidate] = {}
    for values in _combinations(sweep):
        candidate = _candidate(sweep, values)
        seen.setdefault(identity(candidate.point, overrides=dict(candidate.overrides)), candidate)
    return list(seen.values())


def narrow(sweep: Sweep, settings: Mapping[str, list[Scalar]]) -> Sweep:
    """Give axes other values, as `--set axis=v1,v2` does; an axis that isn't there is added."""
    if not settings:
        return sweep
    axes = {**sweep.axes, **settings}
    for new, old in (("accumulation", "global_batch"), ("global_batch", "accumulation")):
        if new in settings and old not in settings:
            axes.pop(old, None)
    still_drawn = any(is_search_space(axis) for axis in axes.values())
    return replace(sweep, axes=axes, samples=sweep.samples if still_drawn else None)


def parse_setting(text: str, *, option: str = "--set") -> tuple[str, list[Scalar]]:
    """Read `axis=v1,v2`: numbers, true, false and none are what they look like, the rest is text.

    A comma between brackets, braces, parentheses or quotes is part of a value. Quotes around a
    whole value are left out. Values of environment variables are text as it stands, and `none` as
    the value of an argument is.

    >>> parse_setting("staleness=0,none"), parse_setting("env.OMP_DYNAMIC=true")
    (('staleness', [0, None]), ('env.OMP_DYNAMIC', ['true']))
    >>> parse_setting("args.x=8,1e-3,true,none,007")
    ('args.x', [8, 0.001, True, 'none', '007'])
    >>> parse_setting("args.widths=[64,64],[256]"), parse_setting("args.name='a,b',c")
    (('args.widths', ['[64,64]', '[256]']), ('args.name', ['a,b', 'c']))

    Raises:
        SweepError: it has no name, or no values; a bracket or a quote is not closed.
    """
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals or not values.strip() or not name:
        raise SweepError(
            f"{option} {quoted(text)} has no values; write axis=value or axis=value,value"
        )
    try:
        texts = _split(values)
    except ValueError as error:
        raise SweepError(f"{option} {quoted(text)} {error}", word=name) from error
    parse: Callable[[str], Scalar] = _parse
    if name.startswith("env."):
        parse = str
    elif name.startswith(ARGS):
        parse = _parse_argument
    return name, [parse(value) for value in texts]


def _split(values: str) -> list[str]:
    """Split values at commas that stand outside of brackets and quotes.

    A quote counts at the beginning of a value and inside brackets: `it's` is a word.

    Raises:
        ValueError: a bracket or a quote is not closed.
    """
    texts, opened, quote = [""], 0, ""
    for letter in values:
        if letter == "," and not opened and not quote:
            texts.append("")
            continue
        if quote:
            quote = quote.removesuffix(letter)
        elif letter in "\"'" and (opened or not texts[-1].strip()):
            quote = letter
        elif letter in "[{(":
            opened += 1
        elif letter in "]})":
            opened = max(0, opened - 1)
        texts[-1] += letter
    if quote or opened:
        missing = "a quote" if quote else "a bracket"
        raise ValueError(f"has {missing} that is not closed; close it, or leave it out")
    return [_unquoted(text.strip()) for text in texts]


def _unquoted(text: str) -> str:
    """Leave out the quotes around a whole value."""
    if len(text) < 2 or text[0] not in "\"'":
        return text
    if text.find(text[0], 1) == len(text) - 1:
        return text[1:-1]
    return text


def _parse(text: str) -> Scalar:
    words: dict[str, Scalar] = {"none": None, "null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _parse_argument(text: str) -> Scalar:
    """Read a value of an argument: the script has to get a text such as `none` or `007` as it is.

    `nan` and `1_000` are texts, too.
    """
    is_number = re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", text)
    if is_number or text.lower() in ("true", "false"):
        return _parse(text)
    return text


def _combinations(sweep: Sweep) -> Iterator[dict[str, Scalar]]:
    """Yield the values of all axes but the functions: the product of the lists, times the draws."""
    drawn = {name: axis for name, axis in sweep.axes.items() if is_search_space(axis)}
    lists = {
        name: axis_values(axis)
        for name, axis in sweep.axes.items()
        if name not in drawn and not callable(axis)
    }
    draws: list[tuple[Scalar, ...]] = [()]
    if drawn:
        columns = [_draws(name, space, sweep) for name, space in drawn.items()]
        draws = list(zip(*columns, strict=True))
    for values in itertools.product(*lists.values()):
        for draw in draws:
            yield dict(zip([*lists, *drawn], [*values, *draw], strict=True))


def _draws(name: str, space: Any, sweep: Sweep) -> list[Scalar]:
    from numpy.random import RandomState

    # Each axis has a stream of its own: whatever --set does to the others, these draws stay as they
    # are.
    seed = hashlib.sha256(f"{sweep.seed} {name}".encode()).digest()[:4]
    random = RandomState(int.from_bytes(seed, "big"))
    return [as_scalar(name, _draw(name, space, random)) for _ in range(sweep.samples or 0)]


def _draw(name: str, space: Any, random: Any) -> Any:
    try:
        value = space.sample(random_state=random)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise SweepError(
            f"axis {name!r} can't be drawn ({error}); check its bounds", word=name
        ) from error
    return python_value(value)


@dataclass(frozen=True, kw_only=True)
class _Asked(Point):
    """A point with a given `global_batch` and unknown accumulation, as axis functions see it."""

    asked: int

    @property
    def global_batch(self) -> int:
        return self.asked


def _candidate(sweep: Sweep, values: dict[str, Scalar]) -> Candidate:
    for name, axis in sweep.axes.items():
        if callable(axis) and not is_search_space(axis):
            value = _call(axis, _point(sweep, values), name=name, values=values)
            values[name] = as_scalar(name, value)
    point = _point(sweep, values)
    if not isinstance(point, _Asked):
        return Candidate(point=point, reason=_reason(sweep, point, values))
    others = {name: value for name, value in values.items() if name != "global_batch"}
    divided, divisor, parts = _divisor(point, values)
    if point.asked % divisor:
        reason = f"global_batch {point.asked} is not a multiple of {parts}"
        overrides: dict[str, Scalar] = {"global_batch": point.asked, divided: None}
        return Candidate(point=_point(sweep, others), reason=reason, overrides=overrides)
    point = _point(sweep, {**others, divided: point.asked // divisor})
    return Candidate(point=point, reason=_reason(sweep, point, values))


def _divisor(point: Point, values: Mapping[str, Scalar]) -> tuple[str, int, str]:
    """The field that a `global_batch` gives, and its divisor, as a number and in words."""
    if is_own_loop(point.workload) and "micro_batch" not in values:
        # The passes of the user's loop are not known.
        words = f"{point.workers} workers"
        if point.data_parallel < point.workers:
            words = f"{point.data_parallel} groups of {point.grid.model} workers"
        return "micro_batch", point.data_parallel, words
    per_pass = point.samples_per_pass
    passes = f"{point.data_parallel} workers × {point.micro_batch} samples"
    if per_pass != point.workers * point.micro_batch:
        passes = f"{per_pass} samples per pass"
    return "accumulation", per_pass, passes


def _point(sweep: Sweep, values: Mapping[str, Scalar]) -> Point:
    """Make a point of values by the names that axes have."""
    settings: dict[str, Any] = {name: value for name, value in values.items() if name in AXES}
    if sweep.kind == INFERENCE:
        settings = _of_inference(settings)
    elif settings.get("sync") in SERVING:
        raise SweepError(
            f"sync={settings['sync']} is of inference; leave it out, and write "
            "Sweep(kind='inference')",
            word="sync",
        )
    elif is_own_loop(sweep.workload):
        settings.setdefault("sync", AS_WRITTEN)
    elif has_own_mode(sweep.workload):
        settings.setdefault("sync", OWN)
    settings["environment"] = {
        name.removeprefix("env."): str(value)
        for name, value in values.items()
        if name.startswith("env.") and value is not None
    }
    if "global_batch" not in values:
        return _with_workload(Point(**settings, workload=sweep.workload), values)
    asked = coerced("global_batch", values["global_batch"], int)
    if asked < 1:
        raise SweepError(f"global_batch={asked} must be at least 1", word="global_batch")
    return _with_workload(_Asked(**settings, workload=sweep.workload, asked=asked), values)


def _of_inference(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a closed or an open loop, without those that it does not read.

    >>> _of_inference({"rate": None, "micro_batch": 8, "max_batch": 4})
    {'micro_batch': 8, 'sync': 'closed_loop'}
    >>> _of_inference({"rate": 5, "micro_batch": 8, "max_batch": 4})
    {'rate': 5, 'max_batch': 4, 'sync': 'open_loop', 'micro_batch': 1}
    """
    if settings.get("rate") is None:
        unread = SERVING[OPEN_LOOP].reads
        read = {name: value for name, value in settings.items() if name not in unread}
        return {**read, "sync": CLOSED_LOOP}
    read = {name: value for name, value in settings.items() if name != "micro_batch"}
    return {**read, "sync": OPEN_LOOP, "micro_batch": 1}


def _with_workload(point: Point, values: Mapping[str, Scalar]) -> Point:
    """Give the workload of a point the values of the axes `workload.FIELD`."""
    axes = {
        name: name.removeprefix("workload.")
        for name in values
        if name.startswith(("workload.", *OF_LOOPS))
    }
    if not axes:
        return point
    hints = workload_types(point.workload)
    changes = {name: workload_value(name, values[axis], hints[name]) for axis, name in axes.items()}
    try:
        return replace(point, workload=with_fields(point.workload, changes))
    except Exception as error:  # the user's own __post_init__ may raise anything
        named = [axis for axis, name in axes.items() if name in str(error)]
        word = next(iter([*named, *axes]))
        settings = " ".join(f"{axis}={values[axis]}" for axis in axes)
        raise SweepError(
            f"{type(point.workload).__name__} refuses {settings}: {error}", word=word
        ) from error


def _reason(sweep: Sweep, point: Point, values: Mapping[str, Scalar]) -> str | None:
    if reason := impossible(point):
        return reason
    if sweep.skip is None:
        return None
    reason = _call(sweep.skip, point, name="skip", values=values)
    if reason is False:
        # As `lambda p: condition and "reason"` gives it.
        return None
    if reason is not None and not (isinstance(reason, str) and reason):
        raise SweepError(
            f"skip returned {quoted(reason)}; return a reason (a string) or None", word="skip"
        )
    return reason


def _call(
    function: Callable[[Point], Any], point: Point, *, name: str, values: Mapping[str, Scalar]
) -> Any:
    try:
        return function(point)
    except Exception as error:  # the user's own code may raise anything
        settings = " ".join(f"{axis}={value}" for axis, value in values.items())
        raise SweepError(
            f"{name} failed for {settings or 'the default point'}: {type(error).__name__}: {error}",
            word=name,
        ) from error


def by_world(points: Iterable[Point]) -> dict[World, list[Point]]:
    """Sort points by world, largest first: the order in which sessions are started."""
    inside: dict[World, list[Point]] = {}
    for point in points:
        inside.setdefault(point.world, []).append(point)

    def order(world: World) -> tuple[Any, ...]:
        return -world.workers, world.placement, world.environment

    return {world: inside[world] for world in sorted(inside, key=order)}
