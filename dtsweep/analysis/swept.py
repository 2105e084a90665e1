"""Swept axes: those that measured points differ in, with their measured values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dtsweep.analysis.setting_values import WITHOUT_EFFECT, axis_name, text_of
from dtsweep.analysis.settings import NODES, Settings
from dtsweep.analysis.setups import varies_nodes
from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.modes import MODE_FIELDS

_FAMILIES = {"sync": MODE_FIELDS, "compression": COMPRESSION_FIELDS}
"""Axes that are one with the fields that some of their values read."""

Level = dict[str, Any]
"""Settings of one value of an axis, by column."""


class SweptAxis(NamedTuple):
    """An axis with its measured values; each point has one of them."""

    name: str
    levels: list[Level]
    numbers: list[int]
    """Level of each measured point."""

    is_identifiable: bool = True


def swept_axes(measured: Sequence[Settings]) -> list[SweptAxis]:
    """List the axes that measured points differ in.

    The number of nodes is one of them if as many workers ran on different numbers.
    """
    of_family = {name for fields in _FAMILIES.values() for name in fields}
    axes = []
    for name in dict.fromkeys(name for one in measured for name in one):
        if name in of_family or name in WITHOUT_EFFECT:
            continue
        if name == NODES and not varies_nodes(measured):
            continue
        axis = axis_with(axis_name(name), (name, *_FAMILIES.get(name, ())), measured)
        if len(axis.levels) > 1:
            axes.append(axis)
    return axes


def axis_with(name: str, columns: Sequence[str], measured: Sequence[Settings]) -> SweptAxis:
    """Axis of some columns, whose levels are the combinations that were measured."""
    levels: dict[tuple[str, ...], Level] = {}
    for one in measured:
        key = tuple(text_of(one.get(column)) for column in columns)
        levels.setdefault(key, {column: one.get(column) for column in columns})
    places = {key: number for number, key in enumerate(levels)}
    numbers = [places[tuple(text_of(one.get(column)) for column in columns)] for one in measured]
    return SweptAxis(name, list(levels.values()), numbers)
