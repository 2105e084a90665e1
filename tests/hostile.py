"""Results of somebody who means harm: every text column at once holds a payload.

`store_hostile` writes them as Parquet files that dtsweep reads. The first `MEASURED` rows of trials
are honest, so that a report has a frontier; then come, for each payload, a measured row, a failed
row, and a row in which even the columns that readers decide by hold the payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from dtsweep.results.parquet import arrow_table, columns_of, encode
from dtsweep.results.schema import TABLES, TEXT, TEXTS
from dtsweep.sweep.goal import Question
from tests.frames import trials
from tests.report.study import measured

PAYLOADS = {
    "terminal": "lost\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\rback",
    "bidi": "abc\u202egpj\u2066x\u2069\u200f\u061c\u200b\ufeff\U000e0041end",
    "newline": "ddp\n  99  forged row\u2028and\u2029more\x85next\x0bline\x0cpage",
    "markup": "[red]loud[/red] [/] [link=http://evil.test]x[/link] :boom:",
    "script": "</script><script>window.owned=1</script><!--<script>",
    "attribute": "\"'><img src=x onerror=window.owned=1><svg onload='owned=1'>",
    "address": "javascript:window.owned=1//http://evil.test/a.js",
    "equals": '=HYPERLINK("http://evil.test","x")',
    "plus": "+cmd|' /C calc'!A0",
    "minus": "-2+3+cmd|' /C calc'!A0",
    "at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "tab": "\t=1+1",
    "spaced": "  =1+1",
    "quoted": '"=1+1","\n=2+2"',
    "wide": "\uff1d1+1",
    "sql": "x'); DROP TABLE trials; -- {{7*7}} ${7*7} %s {0}",
}
"""Texts by what they attack. A page in which one has run has `window.owned`."""

JSON_COLUMNS = {"sources", "environment", "measure", "question", "command", "machine"}

SETS = {"status": "rank_died", "role": "trial", "semantics": "exact"}
"""Columns of closed sets, with a value that dtsweep writes."""

MEASURED = 6


def texts(table: str, payload: str) -> dict[str, Any]:
    """A row of a table with the payload in every text column, in JSON where the column has JSON."""
    row: dict[str, Any] = {}
    for column in TABLES[table]:
        if column.name in JSON_COLUMNS:
            row[column.name] = _json_of(column.name, payload)
        elif column.type == TEXT:
            row[column.name] = payload
        elif column.type == TEXTS:
            row[column.name] = [payload, payload]
    if table == "trials":
        row |= {"workload_data": payload, "workload_shape": json.dumps({payload: [payload]})}
    return row


def _json_of(column: str, payload: str) -> str:
    if column == "command":
        return json.dumps([payload, payload])
    if column == "environment":
        # Names of variables are names; others are refused.
        return json.dumps({"NAME": payload, "OTHER": payload})
    if column == "question":
        # A goal that cannot be read is refused in a line; all other values are numbers.
        return Question().as_json()
    return json.dumps({payload: payload})


def _trial_rows(payloads: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Rows of trials; `attempt_id` names the payload where it is not one itself."""
    for number in range(MEASURED):
        row = measured({"sync": "ddp"}, workers=1 + number, micro_batch=4, accumulation=1)
        yield row | {"attempt_id": f"honest{number}", "row_number": number}
    for number, (name, payload) in enumerate(payloads.items(), start=1):
        row = measured({"sync": "ddp"}, workers=1 + number, micro_batch=8, accumulation=1)
        row |= texts("trials", payload)
        kept = {"semantics": "exact", "harness": "ray", "sync": "ddp", "role": "trial"}
        kept |= {"optimizer": "sgd", "precision": "fp32", "placement": "pack"}
        for status in ("ok", "rank_died"):
            names = dict.fromkeys(("trial_id", "point_id"), f"{name}-{status}")
            yield row | kept | names | {"attempt_id": f"{name}-{status}", "status": status}
        yield row | {"attempt_id": f"{payload} {number}"}


def store_hostile(folder: Path, payloads: dict[str, str] = PAYLOADS) -> Path:
    """Write the rows as results, a file for each table."""
    rows = [
        {str(name): _plain(value) for name, value in row.items()} | {"row_number": number}
        for number, row in enumerate(trials(*_trial_rows(payloads)).to_dict("records"))
    ]
    for row in rows:
        # A file with another value in one of these columns is not read.
        row |= {name: value for name, value in SETS.items() if row[name] in payloads.values()}
    ranks, steps = [], []
    for row in rows:
        ids = {name: row[name] for name in ("attempt_id", "trial_id")}
        payload = payloads.get(row["attempt_id"].partition("-")[0], "honest")
        rank = {"rank": 0, "node": "honest", "machine": "{}"}
        if payload != "honest":
            rank = texts("ranks", payload) | {"rank": 0}
        ranks.append(rank | ids)
        steps += [step | ids for step in _steps(payload)]
    types = {"layers": int, "data": str, "shape": dict}
    write_rows(folder, "steps", steps)
    write_rows(folder, "ranks", ranks)
    write_rows(folder, "trials", rows, workload_types=types)
    return folder


def write_rows(
    folder: Path,
    table: str,
    rows: list[dict[str, Any]],
    *,
    workload_types: dict[str, type] | None = None,
) -> Path:
    """Write rows as a file of results; unlike `Results.commit`, it takes any text."""
    stored = arrow_table(table, columns_of(rows), workload_types=workload_types or {})
    name, data = encode(stored, stem=f"part-{len(rows)}-rows")
    (folder / table).mkdir(parents=True, exist_ok=True)
    (folder / table / name).write_bytes(data)
    return folder / table / name


def _steps(payload: str) -> list[dict[str, Any]]:
    return [
        {"rank": 0, "step": step, "warmup": step < 2, "part": "window", "step_s": 0.1}
        | {"start_s": 0.1 * step}
        for step in range(8)
    ] + [{"rank": 0, "step": 8, "warmup": False, "part": payload, "step_s": 0.1}]


def _plain(value: Any) -> Any:
    """None for what is null in a frame."""
    if isinstance(value, list):
        return value
    return None if pd.isna(value) else value
