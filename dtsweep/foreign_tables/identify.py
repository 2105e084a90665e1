"""Names of points, trials and attempts of imported rows, and which of them are new.

- A point is a digest of all settings of a row. `1` and `1.0` are equal.
- A trial is a row by its values, and its number among the equal rows of an import. So a row that is
  stored already is known, though its table was renamed.
- Rows of a point in one environment on one number of hosts are repeats.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dtsweep.sweep.point_axes import AXES

_OF_A_POINT = (
    *("workload", *AXES, "semantics", "global_batch", "cpus_per_worker", "gpus_per_worker"),
    *("backend", "data_parallel", "model_parallel", "parameters", "flops_per_sample"),
)


def point_of(row: Mapping[str, Any]) -> str:
    """Name the point of a row."""
    names = [name for name in row if name in _OF_A_POINT or name.startswith("workload_")]
    return _digest({name: row[name] for name in names})


def _environment_of(row: Mapping[str, Any], source: str) -> str:
    """Name the environment of a row.

    >>> _environment_of({"devices": "Tesla T4"}, "lab")
    'imported:lab:Tesla T4'
    """
    if "devices" in row:
        return f"imported:{source}:{row['devices']}"
    return f"imported:{source}"


def new_trials(
    rows: Iterable[Mapping[str, Any]], stored: Iterable[Mapping[str, Any]], *, source: str
) -> list[dict[str, Any]]:
    """Select the rows that are not `stored` yet, with points, repeats, trials and attempts."""
    known = {one["trial_id"] for one in stored}
    repeats = Counter((one["point_id"], one["env_id"], one["hosts"]) for one in stored)
    equal: Counter[str] = Counter()
    new = []
    for row in rows:
        names: dict[str, Any] = {"point_id": point_of(row), "env_id": _environment_of(row, source)}
        content = _digest({**row, **names, "imported_from": None})
        equal[content] += 1
        trial_id = _digest({"content": content, "number": equal[content]})
        if trial_id in known:
            continue
        place = (*names.values(), row.get("hosts"))
        repeats[place] += 1
        names |= {"trial_id": trial_id, "repeat": repeats[place]}
        new.append({**row, **names, "attempt": 1, "attempt_id": trial_id + content})
    return new


def _digest(values: Mapping[str, Any]) -> str:
    """16 hex digits of values, of which 1 and 1.0 are equal."""
    plain = {**values}
    for name, value in values.items():
        if isinstance(value, float) and value.is_integer():
            plain[name] = int(value)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
