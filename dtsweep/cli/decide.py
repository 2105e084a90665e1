"""Commands that read results: report."""

from __future__ import annotations

import click

from dtsweep.cli.options import console, json_option, load_results, print_json


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--all", "show_all", is_flag=True, help="Show dominated points, every scaling group and every reason.")
@click.option("--one-product", is_flag=True, help="Compare all models with each other: one frontier, not one for each.")
@json_option
def report(results: str, show_all: bool, one_product: bool, as_json: bool) -> None:
    """Print the frontier, scaling and failures of results."""
    print_results(results, as_json=as_json, show_all=show_all, one_product=one_product)


def print_results(results: str, *, as_json: bool, show_all: bool, one_product: bool = False) -> None:
    """Print the report of a results folder."""
    from dtsweep.report.as_json import report_json
    from dtsweep.report.content import content_of
    from dtsweep.report.terminal import print_report

    content = content_of(load_results(results), one_product=one_product)
    if as_json:
        print_json(report_json(content))
    else:
        print_report(content, console=console(), show_all=show_all)
