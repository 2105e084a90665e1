"""Commands that measure, or say what would be: run, plan, doctor."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dtsweep.cli.decide import print_results
from dtsweep.cli.options import (
    address_option,
    console,
    json_option,
    print_json,
    question_options,
    rerun_option,
    results_option,
    run_options,
    set_option,
    sweep_argument,
    take_prices,
    take_question,
    tell,
    try_all_option,
    with_question,
)
from dtsweep.errors import SweepError

if TYPE_CHECKING:
    from dtsweep.sweep.axes import Candidate
    from dtsweep.sweep.settings import Sweep


@click.command("run")
@sweep_argument
@set_option
@question_options
@run_options
def run_command(sweep: str, settings: tuple[str, ...], in_process: bool, **options: Any) -> None:
    """Run what is not yet in the results, then print the report; after Ctrl-C too."""
    refuse_contradiction(in_process=in_process, address=options["address"])
    prices = take_prices(options)
    asked, candidates = _read(sweep, settings, take_question(options))
    options["prices"] = prices
    carry_out(asked, candidates, in_process=in_process, **options)


def refuse_contradiction(*, in_process: bool, address: str | None) -> None:
    """Refuse an address where Ray is not used.

    Raises:
        SweepError: both options are given.
    """
    if in_process and address:
        raise SweepError(
            "--in-process uses no Ray, so --address says nothing; leave one of them out"
        )


def carry_out(
    sweep: Sweep,
    candidates: list[Candidate],
    *,
    results: str | None,
    as_json: bool,
    try_all: bool,
    **options: Any,
) -> NoReturn:
    """Run a sweep whose points are listed, print the report, and exit with the run's code.

    Args:
        sweep: the question.
        candidates: its points.
        results: where they are stored; None is the default folder.
        as_json: print the report as JSON values.
        try_all: measure what is expected to run out of device memory, too.
        options: the other fields of `dtsweep.driver.planned.Options`.
    """
    from dtsweep.driver.planned import Options
    from dtsweep.driver.run import execute, results_of
    from dtsweep.results.storage import absolute_place
    from dtsweep.text import count_of

    sweep = _without_pruning(sweep, try_all=try_all)
    if results is None:
        results = results_of(sweep, in_process=options["in_process"])
    place = absolute_place(results)
    try:
        tally = execute(sweep, candidates, Options(results=place, **options))
    except KeyboardInterrupt:  # while Ray starts or stops, where no trial runs
        _say_interrupted(options["rerun"])
        sys.exit(130)
    if tally.storage_error is not None:
        tell(f"dtsweep: {tally.storage_error}")
    elif tally.signal_number is not None:
        _end_at_next_signal()
        _say_interrupted(options["rerun"])
    elif tally.cluster_error is not None:
        click.echo(
            f"dtsweep: {tally.cluster_error}; what was done is stored; "
            f"{_how_to_go_on(options['rerun'])}",
            err=True,
        )
    elif tally.trials_left is not None:
        next_step = tally.next_step
        if options["rerun"] == "all":
            next_step = _how_to_go_on("all")
        tell(
            f"dtsweep: {tally.limit}; {count_of(tally.trials_left, 'trial')} left of those "
            f"planned so far; {next_step}"
        )
    # Where the run was interrupted, or at its limit, before any trial began, there may be no rows.
    is_cut = tally.signal_number is not None or tally.trials_left is not None
    if tally.storage_error is None and (tally.statuses or not is_cut):
        question = sweep.question
        if options["in_process"]:
            # It launched each point once, as a plain grid.
            question = None
        print_results(place, as_json=as_json, question=question)
    sys.exit(tally.exit_code)


@click.command()
@sweep_argument
@results_option
@set_option
@question_options
@address_option
@rerun_option
@try_all_option
@json_option
def plan(sweep: str, settings: tuple[str, ...], **options: Any) -> None:
    """Say what a run would do, and why; starts nothing."""
    asked, candidates = _read(sweep, settings, take_question(options))
    asked = _without_pruning(asked, try_all=options.pop("try_all"))
    _show_plan(asked, candidates, **options)


def _show_plan(
    sweep: Sweep,
    candidates: list[Candidate],
    *,
    results: str | None,
    rerun: str | None,
    as_json: bool,
    address: str | None,
) -> None:
    """Print the plan of a sweep whose points are listed.

    Args:
        sweep: the question.
        candidates: its points.
        results: where what is done is stored; None is the default folder.
        rerun: what is measured again: None, `failed` or `all`.
        as_json: print JSON values.
        address: of the Ray that is asked whether every world fits; None asks none.
    """
    from dtsweep.cli.plan_table import plan_json, print_plan
    from dtsweep.hardware.other_load import OtherLoad
    from dtsweep.plan.batches import columns_read
    from dtsweep.plan.needed_nodes import nodes_json
    from dtsweep.plan.plan import make_plan
    from dtsweep.results.frames import damage_of
    from dtsweep.results.lease import holder
    from dtsweep.results.store import Results
    from dtsweep.sweep.evidence import print_untried, untried_in

    other_load = OtherLoad(address)
    _refuse_unknown_goal(sweep)
    store = Results(f"results/{sweep.name}" if results is None else results)
    planned = make_plan(sweep, candidates, store.attempts(columns_read(sweep)), rerun=rerun)
    if (damage := damage_of(store)) is not None:
        tell(damage)
    if (running := holder(store.storage)) is not None:
        tell(f"{store} is in use: {running.description}")
    misfits = None
    if address is not None:
        from dtsweep.driver.on_ray import misfits_on

        misfits = misfits_on(address, sweep, planned)
    for line in store.left_out():
        tell(line)
    if (words := other_load.words()) is not None:
        tell(f"dtsweep: {words}")
    untried = untried_in(sweep, candidates)
    if as_json:
        values = plan_json(planned, misfits) | nodes_json(sweep, candidates)
        print_json(values | {"untried": untried})
    else:
        print_plan(
            planned,
            misfits,
            console=console(),
            where=str(store),
            axes=sweep.axes,
        )
        print_untried(untried, console=console())


def _refuse_unknown_goal(sweep: Sweep) -> None:
    """Refuse a goal whose columns or condition can't be meant, as `check_goal` does."""
    from dtsweep.sweep.goal import GOALS

    if sweep.question is None or sweep.question.goal is None:
        return
    if sweep.question.goal not in GOALS.values():
        # Its imports take longer than a plan without results.
        from dtsweep.analysis.decision import check_goal

        check_goal(sweep.question.goal)


