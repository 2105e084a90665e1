"""`import`: other people's tables, as results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dtsweep.cli.options import json_option, print_json, tell
from dtsweep.errors import SweepError, printable
from dtsweep.text import count_of

if TYPE_CHECKING:
    from dtsweep.foreign_tables import Imported

_REASONS = 5
"""Reasons that the command prints."""

_PLACES = 3
"""Rows that it names for each of them."""


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
    imported = import_tables(tables, table_map, results=results, say=tell)
    if as_json:
        print_json(vars(imported))
        return
    for line in _lines(imported, results):
        click.echo(printable(line))


def _lines(imported: Imported, results: str) -> list[str]:
    """Say what became of the rows."""
    wrong = {"flagged": imported.flagged, "skipped": imported.skipped}
    counts = {title: sum(map(len, places.values())) for title, places in wrong.items()}
    lines = [
        f"{imported.source} · {count_of(imported.rows, 'row')}: {imported.kept} kept "
        f"({count_of(imported.points, 'point')}), {counts['flagged']} flagged, "
        f"{counts['skipped']} skipped"
    ]
    for title, reasons in wrong.items():
        for reason, places in [*reasons.items()][:_REASONS]:
            listed = ", ".join(places[:_PLACES])
            if len(places) > _PLACES:
                listed += f" and {len(places) - _PLACES} more"
            lines.append(f"  {title}: {listed}: {reason}")
        if len(reasons) > _REASONS:
            lines.append(f"  {title}: {len(reasons) - _REASONS} more reasons; --json has all")
    if not imported.added:
        return [*lines, f"Nothing new: {results} has all of them."]
    replaced = ""
    if imported.replaced:
        replaced = f", {imported.replaced} of them in place of an earlier import"
    added = f"{count_of(imported.added, 'row')} added to {results}{replaced}. "
    return [*lines, f"{added}Next: dtsweep report {results}"]
