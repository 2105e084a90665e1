"""`import`: a table of another tool, as results."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dtsweep.cli.options import tell
from dtsweep.errors import SweepError, printable, quoted


@click.command("import")
@click.argument("table", metavar="TABLE")
@click.option("--results", required=True, metavar="DIR-or-URI", help="Where the rows are stored.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="OURS=THEIRS",
    help="Column of the table that gives a column of results: workers=gpus.",
)
def import_table(table: str, results: str, names: Sequence[str]) -> None:
    """Import a table of measurements (CSV, JSON lines or Parquet), or a JSON result of serving.

    A table's columns are named as those of results, or by --name. Results of serving are those of
    vllm bench serve and aiperf. Imported rows stand on frontiers of their own.
    """
    from dtsweep.foreign_tables import store_table

    theirs_by_ours = {}
    for name in names:
        ours, _, theirs = name.partition("=")
        if not theirs or ours in theirs_by_ours:
            raise SweepError(f"--name {quoted(name)} must be OURS=THEIRS, once for each column")
        theirs_by_ours[ours] = theirs
    lines = store_table(table, theirs_by_ours, results=results, say=tell)
    click.echo(printable("\n".join(lines)))
