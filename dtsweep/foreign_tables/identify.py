"""Names of points, trials and attempts of imported rows, and which of them are new.

- A point is a digest of all settings of a row, those of the table's own included: any setting that
  differs makes another point. `1` and `1.0` are equal.
- A place is a point in one environment on one number of hosts. Its rows are repeats. A row has the
  repeat that the map gives. Otherwise a row that is stored there with equal values has the same
  repeat, wherever it stands in its table, and a new row gets the next free repeat.
- A correction is a new attempt at a trial whose values differ; the newest attempt stands for the
  trial. A row with a given repeat corrects that repeat. Otherwise the new rows of a table correct,
  in their order, the rows of this table that are stored at their place and are no longer in it.
  A table is known by the name of its file, a trial of Ray Tune by that of its folder, so that rows
  of another table are added.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtsweep.errors import SweepError
from dtsweep.foreign_tables.translate import Translated
from dtsweep.sweep.point import AXES

_OF_A_POINT = (
    *("workload", *AXES, "semantics", "global_batch", "cpus_per_worker", "gpus_per_worker"),
    *("backend", "data_parallel", "model_parallel", "parameters", "flops_per_sample"),
)

STORED_COLUMNS = frozenset(
    {
        *("trial_id", "attempt", "harness", "row_number"),
        *("point_id", "env_id", "hosts", "repeat", "imported_from"),
    }
)
"""Columns of stored attempts that `new_attempts` reads, in addition to `attempt_id`."""

_Place = tuple[str, str, int | None]


def environment_of(values: Mapping[str, Any], source: str) -> str:
    """Name the environment of a row: no environment that dtsweep measured in has such a name.

    >>> environment_of({"devices": "Tesla T4"}, "bert"), environment_of({}, "bert:Tesla T4")
    ('imported:bert:Tesla T4', 'imported:bert%3ATesla T4')
    """
    parts = filter(None, [source, values.get("devices")])
    return ":".join(["imported", *(_escaped(part) for part in parts)])


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def identified(rows: Iterable[Translated], *, source: str) -> list[dict[str, Any]]:
    """Name the points of rows, and digest all that is stored of each row as its `content`.

    Raises:
        SweepError: a repeat that the table numbers is there twice.
    """
    trials = []
    places: dict[tuple[_Place, int], str] = {}
    for row in rows:
        values = row.values
        settings = {name: values[name] for name in _OF_A_POINT if values.get(name) is not None}
        own = {name: value for name, value in row.settings.items() if value is not None}
        named = {
            "point_id": _digest("point", settings, own),
            "env_id": environment_of(values, source),
            "content": _digest(values, own, row.contradiction),
        }
        fields = {f"workload_{name}": value for name, value in own.items()}
        trial = {**values, **fields, **named}
        repeat = values.get("repeat")
        if repeat is not None:
            key = _place_of(trial), repeat
            if key in places:
                raise SweepError(
                    f"{row.place} has the settings and the repeat {repeat} of {places[key]}; map "
                    "the column in which they differ, or leave repeat out of the map"
                )
            places[key] = row.place
        trials.append(trial)
    return trials


def new_attempts(
    trials: Iterable[dict[str, Any]], stored: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Select the rows that are not stored yet, with their repeats, trials and attempts.

    Args:
        trials: rows as `identified` gives them, with `imported_from`.
        stored: `STORED_COLUMNS` of attempts that were imported, the oldest first.
    """
    at_place: dict[_Place, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for row in stored:
        at_place[_place_of(row)][row["repeat"]] = row
    groups: dict[_Place, list[dict[str, Any]]] = defaultdict(list)
    for trial in trials:
        groups[_place_of(trial)].append(trial)
    groups_of = groups.items()
    return [row for place, group in groups_of for row in _new_at(place, group, at_place[place])]


def _new_at(
    place: _Place, group: Sequence[dict[str, Any]], by_repeat: dict[int, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """New attempts at one place; `by_repeat` has the newest stored ones."""
    numbered = [trial for trial in group if trial.get("repeat") is not None]
    last = max([*by_repeat, *(trial["repeat"] for trial in numbered), 0])
    for trial in numbered:
        earlier = by_repeat.pop(trial["repeat"], None)
        if earlier is None or _content_of(earlier) != trial["content"]:
            yield _attempt(trial, place, trial["repeat"], earlier)
    unmatched = []
    for trial in (trial for trial in group if trial.get("repeat") is None):
        equal = [key for key, row in by_repeat.items() if _content_of(row) == trial["content"]]
        if equal:
            del by_repeat[equal[0]]
        else:
            unmatched.append(trial)
    for trial in unmatched:
        table = _table_of(trial["imported_from"])
        gone = [key for key, row in by_repeat.items() if _table_of(row["imported_from"]) == table]
        if gone:
            yield _attempt(trial, place, gone[0], by_repeat.pop(gone[0]))
        else:
            last += 1
            yield _attempt(trial, place, last, None)


def _content_of(stored: Mapping[str, Any]) -> str:
    return str(stored["attempt_id"])[-16:]


def _attempt(
    trial: Mapping[str, Any], place: _Place, repeat: int, earlier: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Row of an attempt; its `attempt_id` ends in the digest of its content."""
    trial_id = earlier["trial_id"] if earlier else _digest(place, repeat)
    attempt = earlier["attempt"] + 1 if earlier else 1
    row = {name: value for name, value in trial.items() if name != "content"}
    attempt_id = _digest(trial_id, attempt) + trial["content"]
    named = {"trial_id": trial_id, "repeat": repeat, "attempt": attempt, "attempt_id": attempt_id}
    return {**row, **named}


def _place_of(row: Mapping[str, Any]) -> _Place:
    return row["point_id"], row["env_id"], row.get("hosts")


def _table_of(imported_from: str) -> str:
    """Name of the table of a row.

    >>> _table_of("runs.csv:17"), _table_of("runs.parquet: row 3"), _table_of("train_00000")
    ('runs.csv', 'runs.parquet', 'train_00000')
    """
    return re.sub(r":(?: row )?[0-9]+$", "", imported_from)


def _digest(*parts: Any) -> str:
    """16 hex digits of JSON values; a number that is not finite has its name in them."""
    text = json.dumps(_plain(parts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Value whose whole numbers are integers, so that 1 and 1.0 have one digest."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value
