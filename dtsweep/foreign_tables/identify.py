"""Names of points, trials and attempts of imported rows, and which of them are new.

- A point is a digest of all settings of a row. `1` and `1.0` are equal.
- A place is a point in one environment on one number of hosts. Its rows are repeats.
- If the map gives the repeat, a row with other values is a new attempt at this repeat, and the
  newest attempt stands for it. Otherwise a row that is stored there with equal values is known, and
  any other row is a further repeat.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtsweep.errors import SweepError
from dtsweep.sweep.point import AXES

_OF_A_POINT = (
    *("workload", *AXES, "semantics", "global_batch", "cpus_per_worker", "gpus_per_worker"),
    *("backend", "data_parallel", "model_parallel", "parameters", "flops_per_sample"),
)

STORED_COLUMNS = frozenset(
    {"trial_id", "attempt", "harness", "row_number", "point_id", "env_id", "hosts", "repeat"}
)
"""Columns of stored attempts that `new_attempts` reads, in addition to `attempt_id`."""

_Place = tuple[str, str, int | None]


def place_of(row: Mapping[str, Any], source: str) -> _Place:
    """Name the point and the environment of a row, and give its number of hosts.

    >>> place_of({"devices": "Tesla T4"}, "lab:1")[1]
    'imported:lab%3A1:Tesla T4'
    """
    names = [name for name in row if name in _OF_A_POINT or name.startswith("workload_")]
    settings = {name: row[name] for name in names}
    parts = [part for part in (source, row.get("devices")) if part]
    escaped = [part.replace("%", "%25").replace(":", "%3A") for part in parts]
    environment = ":".join(["imported", *escaped])
    return _digest(settings), environment, row.get("hosts")


def new_attempts(
    rows: Iterable[Mapping[str, Any]], stored: Iterable[Mapping[str, Any]], *, source: str
) -> list[dict[str, Any]]:
    """Select the rows that are not stored yet, with their points, repeats, trials and attempts.

    Args:
        rows: columns of results without nulls.
        stored: `STORED_COLUMNS` of attempts that were imported, the oldest first.
        source: of the rows.

    Raises:
        SweepError: a repeat that the table numbers is there twice.
    """
    newest: dict[_Place, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for one in stored:
        newest[one["point_id"], one["env_id"], one["hosts"]][one["repeat"]] = one
    groups: dict[_Place, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[place_of(row, source)].append(row)
    new: list[dict[str, Any]] = []
    for place, group in groups.items():
        new += _new_at(place, group, newest[place])
    return new


def _new_at(
    place: _Place, group: Sequence[Mapping[str, Any]], stored: Mapping[int, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """New attempts at one place, by the newest stored one of each repeat."""
    unmatched: dict[str, list[int]] = defaultdict(list)
    for repeat, one in stored.items():
        unmatched[one["attempt_id"][-16:]].append(repeat)
    numbered = [row["repeat"] for row in group if "repeat" in row]
    if len(set(numbered)) < len(numbered):
        places = ", ".join(str(row["imported_from"]) for row in group[:3])
        raise SweepError(
            f"rows with equal settings have one repeat, of {places}; map the column in which they "
            "differ, or leave repeat out of the map"
        )
    free = itertools.count(max([*stored, *numbered], default=0) + 1)
    for row in sorted(group, key=lambda row: "repeat" not in row):
        content = _digest({name: row[name] for name in row if name != "imported_from"})
        equal = unmatched[content]
        given = row.get("repeat")
        if equal and given in (None, *equal):
            equal.remove(given or equal[0])
            continue
        repeat = given or next(free)
        trial_id, attempt = _digest({"place": place, "repeat": repeat}), 1
        if repeat in stored:
            earlier = stored[repeat]
            unmatched[earlier["attempt_id"][-16:]].remove(repeat)
            trial_id, attempt = earlier["trial_id"], earlier["attempt"] + 1
        names = {"point_id": place[0], "env_id": place[1], "trial_id": trial_id, "repeat": repeat}
        attempt_id = _digest({"trial": trial_id, "attempt": attempt}) + content
        yield {**row, **names, "attempt": attempt, "attempt_id": attempt_id}


def _digest(values: Mapping[str, Any]) -> str:
    """16 hex digits of values, of which 1 and 1.0 are equal."""
    plain = {**values}
    for name, value in values.items():
        if isinstance(value, float) and value.is_integer():
            plain[name] = int(value)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
