"""Commands that read results and say what to take: report, recommend."""

from __future__ import annotations

import click

from dtsweep.cli.options import console, json_option, load_results, print_json
from dtsweep.errors import SweepError
from dtsweep.sweep.goal import GOALS, Goal


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--all", "show_all", is_flag=True, help="Show dominated points, every scaling group and every reason.")
@click.option("--one-product", is_flag=True, help="Compare all models with each other: one frontier, not one for each.")
@json_option
def report(results: str, show_all: bool, one_product: bool, as_json: bool) -> None:
    """Print the frontier, scaling and failures of results."""
    print_results(results, as_json=as_json, show_all=show_all, one_product=one_product)


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--goal", type=click.Choice(list(GOALS)), help="What counts; throughput by default.")
@click.option("--maximize", metavar="COLUMN", help="In place of a goal: a column that should be large.")
@click.option("--minimize", metavar="COLUMN", help="In place of a goal: a column that should be small.")
@click.option(
    "--where", default="", metavar="CONDITION", help="What it has to keep to: 'step_p99_s<=200ms and workers<=8'."
)
@click.option("--allow", default="", metavar="SEMANTICS", help="Beside exact updates: lossy,stale,local.")
@click.option("--one-product", is_flag=True, help="Compare all models with each other.")
@json_option
def recommend(results: str, one_product: bool, as_json: bool, **asked: str | None) -> None:
    """Recommend one configuration: how sure that is, its runner-up, what it gives up, and the code."""
    from dtsweep.analysis import recommend as recommended
    from dtsweep.report import recommendation

    found = recommended(load_results(results), _goal(**asked), one_product=one_product)
    if as_json:
        print_json([recommendation.as_json(each) for each in found])
    else:
        recommendation.print_all(found, console=console())


def _goal(
    *, goal: str | None, maximize: str | None, minimize: str | None, where: str | None, allow: str | None
) -> Goal:
    from dataclasses import replace

    if goal and (maximize or minimize):
        raise SweepError("--goal names what counts; leave --maximize and --minimize out, or --goal")
    made = Goal(maximize=maximize, minimize=minimize) if maximize or minimize else GOALS[goal or "throughput"]
    semantics = tuple(filter(None, (allow or "").replace(" ", "").split(",")))
    return replace(made, where=where or "", allow=semantics)


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
