"""Configurations that a user asks for, as settings."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dtsweep.analysis.settings import NODES, Settings, axis_name, settings_of_rows, text_of
from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.sweep.axes import parse_setting
from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.modes import AS_WRITTEN, MODE_FIELDS, OF_THE_USER, UNDECLARED, mode_in_results
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import AXES, CHOSEN_FIELDS
from dtsweep.sweep.values import Scalar

if TYPE_CHECKING:
    import pandas as pd

_MOST = 1000
"""Configurations that can be asked for at once."""


class Asked(NamedTuple):
    """A configuration that was asked for."""

    settings: Settings
    """All settings of it."""

    base: pd.Series[Any]
    """Measured point whose settings it has where none were given."""


def read_settings(texts: Sequence[str]) -> list[dict[str, Scalar]]:
    """Read settings as a user writes them, several values for several configurations.

    Args:
        texts: one for each configuration or product of them, `workers=2,4 sync=ddp`.

    Raises:
        SweepError: a text can't be read, a setting stands twice, or there are too many.

    >>> read_settings(["micro_batch=8 workers=2,4"])
    [{'micro_batch': 8, 'workers': 2}, {'micro_batch': 8, 'workers': 4}]
    """
    configurations: list[dict[str, Scalar]] = []
    for text in texts:
        values: dict[str, list[Scalar]] = {}
        for word in _words(text):
            name, listed = parse_setting(word, option="setting")
            if name in values:
                raise SweepError(f"{name} is set twice; give all its values at once: {name}=1,2")
            values[name] = listed
        for chosen in itertools.product(*values.values()):
            configurations.append(dict(zip(values, chosen, strict=True)))
            if len(configurations) > _MOST:
                raise SweepError(f"more than {_MOST:,} configurations; give fewer values")
    return configurations


def _words(text: str) -> list[str]:
    """Split settings at spaces that are not quoted."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SweepError(f"settings {quoted(text)} can't be read: {error}") from error


def varied_names(configurations: Sequence[Mapping[str, Scalar]]) -> set[str]:
    """Name the settings in which configurations differ.

    >>> varied_names([{"workers": 2, "sync": "ddp"}, {"workers": 4, "sync": "ddp"}])
    {'workers'}
    """
    names = {name for one in configurations for name in one}
    return {name for name in names if len({text_of(one.get(name)) for one in configurations}) > 1}


def asked_of(
    settings: Mapping[str, Scalar], points: pd.DataFrame, *, varied: Collection[str] = ()
) -> Asked:
    """Complete settings by those of the measured point that has most of them.

    Of several such points the one with the highest throughput counts.

    Args:
        settings: by the names that axes have in a sweep file.
        points: measured points of one model and environment, rows of `over_launches`.
        varied: names in which several configurations differ. They don't count for the choice, so
            that the configurations have all other settings in common.

    Raises:
        SweepError: a name is not a setting of these points, or no point can have these values.
    """
    measured = settings_of_rows(points)
    known = {axis_name(name): name for one in measured for name in one}
    known |= {name: name for name in (*AXES, NODES)}
    for name in settings:
        if name not in known and not name.startswith("env."):
            raise SweepError(f"setting {name!r} is unknown; {did_you_mean(name, known)}", word=name)
    given = {known.get(name, name): value for name, value in settings.items()}
    common = {known.get(name, name): settings[name] for name in settings if name not in varied}

    def nearness(row: int) -> tuple[int, float]:
        has = measured[row]
        equal = sum(text_of(has.get(name)) == text_of(value) for name, value in common.items())
        return equal, float(points["samples_per_s"].iloc[row])

    number = max(range(len(measured)), key=nearness)
    base = measured[number]
    point = _point(base, given)
    of_point = dict(point.columns())
    # What a row leaves open stays unknown: of a table's rows, and the optimizer of a workload.
    unknown = [name for name in of_point if name not in CHOSEN_FIELDS and base.get(name) is None]
    of_point |= {name: None for name in unknown if name not in given}
    if _is_undeclared(base, given):
        of_point = {name: of_point[name] for name in of_point if name not in ("sync", *MODE_FIELDS)}
    if of_point["compression"] == base.get("compression"):
        # Rows of tables don't say what these were.
        unknown = [name for name in COMPRESSION_FIELDS if base.get(name) is None]
        of_point |= {name: None for name in unknown if name not in given}
    others = {name: value for name, value in given.items() if name not in AXES}
    settings = {**base, **of_point, NODES: None, **others}
    _check_nodes(settings)
    return Asked(settings, points.iloc[number])


def _is_undeclared(base: Settings, given: Mapping[str, Scalar]) -> bool:
    """True if the measured point's mode is asked for, and nobody declares it here."""
    sync = base.get("sync")
    if not isinstance(sync, str) or given.get("sync", sync) != sync:
        return False
    return mode_in_results(sync) is UNDECLARED


def _check_nodes(settings: Settings) -> None:
    """Refuse a number of nodes that the workers can't run on; None leaves it open."""
    nodes, workers = settings[NODES], settings["workers"]
    if nodes is None or (type(nodes) is int and 1 <= nodes <= workers):
        return
    raise SweepError(
        f"nodes={nodes!r} must be a whole number from 1 to the {workers} workers", word=NODES
    )


def _point(base: Settings, given: Mapping[str, Scalar]) -> Point:
    """Point of the given axes, with those of a measured point that its mode can read."""
    axes = {name: base[name] for name in AXES if base.get(name) is not None}
    for axis, read in (("sync", MODE_FIELDS), ("compression", COMPRESSION_FIELDS)):
        if axis in given and given[axis] != base.get(axis):
            axes = {name: value for name, value in axes.items() if name not in read}
    asked = {name: value for name, value in given.items() if name in AXES}
    if _is_undeclared(base, given):
        # A mode of a table: the point is checked without what only that mode could read.
        axes = {name: value for name, value in axes.items() if name not in MODE_FIELDS}
        asked["sync"] = AS_WRITTEN
    point = Point(**{**axes, **asked})
    if (name := point.unread_field) is not None and name in CHOSEN_FIELDS:
        raise SweepError(f"{point.unread_by} has no {name}; leave it out", word=name)
    # A workload knows the reasons against modes of the user.
    if point.sync not in OF_THE_USER and (reason := impossible(point)):
        raise SweepError(f"no such point can be measured: {reason}")
    return point
