"""The table of trials as every question begins with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.metrics.older_rows import recomputed
from dtsweep.metrics.plausible import JUDGED_COLUMNS, contradictions, judged_columns
from dtsweep.metrics.product import model_digest
from dtsweep.results.store import Results, newest_trials
from dtsweep.sweep.secret import hidden_json

if TYPE_CHECKING:
    import pandas as pd


def load(results: Results | str | Path, *, canaries: bool = False) -> pd.DataFrame:
    """Read one row per trial and harness: its newest `ok` attempt, else its newest; the oldest first.

    Whole numbers are Int64 and truth values boolean, with or without nulls; the rest is float64 (null is NaN),
    text, and UTC times. A file that is left out is named in a warning. Step times, exchange and skew of rows that were
    measured before `latency_s` was a column are computed anew from their stored steps; without these steps they are
    flagged `older_steps`. Rows from before `model_digest` get one of what is known of their model, FLOPs and tokens. A
    row without a stored contradiction (`implausible`) is judged anew by its own columns. Secrets that an earlier
    version stored as they were are hidden.

    Args:
        results: the place.
        canaries: Whether every canary that was measured is a row too (`role` says so).

    Raises:
        SweepError: Nothing is stored there.
        StorageError: It can't be read.
    """
    store = results if isinstance(results, Results) else Results(results)
    frame = newest_trials(store, canaries=canaries)
    older = frame[(frame["status"] == "ok") & frame["latency_s"].isna() & frame["step_mean_s"].notna()]
    if len(older):
        _recompute(frame, older, store)
    return as_loaded(frame)


def as_loaded(frame: pd.DataFrame) -> pd.DataFrame:
    """Bring stored rows, in place, to what `load` gives of them without their steps."""
    _tell_models_apart(frame)
    _judge(frame)
    frame["environment"] = frame["environment"].map(hidden_json, na_action="ignore")
    return frame


def _tell_models_apart(frame: pd.DataFrame) -> None:
    """Give rows without a `model_digest` one, where their FLOPs are known."""
    older = frame[(frame["status"] == "ok") & frame["model_digest"].isna() & frame["flops_per_sample"].notna()]
    tokens = (older["tokens_per_s"] / older["samples_per_s"]).round()
    digests = [
        model_digest([], flops_per_sample=flops, tokens_per_sample=None if math.isnan(count) else int(count))
        for flops, count in zip(older["flops_per_sample"], tokens, strict=True)
    ]
    frame.loc[older.index, "model_digest"] = digests


def _judge(frame: pd.DataFrame) -> None:
    """Flag rows whose own columns contradict each other: measured before such a flag was stored, or changed since."""
    unjudged = frame[(frame["status"] == "ok") & frame["implausible"].isna()]
    rows = unjudged[[*JUDGED_COLUMNS]].astype(object)
    for index, row in zip(unjudged.index, rows.where(rows.notna(), None).to_dict("records"), strict=True):
        if found := contradictions({str(name): value for name, value in row.items()}):
            for name, value in judged_columns(row["flags"], found).items():
                frame.at[index, name] = value


def _recompute(frame: pd.DataFrame, older: pd.DataFrame, store: Results) -> None:
    """Put today's figures into the rows of earlier versions."""
    import pandas as pd

    wanted = set(older["attempt_id"])
    steps, ranks = (_of_attempts(store, table, wanted) for table in ("steps", "ranks"))
    rows = older.astype(object).where(older.notna(), None).to_dict("records")
    new = []
    for row in rows:
        own = sorted(ranks.get(row["attempt_id"], {}).items())
        places = [{name: values[0] for name, values in rank.items()} for _, rank in own]
        new.append(
            recomputed({str(name): value for name, value in row.items()}, places, steps.get(row["attempt_id"], {}))
        )
    # What a row has no new value for stays as it is.
    for name in dict.fromkeys(name for columns in new for name in columns):
        values = [columns.get(name, row[name]) for columns, row in zip(new, rows, strict=True)]
        frame.loc[older.index, name] = pd.Series(values, index=older.index, dtype=frame[name].dtype)


def _of_attempts(store: Results, table: str, wanted: set[str]) -> dict[str, dict[int, dict[str, Any]]]:
    """The columns of a table by attempt and rank, as arrays."""
    rows = store.table(table, attempts=wanted).to_pandas()
    columns = {name: rows[name].to_numpy() for name in rows.columns}
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for (attempt, rank), places in rows.groupby(["attempt_id", "rank"]).indices.items():
        found.setdefault(attempt, {})[int(rank)] = {name: values[places] for name, values in columns.items()}
    return found
