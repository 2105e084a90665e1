"""Names of points, trials and attempts of imported rows, and which of them are new.

They are digests of settings and numbers, so that another import of a table gives the same names.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dtsweep.errors import SweepError
from dtsweep.foreign_tables.map_file import MEASURED
from dtsweep.foreign_tables.translate import Translated
from dtsweep.sweep.point import AXES

_OF_A_POINT = ("workload", *AXES, "semantics", "global_batch", "cpus_per_worker", "gpus_per_worker")
_NUMBERS = (*MEASURED, "latency_s", "status", "reason")


def environment_of(values: Mapping[str, Any], source: str) -> str:
    """Name the environment of a row: no environment that dtsweep measured in has such a name.

    >>> environment_of({"devices": "Tesla T4"}, "bert")
    'imported:bert:Tesla T4'
    """
    return ":".join(filter(None, ["imported", source, values.get("devices")]))


def identified(rows: Iterable[Translated], *, source: str) -> list[dict[str, Any]]:
    """Name the points and trials of rows; equal settings are repeats of a point, in their order.

    Raises:
        SweepError: a repeat that the table numbers is there twice.
    """
    trials = []
    repeats: Counter[str] = Counter()
    places: dict[str, str] = {}
    for row in rows:
        values = row.values
        env_id = environment_of(values, source)
        settings = {name: values[name] for name in _OF_A_POINT if values.get(name) is not None}
        own = {name: value for name, value in row.settings.items() if value is not None}
        point_id = _digest("point", settings, own)
        place = _digest(point_id, env_id, values.get("hosts"))
        repeats[place] += 1
        repeat = values.get("repeat", repeats[place])
        trial_id = _digest(place, repeat)
        if trial_id in places:
            raise SweepError(
                f"{row.place} has the settings and the repeat {repeat} of {places[trial_id]}; map "
                "the column in which they differ, or leave repeat out of the map"
            )
        places[trial_id] = row.place
        fields = {f"workload_{name}": value for name, value in row.settings.items()}
        named = {"point_id": point_id, "trial_id": trial_id, "repeat": repeat, "env_id": env_id}
        trials.append({**values, **fields, **named})
    return trials


def new_attempts(
    trials: Iterable[dict[str, Any]], stored: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Select the rows that are not stored yet, as further attempts where other numbers are.

    Args:
        trials: rows as `identified` gives them.
        stored: `trial_id` and `attempt_id` of attempts that were imported, the oldest first.
    """
    attempts: dict[str, list[str]] = {}
    for row in stored:
        attempts.setdefault(row["trial_id"], []).append(row["attempt_id"])
    new = []
    for trial in trials:
        earlier = attempts.get(trial["trial_id"], [])
        numbers = {name: trial[name] for name in _NUMBERS if trial.get(name) is not None}
        if earlier and earlier[-1] == _digest(trial["trial_id"], len(earlier), numbers):
            continue
        attempt = len(earlier) + 1
        attempt_id = _digest(trial["trial_id"], attempt, numbers)
        new.append({**trial, "attempt": attempt, "attempt_id": attempt_id})
    return new


def _digest(*parts: Any) -> str:
    """16 hex digits of JSON values; a number that is not finite has its name in them."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
