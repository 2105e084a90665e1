"""The command line: `python -m dtsweep …`, or the script `dtsweep …`."""

from __future__ import annotations

import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dtsweep.errors import StorageError, SweepError, nearest, printable

if TYPE_CHECKING:
    from rich.console import Console

    from dtsweep.plan.plan import Plan
    from dtsweep.sweep.axes import Candidate
    from dtsweep.sweep.settings import Sweep


class _RunByDefault(click.Group):
    """`dtsweep SWEEP.py` is `dtsweep run SWEEP.py`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "--version"):
            near = nearest(args[0], self.commands)
            if near and not Path(args[0]).exists():
                raise SweepError(f"{args[0]!r} is neither a command nor a sweep file; did you mean {near!r}?")
            args = ["run", *args]
        return super().parse_args(ctx, args)


_sweep = click.argument("sweep", metavar="SWEEP.py")
_set = click.option("--set", "settings", multiple=True, metavar="AXIS=V1,V2", help="Narrow or replace an axis.")
_results = click.option("--results", metavar="DIR-or-URI", help="Where results lie; results/<file name> by default.")
_rerun = click.option("--rerun", type=click.Choice(["failed", "all"]), help="Measure again what is done.")
_address = click.option(
    "--address", metavar="local|auto|HOST:PORT", help="Which Ray; by default the one Ray would use."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


@click.group(cls=_RunByDefault)
@click.version_option(package_name="dtsweep")
def cli() -> None:
    """Measure the latency/throughput frontier of a distributed training job.

    `dtsweep SWEEP.py` runs a sweep; running it again resumes it.
    """


@cli.command()
@_sweep
@_results
@_set
@_address
@_rerun
@click.option(
    "--node-timeout",
    "node_timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait for nodes.",
)
@click.option("--profile", is_flag=True, help="Store a trace of some steps of each world's first trial.")
@click.option("--in-process", is_flag=True, help="One worker in this process, without Ray: for a debugger.")
def run(sweep: str, results: str | None, settings: tuple[str, ...], **options: Any) -> None:
    """Run what is not yet in the results, then print the frontier; after Ctrl-C too."""
    if options["in_process"] and options["address"]:
        raise SweepError("--in-process uses no Ray, so --address says nothing; leave one of them out")
    question, found = _read(sweep, settings)

    from dtsweep.driver.planned import Options
    from dtsweep.driver.run import execute, results_of

    where = results or results_of(question, in_process=options["in_process"])
    try:
        tally = execute(question, found, Options(results=where, **options))
    except KeyboardInterrupt:  # while Ray starts or stops, where no trial runs
        click.echo(f"dtsweep: interrupted; what was done is stored; {_how_to_go_on(options['rerun'])}", err=True)
        sys.exit(130)
    if tally.storage_error is not None:
        _tell(f"dtsweep: {tally.storage_error}")
    elif tally.signal_number is not None:
        _end_at_next_signal()
        click.echo(f"dtsweep: interrupted; what was done is stored; {_how_to_go_on(options['rerun'])}", err=True)
    elif tally.cluster_error is not None:
        click.echo(
            f"dtsweep: {tally.cluster_error}; what was done is stored; {_how_to_go_on(options['rerun'])}", err=True
        )
    # Where the run was interrupted before any trial had begun, there may be nothing to read.
    if tally.storage_error is None and (tally.signal_number is None or tally.statuses):
        _print_report(where, as_json=False, show_all=False)
    sys.exit(tally.exit_code)


@cli.command()
@_sweep
@_results
@_set
@_address
@_rerun
@_json
def plan(
    sweep: str, results: str | None, settings: tuple[str, ...], address: str | None, rerun: str | None, as_json: bool
) -> None:
    """Say what a run would do, and why; starts nothing."""
    question, found = _read(sweep, settings)

    from dtsweep.plan.plan import PLANNED_BY, make_plan
    from dtsweep.report.plan import plan_json, print_plan
    from dtsweep.results.store import Results

    store = Results(results or f"results/{question.name}")
    made = make_plan(question, found, store.attempts(PLANNED_BY), rerun=rerun)
    misfits = None if address is None else _misfits(question, made, address)
    for name, reason in store.quarantined:
        _tell(f"left out {store}/{name}: {reason}")
    if as_json:
        _print_json(plan_json(made, misfits))
    else:
        print_plan(made, misfits, console=_console(), where=str(store), axes=question.axes)


@cli.command()
@click.argument("results", metavar="RESULTS")
@click.option("--all", "show_all", is_flag=True, help="Show dominated points, every scaling group and every reason.")
@click.option("--one-product", is_flag=True, help="Compare all models with each other: one frontier, not one for each.")
@_json
def report(results: str, show_all: bool, one_product: bool, as_json: bool) -> None:
    """Print the frontier, scaling and failures of results."""
    _print_report(results, as_json=as_json, show_all=show_all, one_product=one_product)


@cli.command()
@_address
@click.option("--results", metavar="DIR-or-URI", help="Also try this place, and store there how fast links are.")
@_json
def doctor(address: str | None, results: str | None, as_json: bool) -> None:
    """Check every node and the links between them: rates, counters, versions, clocks, networks, memory, disks, GPUs."""
    from dataclasses import asdict

    from dtsweep.doctor.diagnose import diagnose
    from dtsweep.report.doctor import print_diagnosis

    try:
        diagnosis = diagnose(address, tell=_tell, results=results)
    except KeyboardInterrupt:
        _tell("dtsweep: interrupted")
        sys.exit(130)
    if as_json:
        _print_json(asdict(diagnosis))
    else:
        print_diagnosis(**asdict(diagnosis), console=_console())
    sys.exit(1 if diagnosis.problems else 0)


def main() -> None:
    """Run the command; what a user did wrong is one line on stderr and exit code 2, storage 5."""
    try:
        cli(prog_name="dtsweep")
    except SweepError as error:
        _tell(f"dtsweep: {error}")
        sys.exit(2)
    except StorageError as error:
        _tell(f"dtsweep: {error}")
        sys.exit(5)


def _read(sweep: str, settings: tuple[str, ...]) -> tuple[Sweep, list[Candidate]]:
    from dtsweep.sweep.axes import parse_setting
    from dtsweep.sweep.file import read_sweep

    values: dict[str, list[Any]] = {}
    for name, more in map(parse_setting, settings):
        values.setdefault(name, []).extend(more)
    return read_sweep(Path(sweep), values)


def _end_at_next_signal() -> None:
    """Have another Ctrl-C end this process at once: what is left is to print."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _how_to_go_on(rerun: str | None) -> str:
    if rerun != "all":
        return "the same command goes on"
    return "the same command starts over, without --rerun all it measures what is new or was measured otherwise"


def _print_report(results: str, *, as_json: bool, show_all: bool, one_product: bool = False) -> None:
    from dtsweep.analysis.load import load
    from dtsweep.report.as_json import report_json
    from dtsweep.report.content import content_of
    from dtsweep.report.terminal import print_report

    with warnings.catch_warnings(record=True, action="always") as said:
        content = content_of(load(results, canaries=True), one_product=one_product)
    for warning in said:
        _tell(f"dtsweep: {warning.message}")
    if as_json:
        _print_json(report_json(content))
    else:
        print_report(content, console=_console(), show_all=show_all)


def _misfits(sweep: Sweep, made: Plan, address: str) -> dict[str, str]:
    from dtsweep.driver.on_ray import misfits

    return misfits(sweep, made, address)


def _tell(text: str) -> None:
    click.echo(printable(text), err=True)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2))