@click.command()
@click.argument("sweep", metavar="[SWEEP.py]", required=False)
@address_option
@click.option(
    "--results",
    metavar="DIR-or-URI",
    help="Also try this place: write, list and delete a file.",
)
@json_option
def doctor(sweep: str | None, address: str | None, results: str | None, as_json: bool) -> None:
    """Check every node and the links between them, before a run.

    Rates, counters, versions, clocks, networks, memory, disks and GPUs are checked. Of a sweep it
    says which features were never tried on such machines.
    """
    from dataclasses import asdict

    from dtsweep.doctor.diagnose import diagnose
    from dtsweep.doctor.nodes_table import print_diagnosis
    from dtsweep.sweep.evidence import print_untried, untried_in

    asked = _read(sweep, (), {}) if sweep else None
    try:
        diagnosis = diagnose(address, tell=tell, results=results)
    except KeyboardInterrupt:
        tell("dtsweep: interrupted")
        sys.exit(130)
    untried = asked and untried_in(*asked, diagnosis.nodes)
    if as_json:
        print_json(asdict(diagnosis) | {"untried": untried})
    else:
        print_diagnosis(**asdict(diagnosis), console=console())
        print_untried(untried, console=console())
    sys.exit(1 if diagnosis.problems else 0)


def _read(
    sweep: str, settings: tuple[str, ...], question: Mapping[str, Any]
) -> tuple[Sweep, list[Candidate]]:
    """Read a sweep file with options `--set`, and with the question of the command line."""
    from dtsweep.sweep.axes import parse_setting
    from dtsweep.sweep.file import read_sweep

    values: dict[str, list[Any]] = {}
    for name, listed in map(parse_setting, settings):
        values.setdefault(name, []).extend(listed)
    read, candidates = read_sweep(Path(sweep), values)
    return with_question(read, question), candidates


def _without_pruning(sweep: Sweep, *, try_all: bool) -> Sweep:
    """The sweep with `Measure(prune=False)` if all of its trials are to be tried."""
    if not try_all:
        return sweep
    return replace(sweep, measure=replace(sweep.measure, prune=False))


def _end_at_next_signal() -> None:
    """Have another Ctrl-C end this process at once: what is left is to print."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _say_interrupted(rerun: str | None) -> None:
    click.echo(f"dtsweep: interrupted; what was done is stored; {_how_to_go_on(rerun)}", err=True)


def _how_to_go_on(rerun: str | None) -> str:
    if rerun != "all":
        return "the same command goes on"
    return (
        "the same command starts over, without --rerun all it measures what is new or was measured "
        "otherwise"
    )
