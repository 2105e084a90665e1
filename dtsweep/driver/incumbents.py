"""Points that a point is raced against: the undominated ones of its semantics and model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.values import read_fields


class Rival(NamedTuple):
    """A point that was measured."""

    point_id: str
    latency_s: float
    samples_per_s: float


class Incumbents:
    """The points that a run has measured; each is known by its row."""

    def __init__(self) -> None:
        """Begin with none."""
        self._measured: dict[tuple[str, str | None], list[Rival]] = {}
        self._unbeaten: dict[tuple[str, str | None], list[Rival]] = {}
        self._models: dict[str, str | None] = {}

    def add(self, point: Point, row: Mapping[str, Any]) -> None:
        """Note a point that was measured, by its row; one of unknown samples is nobody's rival."""
        if row["samples_per_s"] is None:
            return
        self._models[_fields_of(point)] = row["model_digest"]
        product = row["semantics"], row["model_digest"]
        rival = Rival(row["point_id"], row["latency_s"], row["samples_per_s"])
        self._measured.setdefault(product, []).append(rival)
        self._unbeaten[product] = _with(self._unbeaten.get(product, []), rival)

    def of(self, point: Point) -> tuple[tuple[float, float], ...]:
        """Latency and throughput of other frontier points of a point's semantics and model.

        The model is known once a point with the same fields of the workload was measured.
        """
        product = (point.semantics, self._models.get(_fields_of(point), ""))
        point_id = identity(point)
        unbeaten = self._unbeaten.get(product, [])
        if any(rival.point_id == point_id for rival in unbeaten):
            # Without it others may be unbeaten.
            unbeaten = _unbeaten(
                rival for rival in self._measured[product] if rival.point_id != point_id
            )
        return tuple((rival.latency_s, rival.samples_per_s) for rival in unbeaten)


def _unbeaten(rivals: Iterable[Rival]) -> list[Rival]:
    unbeaten: list[Rival] = []
    for rival in rivals:
        unbeaten = _with(unbeaten, rival)
    return unbeaten


def _with(unbeaten: list[Rival], rival: Rival) -> list[Rival]:
    """Add a rival that none beats or equals, and leave out those that it beats."""
    if any(
        member.latency_s <= rival.latency_s and member.samples_per_s >= rival.samples_per_s
        for member in unbeaten
    ):
        return unbeaten
    return [
        *(
            member
            for member in unbeaten
            if member.latency_s < rival.latency_s or member.samples_per_s > rival.samples_per_s
        ),
        rival,
    ]


def _fields_of(point: Point) -> str:
    return json.dumps(read_fields(point.workload), sort_keys=True)
