"""`import`: other people's tables, as results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from dtsweep.cli.options import tell
from dtsweep.errors import SweepError, printable
from dtsweep.text import count_of


@click.command("import")
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option(
    "--map",
    "map_file",
    metavar="FILE",
    help="Columns of the tables, in TOML; see docs/import.md. Without it a draft is printed.",
)
@click.option("--results", metavar="DIR-or-URI", help="Where the rows are stored.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A column that the tables lack, as workload=bert; source=NAME names where they are from.",
)
def import_table(
    tables: Sequence[str], map_file: str | None, results: str | None, settings: Sequence[str]
) -> None:
    """Import tables of measurements: CSV or JSON.

    Imported rows stand on frontiers of their own. All tables of one command are of one environment.
    """
    from dtsweep.foreign_tables import import_tables
    from dtsweep.foreign_tables.map_file import draft, read_map
    from dtsweep.foreign_tables.table import read_table

    if map_file is None:
        click.echo(printable(draft(read_table(Path(tables[0]), {}).columns)))
        return
    if results is None:
        raise SweepError("--results is missing: the folder or URI that takes the rows")
    done = import_tables(tables, read_map(map_file, settings), results=results, say=tell)
    lines = [f"{count_of(done.rows, 'row')}: {done.kept} kept ({count_of(done.points, 'point')})"]
    for title, part in (("flagged", done.flagged), ("skipped", done.skipped)):
        for reason, places in part.items():
            lines.append(f"{len(places)} {title}, as {places[0]}: {reason}")
    lines.append(f"{count_of(done.added, 'new row')} in {results}. Next: dtsweep report {results}")
    click.echo(printable("\n".join(lines)))
