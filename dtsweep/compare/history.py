"""History of runs: rows of each run, in one file per table, in a place apart from results."""

from __future__ import annotations

import hashlib
import re
import warnings
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from dtsweep.errors import SweepError
from dtsweep.results.local_files import OddFileError
from dtsweep.results.merge import merged
from dtsweep.results.parquet import decode, encode
from dtsweep.results.storage import Storage, StoredFile
from dtsweep.results.store import HISTORY, Results

_STEM = re.compile(
    r"part-(?P<time>\d{8}T\d{6})-(?P<run>[0-9a-f]{12})(?P<start>-start)?-[0-9a-f]{16}\.parquet"
)

MOST_ENTRIES = 100
"""Number of the newest files that are read."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run of a history."""

    run: str
    """Digest of its attempts: the same run is stored once."""
    started_at: datetime
    """Start of its newest trial."""
    is_start: bool
    """True if a user accepted it as the first run that counts."""
    trials: Any
    """Its rows of `trials`, an Arrow table, as `ranks` is."""
    ranks: Any


def entry_of(
    results: Results | str | Path, attempts: list[str], *, is_start: bool = False
) -> Entry:
    """Make an entry of some attempts of results.

    Args:
        results: the place.
        attempts: those that stand for their trials, with a time when they began.
        is_start: of the entry.
    """
    if isinstance(results, Results):
        store = results
    else:
        store = Results(results)
    trials, ranks = (store.table(table, attempts=attempts) for table in ("trials", "ranks"))
    return Entry(
        run=hashlib.sha256("".join(sorted(attempts)).encode()).hexdigest()[:12],
        started_at=pc.max(trials["started_at"]).as_py(),
        is_start=is_start,
        trials=trials,
        ranks=ranks,
    )


def append(history: str | Path, entry: Entry) -> None:
    """Store an entry in the place of one of the same run; the row of `trials` is the commit.

    Raises:
        SweepError: results lie there.
        StorageError: it can't be written.
    """
    stem = f"part-{entry.started_at:%Y%m%dT%H%M%S}-{entry.run}"
    if entry.is_start:
        stem += "-start"
    storage, names = _opened(history), {}
    for table, rows in (("ranks", entry.ranks), ("trials", entry.trials)):
        names[table], data = encode(rows.combine_chunks(), stem=stem)
        storage.write(StoredFile(HISTORY[table], names[table], data))
    for table, name in names.items():
        for old in _names_of(storage, table, entry.run) - {name}:
            storage.delete(HISTORY[table], old)


def is_stored(history: str | Path, entry: Entry) -> bool:
    """True if the run of an entry is stored, however old it is.

    Raises:
        StorageError: the place can't be read.
    """
    return bool(_names_of(Storage(history), "trials", entry.run))


def _names_of(storage: Storage, table: str, run: str) -> set[str]:
    matches = map(_STEM.fullmatch, storage.sizes(HISTORY[table]))
    return {match[0] for match in matches if match and match["run"] == run}


def _opened(history: str | Path) -> Storage:
    """Open the place of a history, unless results lie there.

    Runs that are stored among results could be lost with them.
    """
    storage = Storage(history)
    if storage.sizes("trials"):
        raise SweepError(
            f"{storage.shown} holds results, not a history; give --history a place of its own"
        )
    return storage


def entries(history: str | Path) -> list[Entry]:
    """Read the runs that count, the oldest first.

    These are the newest `MOST_ENTRIES`, from the last one that was accepted as a start.

    A damaged file is left out, with a warning. Without its ranks a run has no machine.

    Args:
        history: the place; nothing need be there.

    Raises:
        SweepError: results lie there.
        StorageError: the place can't be read.
    """
    storage = _opened(history)
    newest_first = []
    ranks = {_key(name): name for name in storage.sizes(HISTORY["ranks"])}
    for name in sorted(storage.sizes(HISTORY["trials"]), reverse=True)[:MOST_ENTRIES]:
        match = _STEM.fullmatch(name)
        if match is None:
            continue
        rows = _read(storage, "trials", name, loss="so its run is left out")
        if rows is None:
            continue
        described = None
        if ranks_name := ranks.get(_key(name)):
            loss = "so the machine of its run is unknown, and that run counts only by its env_id"
            described = _read(storage, "ranks", ranks_name, loss=loss)
        newest_first.append(
            Entry(
                run=match["run"],
                started_at=pc.max(rows["started_at"]).as_py(),
                is_start=match["start"] is not None,
                trials=rows,
                ranks=merged("ranks", [] if described is None else [described]),
            )
        )
        if newest_first[-1].is_start:
            break
    return newest_first[::-1]


def _key(name: str) -> str:
    """Give the part of a name that all files of an entry share."""
    return name.rpartition("-")[0]


def _read(storage: Storage, table: str, name: str, *, loss: str) -> Any:
    """Read the rows of a file; None, with a warning, if it is damaged.

    Args:
        storage: the history.
        table: of the file.
        name: of the file.
        loss: what follows if it can't be read.
    """
    try:
        return merged(table, [decode(storage.read(HISTORY[table], name), name=name, table=table)])
    except OddFileError as error:
        file = f"{storage.shown}/{HISTORY[table]}/{name}"
        way_out = "put the file back from a copy, or delete it"
        warnings.warn(f"{file} is damaged ({error}), {loss}; {way_out}", stacklevel=3)
        return None
