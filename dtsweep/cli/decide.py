"""Commands that read results and say what to take: report, recommend, predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dtsweep.cli.options import (
    console,
    given_prices,
    json_option,
    load_results,
    opened,
    prices_option,
    print_json,
    tell,
    where_option,
    with_imported_option,
)
from dtsweep.errors import SweepError
from dtsweep.sweep.goal import GOALS, Goal

if TYPE_CHECKING:
    from dtsweep.report.content import Content
    from dtsweep.results.store import Results


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Show dominated points, every scaling group and every reason.",
)
@click.option(
    "--minimize",
    multiple=True,
    metavar="COLUMN",
    help="Frontiers of this in place of latency_s; several times.",
)
@click.option(
    "--maximize",
    multiple=True,
    metavar="COLUMN",
    help="Frontiers of this in place of samples_per_s.",
)
@where_option
@prices_option
@click.option(
    "--html", metavar="FILE", help="Write the report as one self-contained HTML page instead."
)
@click.option(
    "--with-hosts",
    is_flag=True,
    help="Of --html: keep reasons and logs, which may name hosts and users.",
)
@with_imported_option
@json_option
def report(results: str, html: str | None, *, with_hosts: bool, **asked: Any) -> None:
    """Print what to take, what limits points, the frontiers, scaling and failures of results."""
    if with_hosts and html is None:
        raise SweepError(
            "--with-hosts goes with --html, elsewhere hosts are named; add --html FILE"
        )
    if html is None:
        print_results(results, **asked)
        return
    for name in ("as_json", "show_all"):
        if asked.pop(name):
            option = {"as_json": "--json", "show_all": "--all"}[name]
            raise SweepError(f"--html writes all of the report as a page; leave {option} out")
    _write_html(results, html, with_hosts=with_hosts, **asked)


@click.command("recommend")
@click.argument("results", metavar="RESULTS")
@click.option("--goal", type=click.Choice(list(GOALS)), help="What counts; throughput by default.")
@click.option(
    "--maximize", metavar="COLUMN", help="In place of a goal: a column that should be large."
)
@click.option(
    "--minimize", metavar="COLUMN", help="In place of a goal: a column that should be small."
)
@where_option
@click.option(
    "--allow",
    default="",
    metavar="SEMANTICS",
    help="In addition to exact updates: lossy,stale,local,not_exchanged.",
)
@prices_option
@with_imported_option
@json_option
def recommend_command(
    results: str,
    *,
    prices: str | None,
    with_imported: bool,
    as_json: bool,
    **asked: str | None,
) -> None:
    """Recommend one configuration per model and environment, with its lead and trade-offs."""
    from dtsweep.analysis import Study
    from dtsweep.analysis import recommend as recommended
    from dtsweep.report import recommendation

    frame = load_results(opened(results), prices=given_prices(prices), with_imported=with_imported)
    study = Study(frame)
    recommendations = recommended(study, _goal(**asked, results_goal=study.goal))
    if as_json:
        values = [
            recommendation.as_json(one, remarks)
            for one, remarks in recommendation.remarks_on(recommendations, study=study)
        ]
        print_json(values)
        return
    recommendation.print_all(recommendations, study=study, console=console())


def _goal(
    *,
    goal: str | None,
    maximize: str | None,
    minimize: str | None,
    where: str | None,
    allow: str | None,
    results_goal: Goal,
) -> Goal:
    """Goal by the options; the results' one holds as far as no option says more."""
    from dataclasses import replace

    if goal and (maximize or minimize):
        raise SweepError("--goal names what counts; leave --maximize and --minimize out, or --goal")
    if maximize or minimize:
        chosen = Goal(maximize=maximize, minimize=minimize)
    elif goal:
        chosen = GOALS[goal]
    else:
        chosen = results_goal
    if results_goal.trains and chosen.columns_text == results_goal.columns_text:
        chosen = results_goal
    semantics = tuple(filter(None, (allow or "").replace(" ", "").split(",")))
    return replace(chosen, where=where or chosen.where, allow=semantics or chosen.allow)


def print_results(results: str, *, as_json: bool, show_all: bool = False, **asked: Any) -> None:
    """Print the report of a results folder."""
    from dtsweep.report.as_json import report_json
    from dtsweep.report.terminal import print_report

    content = _content(opened(results), **asked)
    if as_json:
        print_json(report_json(content))
    else:
        print_report(content, console=console(), show_all=show_all)


def _content(
    store: Results,
    *,
    with_hosts: bool = True,
    prices: str | None = None,
    with_imported: bool = False,
    **asked: Any,
) -> Content:
    """Compute the content of the report of opened results.

    Args:
        store: the results.
        with_hosts: keep what may name hosts and users.
        prices: a file of prices that hold for all rows.
        with_imported: compare imported rows with the measured ones.
        asked: what `content_in` takes; objectives that are empty are the usual ones.
    """
    from dtsweep.report.of_results import content_in

    objectives = {name: asked.pop(name, ()) for name in ("minimize", "maximize")}
    if any(objectives.values()):
        asked |= objectives
    frame = load_results(store, prices=given_prices(prices), with_imported=with_imported)
    return content_in(store, frame, with_hosts=with_hosts, **asked)


def _write_html(results: str, file: str, *, with_hosts: bool, **asked: Any) -> None:
    """Write the report of a results folder as a page, and say so."""
    from dtsweep.show.page import page_of_content, write_page

    store = opened(results)
    content = _content(store, with_hosts=with_hosts, **asked)
    page = page_of_content(content, place=str(store))
    write_page(page, file)
    tell(f"dtsweep: {file} written ({len(page.encode()) / 2**20:.1f} MiB)")


@click.command()
@click.argument("results", metavar="RESULTS")
@click.argument("settings", nargs=-1, metavar="[SETTINGS]…")
@prices_option
@with_imported_option
@json_option
def predict(
    results: str,
    settings: tuple[str, ...],
    *,
    prices: str | None,
    with_imported: bool,
    as_json: bool,
) -> None:
    """Predict rate, step time, memory, energy and cost of configurations, with 90 % intervals.

    SETTINGS are of one configuration, in quotes: 'workers=8 micro_batch=16 sync=ring'. Several
    values stand for several configurations: 'workers=8,16'. Settings that are not given are those
    of the fastest measured point that has most of the others.
    """
    from dtsweep.analysis import Study
    from dtsweep.cli.predictions import predictions_json, predictions_of, print_predictions

    if not settings:
        raise SweepError("predict needs settings: add 'workers=8 micro_batch=16' in quotes")
    frame = load_results(opened(results), prices=given_prices(prices), with_imported=with_imported)
    predictions = predictions_of(Study(frame), settings)
    if as_json:
        print_json(predictions_json(predictions))
    else:
        print_predictions(predictions, console=console())
