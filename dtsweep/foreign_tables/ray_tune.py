"""Rows of an experiment folder of Ray Tune, one per trial: its configuration and last report."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtsweep.errors import STORED, SweepError, printable, shortened
from dtsweep.foreign_tables.table import MOST_CHARACTERS, Record, flat, json_object, lines_of
from dtsweep.results.local_files import OddFileError, read_file

ERROR = "error.txt"
"""File of a trial that failed; its last line says why."""

REPORTS = "result.json"
"""File of a trial with a line for each report."""

CONFIGURATION = "params.json"
"""File of a trial with its configuration."""


def rows_of_experiment(folder: Path) -> Iterator[Record]:
    """Read the trials of an experiment, or the one of a trial's own folder.

    A row has the columns of the last report, `config/NAME` for each value of the configuration, and
    `mean_iteration_s`, `median_iteration_s`, `iterations`: the time from one report to the next,
    without that to the first one, which has the trial's start in it. `status` is ERROR where the
    trial left `error.txt`, whose last line is `error`, NO_REPORT where it never reported, else
    REPORTED.

    Raises:
        SweepError: it is not such a folder, or a file of it can't be read.
    """
    folders = sorted({file.parent for file in folder.glob(f"*/{CONFIGURATION}")})
    if (folder / CONFIGURATION).is_file():
        folders = [folder]
    if not folders:
        raise SweepError(
            f"folder {str(folder)!r} is not an experiment of Ray Tune: none of its folders has "
            f"{CONFIGURATION}; give the folder <storage_path>/<name>, or a table's file"
        )
    for trial in folders:
        try:
            yield Record(trial.name, _trial(trial))
        except OSError as error:
            raise SweepError(f"{error.filename!r} can't be read: {error.strerror}") from error


def _trial(folder: Path) -> dict[str, Any]:
    """Columns of one trial."""
    place = f"{folder.name}/{CONFIGURATION}"
    try:
        text = read_file(str(folder / CONFIGURATION), most_bytes=MOST_CHARACTERS).decode()
    except (OddFileError, UnicodeDecodeError) as error:
        raise SweepError(f"{place}: {error}; leave the folder of this trial out") from None
    configuration = json_object(text, place)
    last: dict[str, Any] = {}
    seconds = []
    if (folder / REPORTS).is_file():
        for number, line in lines_of(folder / REPORTS):
            try:
                last = json_object(line, f"{folder.name}/{REPORTS}:{number}")
            except SweepError:
                if line.endswith("\n"):
                    raise
                # The trial was killed while it wrote its last report.
                break
            if isinstance(second := last.get("time_this_iter_s"), int | float):
                seconds.append(second)
    row = {**flat(last), **flat({"config": configuration}), "iterations": len(seconds)}
    if len(seconds) > 1:
        row["mean_iteration_s"] = statistics.fmean(seconds[1:])
        row["median_iteration_s"] = statistics.median(seconds[1:])
    row["status"] = "REPORTED" if last else "NO_REPORT"
    if (folder / ERROR).is_file():
        row["status"] = "ERROR"
        lines = [line for _, line in lines_of(folder / ERROR)]
        row["error"] = shortened(printable(lines[-1].strip()), STORED) if lines else None
    return row
