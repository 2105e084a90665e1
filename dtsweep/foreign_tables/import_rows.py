"""Names points and trials of a table's rows, and stores those that are new.

- A point is a digest of all settings of a row. `1` and `1.0` are equal.
- A trial is a row by its values, and its number among the equal rows of an import.
- Rows of a point in one environment on one number of hosts are repeats.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dtsweep.foreign_tables.complete import completed
from dtsweep.foreign_tables.table import OF_A_POINT, SETTING, read_table
from dtsweep.provenance.versions import versions
from dtsweep.results.lease import leased
from dtsweep.results.pack import unmeasured_files
from dtsweep.results.schema import IMPORTED
from dtsweep.results.store import Results
from dtsweep.text import count_of


def store_table(
    table: str | Path,
    names: Mapping[str, str],
    *,
    results: str | Path,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Import a table as results of the harness `imported`.

    Args:
        table: a file, as `read_table` takes it. It has the name of the rows' environment; of a
            JSON result, which is one row, its folder has it.
        names: columns of the table, by the column of results that each gives.
        results: folder or URI of the results.
        say: takes lines for the user, while another run holds the place.

    Returns:
        Lines for the user: how many rows are kept, flagged, skipped and new.

    Raises:
        SweepError: the table or a cell can't be read; nothing is stored.
        StorageError: the results can't be written.
    """
    source = Path(table).stem
    if Path(table).suffix == ".json":
        source = Path(table).resolve().parent.name
    rows, types = read_table(Path(table), names)
    complete: list[dict[str, Any]] = []
    places: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        title, reason = "skipped", completed(row)
        if reason is None:
            row.setdefault("workload", source)
            row["env_id"] = ":".join(["imported", source, *filter(None, [row.get("devices")])])
            row["point_id"] = _point_of(row)
            complete.append(row)
            title, reason = "flagged", row.get("implausible")
        if reason is not None:
            places.setdefault((title, reason), []).append(row["imported_from"])
    store = Results(results)
    with leased(store.storage, say):
        added = _store(store, complete, types)
    kept = [row["point_id"] for row in complete if "implausible" not in row]
    return [
        f"{count_of(len(rows), 'row')}: {len(kept)} kept ({count_of(len({*kept}), 'point')})",
        *(f"{len(of)} {title}, as {of[0]}: {reason}" for (title, reason), of in places.items()),
        f"{count_of(added, 'new row')} in {results}. Next: dtsweep report {results}",
    ]


def _point_of(row: Mapping[str, Any]) -> str:
    names = [name for name in row if name in OF_A_POINT or name.startswith(SETTING)]
    return _digest({name: row[name] for name in names})


def _digest(values: Mapping[str, Any]) -> str:
    """16 hex digits of values, of which 1 and 1.0 are equal."""
    plain = {**values}
    for name, value in values.items():
        if isinstance(value, float) and value.is_integer():
            plain[name] = int(value)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _store(store: Results, rows: Sequence[dict[str, Any]], types: Mapping[str, type]) -> int:
    """Store the rows that are new; returns their number."""
    stored = store.attempts({"trial_id", "harness", "row_number", "point_id", "env_id", "hosts"})
    earlier = [row for row in stored if row["harness"] == IMPORTED]
    first = max((row["row_number"] or 0 for row in stored), default=0) + 1
    version = versions()["dtsweep_version"]
    new = _new_trials(rows, earlier)
    for number, row in enumerate(new, start=first):
        row |= {
            "harness": IMPORTED,
            "role": "trial",
            "row_number": number,
            "dtsweep_version": version,
            "status": "ok",
            "flags": [],
        }
        if "implausible" in row:
            row["status"] = "skipped"
            row["reason"] = "its numbers can't all be true: see the column implausible"
            row["flags"] = ["implausible"]
        if row["workers"] > 1 and "comm_share" not in row:
            row["comm_reason"] = "the imported table says nothing of the exchange"
    if new:
        store.write(unmeasured_files(new, workload_types=types))
    return len(new)


def _new_trials(
    rows: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Select the rows that are not among `earlier` ones, with repeats, trials and attempts."""
    known = {one["trial_id"] for one in earlier}
    repeats = Counter((one["point_id"], one["env_id"], one["hosts"]) for one in earlier)
    equal: Counter[str] = Counter()
    new = []
    for row in rows:
        content = _digest({**row, "imported_from": None})
        equal[content] += 1
        trial_id = _digest({"content": content, "number": equal[content]})
        if trial_id in known:
            continue
        place = (row["point_id"], row["env_id"], row.get("hosts"))
        repeats[place] += 1
        names = {
            "trial_id": trial_id,
            "attempt_id": trial_id + content,
            "attempt": 1,
            "repeat": repeats[place],
        }
        new.append({**row, **names})
    return new
