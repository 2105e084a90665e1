"""The command `export`: trials in files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dtsweep.cli.options import opened, telling_warnings
from dtsweep.errors import SweepError

if TYPE_CHECKING:
    from dtsweep.results.store import Results


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--to", type=click.Choice(["csv", "json"]), required=True, help="Format.")
@click.option("--out", metavar="FILE", help="File; else stdout.")
@click.option(
    "--with-hosts",
    is_flag=True,
    help="Keep columns that may name hosts and users, such as reasons and logs.",
)
def export(results: str, to: str, out: str | None, with_hosts: bool) -> None:
    """Write trials for other tools: parameters, metrics with units, status and steps."""
    from dtsweep.analysis.load import trials_in
    from dtsweep.exports.exported import exported_trials, texts_without_homes
    from dtsweep.exports.to_files import steps_csv, trials_csv, trials_json
    from dtsweep.results.frames import frame_of
    from dtsweep.secret import shared_trials

    store = opened(results)
    with telling_warnings():
        frame = trials_in(store)
    if not with_hosts:
        frame = texts_without_homes(shared_trials(frame))
    steps = frame_of(store.table("steps", attempts=frame["attempt_id"].tolist()))
    if to == "csv":
        _put(out, trials_csv(frame))
        if out is not None:
            _put(str(Path(out).with_suffix(".steps.csv")), steps_csv(frame, steps))
        return
    _put(out, trials_json(exported_trials(frame, steps), sweep=_sweep_name(store)))


def _sweep_name(store: Results) -> str:
    """Name of the sweep of the last run; of its folder where there is no record of a run."""
    runs = store.run_records()
    if runs and runs[-1].record.sweep:
        return runs[-1].record.sweep
    return Path(str(store).partition("?")[0]).name


def _put(out: str | None, text: str) -> None:
    """Write a file, or to stdout.

    Raises:
        SweepError: the file can't be written.
    """
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        Path(out).write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise SweepError(f"--out {out}: {error.strerror}; give another file") from None
