"""Commands that compare: two points, two runs."""

from __future__ import annotations

import sys
from typing import Any

import click

from dtsweep.cli.options import (
    FiniteRange,
    Share,
    console,
    json_option,
    load_results,
    print_json,
    telling_warnings,
)
from dtsweep.errors import SweepError

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
@click.option(
    "--indifference",
    type=Share(),
    metavar="SHARE",
    help="A difference this small makes no practical difference: 3%.",
)
@json_option
def difference(
    results: str, a: str, b: str, of: tuple[str, ...], indifference: float | None, as_json: bool
) -> None:
    """Say if one of two points is faster or both are equal, or how many more launches would show.

    A and B are each a point_id, its beginning, or settings that only one point has: 'workers=2
    sync=ddp'.
    """
    from dtsweep.report.difference_view import compare_points, print_difference

    compared = compare_points(load_results(results), a, b, of=of, zone=indifference)
    if as_json:
        print_json(compared)
    else:
        print_difference(compared, console=console())


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="[BASE] NEW")
@of_option
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
@click.option(
    "--against",
    type=click.Choice(["LAST"], case_sensitive=False),
    help="In the place of BASE: the last runs of this machine in --history, to which NEW is added.",
)
@click.option(
    "--history", metavar="DIR-or-URI", help="Where accepted runs are kept, for --against."
)
@click.option(
    "--accept",
    is_flag=True,
    help="Add NEW to the history even if it is worse, and begin again with it.",
)
@click.option("--all", "show_all", is_flag=True, help="Show every comparison.")
@json_option
def compare(runs: tuple[str, ...], as_json: bool, show_all: bool, **options: Any) -> None:
    """Test if the run NEW is slower than BASE beyond noise; exit code 1 if it significantly is.

    BASE and NEW are results of one sweep, measured with two versions of something.
    """
    from dtsweep.compare.runs_table import print_comparison
    from dtsweep.inference.verdicts import RunVerdict

    _check_usage(runs, **options)
    with telling_warnings():
        if options["against"]:
            compared = _against_last(runs[0], **options)
        else:
            compared = _two_runs(*runs, **options)
    if as_json:
        print_json(compared)
    else:
        print_comparison(compared, console=console(), show_all=show_all)
    sys.exit(1 if compared["verdict"] == RunVerdict.REGRESSION and not options["accept"] else 0)


def _check_usage(
    runs: tuple[str, ...], *, against: str | None, history: str | None, accept: bool, **_: Any
) -> None:
    if len(runs) != (1 if against else 2):
        wanted = "BASE and NEW, or NEW with --against LAST"
        if against:
            wanted = "NEW alone with --against LAST"
        raise SweepError(f"compare takes {wanted}; it was given {len(runs)}")
    if against and not history:
        raise SweepError(
            "--against LAST needs a place for the runs: add --history FOLDER (or s3://…)"
        )
    if not against and (history or accept):
        raise SweepError(
            "--history and --accept go with --against LAST; add it, and leave BASE out"
        )


def _two_runs(
    base: str, new: str, *, of: tuple[str, ...], threshold: float, other_machine: bool, **_: Any
) -> dict[str, Any]:
    from dtsweep.compare.compared_runs import compare_runs
    from dtsweep.compare.runs import load_run
    from dtsweep.compare.words import comparison_json

    earlier = load_run(base)
    later = load_run(new)
    comparison = compare_runs(
        [earlier], later, of=of, threshold=threshold, other_machine=other_machine
    )
    return comparison_json(comparison, threshold=threshold) | {"history": None}


def _against_last(
    new: str, *, of: tuple[str, ...], threshold: float, other_machine: bool, **options: Any
) -> dict[str, Any]:
    """Compare a run with those of a history, and add it if nothing in it is significantly worse."""
    from dtsweep.compare.compared_runs import compare_runs
    from dtsweep.compare.history import append, entries, is_stored
    from dtsweep.compare.runs import entry_for, load_run, of_machine, run_of
    from dtsweep.compare.words import comparison_json, first_json
    from dtsweep.inference.verdicts import RunVerdict

    run = load_run(new)
    history = options["history"]
    accept = options["accept"]
    stored = entries(history)
    entry = None
    if accept or len(run.launches):
        entry = entry_for(new, run, is_start=accept)
    is_new = entry is not None and not is_stored(history, entry)
    earlier = [run_of(old) for old in stored if entry is None or old.run != entry.run]
    if other_machine:
        base = earlier
    else:
        base = of_machine(earlier, run)
    if base:
        comparison = compare_runs(
            base, run, of=of, threshold=threshold, other_machine=other_machine
        )
        compared = comparison_json(comparison, threshold=threshold)
    elif entry is None:
        raise SweepError(
            f"no trial of {run.name} ended ok, and {history} has no other run of this machine"
        )
    else:
        subject = f"The {'first' if is_new else 'only'} run of this machine in the history"
        compared = first_json(
            run, threshold=threshold, words=f"{subject}: there is nothing to compare it with."
        )
    adds = accept or (is_new and compared["verdict"] != RunVerdict.REGRESSION)
    if entry is not None and adds:
        append(history, entry)
    words = _on_history(adds=adds, is_new=is_new, accept=accept)
    return compared | {
        "history": {
            "stored": is_new and adds,
            "words": words,
            "other_machines": len(earlier) - len(base),
        }
    }


def _on_history(*, adds: bool, is_new: bool, accept: bool) -> str:
    """Say what became of the run in its history."""
    if adds:
        where = "This run was in the history already"
        if is_new:
            where = "This run is in the history now"
        return where + (", and what came before it no longer counts." if accept else ".")
    if is_new:
        return "Not added to the history: --accept adds it, and begins again with it."
    return "The history is as it was."
