"""Commands that compare: two points, two runs."""

from __future__ import annotations

import click

from dtsweep.cli.options import console, json_option, load_results, print_json

of_option = click.option(
    "--of",
    "of",
    multiple=True,
    default=("samples_per_s", "latency_s"),
    show_default="samples_per_s and latency_s",
    metavar="COLUMN",
    help="A rate or time to compare by, such as step_p99_s; several times for several.",
)


@click.command()
@click.argument("results", metavar="RESULTS")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@of_option
@json_option
def difference(results: str, a: str, b: str, of: tuple[str, ...], as_json: bool) -> None:
    """Say whether two points can be told apart, and how many more launches would.

    A and B are each a point_id, its beginning, or settings that only one point has: 'workers=2 sync=ddp'.
    """
    from dtsweep.report.compared import compare_points, print_difference

    compared = compare_points(load_results(results), a, b, of=of)
    if as_json:
        print_json(compared)
    else:
        print_difference(compared, console=console())
