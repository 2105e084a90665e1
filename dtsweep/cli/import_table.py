"""`import`: other people's tables, as results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from dtsweep.cli.options import json_option, print_json, tell
from dtsweep.errors import SweepError, printable
from dtsweep.text import count_of

_SHOWN = 3
"""Rows that the command names for each reason; --json has all."""


@click.command("import")
@click.argument("tables", metavar="TABLE...", nargs=-1)
@click.option(
    "--map",
    "map_name",
    metavar="FILE-or-NAME",
    help="Columns of the tables, in TOML; see docs/import.md. Ready: ray-tune. "
    "Without it a draft for the first table is printed.",
)
@click.option("--results", metavar="DIR-or-URI", help="Where the rows are stored.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A column that the tables lack, as workload=bert; source=NAME names where they are from.",
)
@json_option
def import_table(
    tables: Sequence[str],
    map_name: str | None,
    results: str | None,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Import tables of measurements: CSV, Parquet, JSON lines, or a folder of Ray Tune.

    Imported rows stand on frontiers of their own. All tables of one command are of one environment.
    """
    from dtsweep.foreign_tables import import_tables
    from dtsweep.foreign_tables.map_file import draft, read_map
    from dtsweep.foreign_tables.table import read_table

    if not tables:
        raise SweepError("no table; give files: dtsweep import runs.csv --map MAP --results DIR")
    if map_name is None:
        click.echo(printable(draft(read_table(Path(tables[0]), {}).columns)))
        return
    if results is None:
        raise SweepError("--results is missing: the folder or URI that takes the rows")
    table_map = read_map(map_name).with_constants(settings)
    done = import_tables(tables, table_map, results=results, say=tell)
    if as_json:
        print_json(vars(done))
        return
    parts = {"flagged": done.flagged, "skipped": done.skipped}
    counts = [f"{sum(map(len, part.values()))} {title}" for title, part in parts.items()]
    kept = f"{done.kept} kept ({count_of(done.points, 'point')})"
    lines = [f"{done.source} · {count_of(done.rows, 'row')}: {', '.join([kept, *counts])}"]
    for title, part in parts.items():
        for reason, places in part.items():
            listed = ", ".join(places[:_SHOWN])
            lines.append(f"  {count_of(len(places), 'row')} {title}, as {listed}: {reason}")
    last = f"Nothing new: {results} has all of them."
    if done.added:
        last = f"{count_of(done.added, 'row')} added to {results}, {done.replaced} in place of "
        last += f"earlier ones. Next: dtsweep report {results}"
    click.echo(printable("\n".join([*lines, last])))
