"""The command `export`: trials in a CSV file for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from dtsweep.cli.options import opened, telling_warnings
from dtsweep.errors import SweepError


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--out", metavar="FILE", help="File; else stdout.")
@click.option(
    "--with-hosts",
    is_flag=True,
    help="Keep columns that may name hosts and users, such as reasons and logs.",
)
def export(results: str, out: str | None, with_hosts: bool) -> None:
    """Write trials as CSV, for other tools."""
    from dtsweep.analysis.load import trials_in
    from dtsweep.foreign_tables.to_csv import texts_without_homes, trials_csv
    from dtsweep.secret import shared_trials

    with telling_warnings():
        frame = trials_in(opened(results))
    if not with_hosts:
        frame = texts_without_homes(shared_trials(frame))
    _put(out, trials_csv(frame))


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
