"""Commands that compare: two points, two runs."""

from __future__ import annotations

import sys
from typing import Any

import click

from dtsweep.cli.options import (
    FiniteRange,
    ShareType,
    console,
    json_option,
    load_results,
    opened,
    print_json,
    telling_warnings,
)
from dtsweep.errors import SweepError
from dtsweep.text import count_of

_of_option = click.option(
    "--of",
    "of",
    multiple=True,
    default=("samples_per_s", "latency_s"),
    show_default="samples_per_s and latency_s",
    metavar="COLUMN",
    help="A rate or time to compare by, such as step_p99_s; several times for several.",
)


@click.command("difference")
@click.argument("results", metavar="RESULTS")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@_of_option
@click.option(
    "--indifference",
    type=ShareType(),
    metavar="SHARE",
    help="A difference this small makes no practical difference: 3%.",
)
@json_option
def difference_command(
    results: str, a: str, b: str, of: tuple[str, ...], indifference: float | None, as_json: bool
) -> None:
    """Say if one of two points is faster or both are equal, or how many more launches would show.

    A and B are each a point_id, its beginning, or settings that only one point has: 'workers=2
    sync=ddp'.
    """
    from dtsweep.compare.points import compare_points, print_difference

    compared = compare_points(load_results(opened(results)), a, b, of=of, zone=indifference)
    if as_json:
        print_json(compared)
    else:
        print_difference(compared, console=console())


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="[BASE] NEW")
@_of_option
@click.option(
    "--threshold",
    type=FiniteRange(min=0),
    default=0.02,
    show_default=True,
    help="Share by which a value must be worse to be a regression.",
)
@click.option(
    "--other-machine", is_flag=True, help="Compare runs of different machines all the same."
)
@click.option("--all", "show_all", is_flag=True, help="Show every comparison.")
@click.option(
    "--html", metavar="FILE", help="Write the runs of NEW as one self-contained page, too."
)
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request instead.")
@json_option
def compare_command(
    runs: tuple[str, ...],
    *,
    as_json: bool,
    show_all: bool,
    html: str | None,
    markdown: bool,
    **options: Any,
) -> None:
    """Test if the run NEW is slower than BASE beyond noise; exit code 1 if it significantly is.

    BASE and NEW are results of one sweep, measured with two versions of something. Without BASE the
    last run of NEW is compared with the earlier runs there.
    """
    from dtsweep.compare.markdown import markdown_of
    from dtsweep.compare.runs_table import print_comparison
    from dtsweep.inference.verdicts import RunVerdict

    if markdown and as_json:
        raise SweepError("--markdown and --json are two forms of the output; give one of them")
    if html is not None and len(runs) > 1:
        raise SweepError("--html shows the runs of one results folder; give that alone")
    with telling_warnings():
        if len(runs) == 1:
            compared = _with_earlier(runs[0], html=html, **options)
        elif len(runs) == 2:
            compared = _two_runs(*runs, **options)
        else:
            raise SweepError(f"compare takes BASE and NEW, or NEW; it was given {len(runs)}")
    if as_json:
        print_json(compared)
    elif markdown:
        click.echo(markdown_of(compared))
    else:
        print_comparison(compared, console=console(), show_all=show_all)
    sys.exit(1 if compared["verdict"] == RunVerdict.REGRESSION else 0)


def _two_runs(base: str, new: str, *, threshold: float, **options: Any) -> dict[str, Any]:
    from dtsweep.compare.compared_runs import compare_runs
    from dtsweep.compare.runs import load_run
    from dtsweep.compare.words import comparison_json

    earlier = load_run(opened(base))
    later = load_run(opened(new))
    comparison = compare_runs([earlier], later, threshold=threshold, **options)
    return comparison_json(comparison, threshold=threshold)


def _with_earlier(
    results: str, *, threshold: float, html: str | None, **options: Any
) -> dict[str, Any]:
    """Compare the last run of some results with the earlier ones of its machine."""
    from dtsweep.compare.compared_runs import compare_runs
    from dtsweep.compare.runs import load_runs, of_machine
    from dtsweep.compare.trend import trend_of
    from dtsweep.compare.words import comparison_json, first_json

    runs = load_runs(opened(results))
    if not runs:
        raise SweepError(f"no trial of {results} was tried, so there is nothing to compare")
    *earlier, new = runs
    base = earlier if options["other_machine"] else of_machine(earlier, new)
    if base:
        comparison = compare_runs(base, new, threshold=threshold, **options)
        compared = comparison_json(comparison, threshold=threshold)
    else:
        words = "There is one run of this machine, and nothing to compare it with."
        compared = first_json(new, threshold=threshold, words=words)
    if left_out := len(earlier) - len(base):
        compared["notes"].append(
            f"Left out: {count_of(left_out, 'earlier run')} of other machines."
        )
    trend = trend_of([*base, new], of=options["of"][0])
    compared["changes"] = trend.words()
    if html is not None:
        from dtsweep.compare.trend_plot import trend_page
        from dtsweep.show.page import write_page

        write_page(trend_page(compared, trend), html)
    return compared
