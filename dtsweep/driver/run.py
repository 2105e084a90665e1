"""Runs a sweep: plans it, lays it out, has it measured, stores what comes of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.analysis.decision import asks_for_cost, check_goal
from dtsweep.analysis.load import load
from dtsweep.cluster.run_folders import remove_left_folders
from dtsweep.driver.planned import Options, PlannedRun
from dtsweep.driver.progress import Progress
from dtsweep.driver.run_writer import RunWriter
from dtsweep.driver.tally import RunTally
from dtsweep.errors import StorageError, SweepError, error_line
from dtsweep.hardware.other_load import OtherLoad
from dtsweep.loops.script_folder import notes_for
from dtsweep.plan.batches import Batches, columns_read
from dtsweep.plan.plan import Plan
from dtsweep.plan.prices import prices_of
from dtsweep.results.frames import damage_of
from dtsweep.results.lease import leased
from dtsweep.results.outbox import CLOSE_S, Outbox
from dtsweep.results.run_record import new_run_id
from dtsweep.results.storage import absolute_place
from dtsweep.results.store import Results
from dtsweep.sweep.arguments import command_line
from dtsweep.sweep.axes import Candidate, candidates
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.point import identity
from dtsweep.sweep.settings import Sweep, of_one_launch
from dtsweep.text import count_of, usd
from dtsweep.workloads.own import Script

if TYPE_CHECKING:
    import pandas as pd

_SOON_S = 10.0
"""Time limit for what is on its way to the results once the run was interrupted."""

_OF_A_JOB = re.compile(r"/runtime_resources/(working_dir|py_modules)_files/")
_OF_A_SESSION = re.compile(r"/session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+/")


def results_of(sweep: Sweep, *, in_process: bool = False) -> str:
    """Default folder of the results."""
    if in_process:
        return f"results/{sweep.name}-in-process"
    return f"results/{sweep.name}"


def refuse_what_ray_deletes(results: str) -> None:
    """Refuse a results folder inside the code of a Ray job, or in a folder of a Ray session.

    Ray unpacks the code of a job below its session and deletes it when space is short. The next
    session does not have the folders of this one.

    Raises:
        SweepError: `results` lie there, as they do by default in a job with a working directory.
    """
    path = results.removeprefix("file://")
    if "://" in path:
        return
    folder = f"{Path(path).expanduser().resolve()}/"
    place = None
    if _OF_A_JOB.search(folder):
        place = (
            "this Ray job's copy of its code, which Ray deletes; give --results an absolute path"
        )
    elif _OF_A_SESSION.search(folder):
        place = (
            "the folder of a Ray session, and the next session has another; give --results a "
            "folder outside,"
        )
    if place is not None:
        raise SweepError(
            f"results {results!r} would lie in {place} or a URI such as s3://bucket/folder"
        )


def run(  # noqa: PLR0913  # options of the command line, by keyword
    sweep: Sweep,
    results: str | Path | None = None,
    *,
    address: str | None = None,
    rerun: str | None = None,
    in_process: bool = False,
    max_hours: float | None = None,
    prices: str | Path | None = None,
    price: float | None = None,
    max_cost: float | None = None,
) -> pd.DataFrame:
    """Run what is not yet in the results and return one row per trial, as `dtsweep.load` does.

    Args:
        sweep: the question.
        results: a folder or a URI; `results/<file name>` by default, in this process `results/<file
            name>-in-process`.
        address: `local`, `auto` or HOST:PORT; by default the Ray that Ray's own programs would use
            here.
        rerun: None, `failed` or `all`.
        in_process: run the points with one worker in this very process, without Ray: for a
            debugger.
        max_hours: hours after which the run ends; the same call goes on.
        prices: a file with the price of a node by node type, in TOML.
        price: USD of every node for an hour, in place of `prices`.
        max_cost: USD of all runs of these results after which the run ends; the same call with more
            goes on.

    Raises:
        SweepError: the sweep or the results can't be used.
        StorageError: the rows could not be stored.
        ConnectionError: the cluster has stopped; what was done has been stored.
        KeyboardInterrupt: after what was done has been stored.
    """
    if results is None:
        results = results_of(sweep, in_process=in_process)
    where = absolute_place(str(results))
    options = Options(
        results=where,
        address=address,
        rerun=rerun,
        in_process=in_process,
        max_hours=max_hours,
        prices=prices_of(prices, price),
        max_cost_usd=max_cost,
    )
    tally = execute(sweep, candidates(sweep), options)
    if tally.storage_error is not None:
        raise StorageError(tally.storage_error)
    if tally.signal_number is not None:
        raise KeyboardInterrupt
    if tally.cluster_error is not None:
        raise ConnectionError(tally.cluster_error)
    return load(where)


def execute(sweep: Sweep, candidates: Sequence[Candidate], options: Options) -> RunTally:
    """Run a sweep whose points are listed, for the command line and `run`; messages go to stderr.

    Raises:
        SweepError: the sweep, the options or the results can't be used.
        StorageError: the results can't be read, or not be written to; nothing was started.
    """
    other_load = OtherLoad(options.address)
    refuse_what_ray_deletes(options.results)
    if options.max_cost_usd is not None and options.prices is None:
        raise SweepError(
            "a limit of cost needs the prices of nodes: add --prices FILE, or --price USD for a "
            "node for an hour"
        )
    if sweep.question is not None and sweep.question.goal is not None:
        check_goal(sweep.question.goal)
        if options.prices is None and asks_for_cost(sweep.question.goal):
            raise SweepError(
                "the goal asks for a cost, and nodes have no price: add --prices FILE, or "
                "--price USD for a node for an hour"
            )
    remove_left_folders()
    results = Results(options.results)
    progress = Progress(axes=sweep.axes)
    if options.in_process:
        if sweep.search is not None:
            progress.say(
                "--in-process does not search: it measures each point with one worker once"
            )
        sweep, candidates = _for_this_process(sweep, candidates)
    results.storage.reach()
    outbox = Outbox(results, progress.say)
    run_id = new_run_id()
    with ExitStack() as stack:
        unwritable = None
        try:
            stack.enter_context(leased(results.storage, progress.say, run_id=run_id))
            outbox.send_left()
        except StorageError as error:  # no matter if there is nothing to run
            unwritable = error
        planned = _planned(sweep, candidates, options, outbox, progress)
        _refuse_other_target(sweep, planned)
        if planned.plan.to_run and unwritable is not None:
            raise unwritable
        record = RunWriter(
            results, outbox, progress, run_id=run_id, sweep=sweep, max_hours=options.max_hours
        )
        if sweep.search is None:
            record.list_points([identity(one.point) for one in candidates if one.reason is None])
        if not planned.plan.to_run:
            if unwritable is None:
                progress.end_rounds(planned.plan)
                record.renew_certificate()
            # What is skipped is stored all the same.
            tally = planned.recorder(planned.sweep).tally
            outbox.close()
            return tally
        planned = replace(planned, record=record)
        record.node_account = planned.record_of_nodes
        if (words := other_load.words()) is not None:
            progress.say(words)
        return _carried_out(planned, record)


def _planned(
    sweep: Sweep,
    candidates: Sequence[Candidate],
    options: Options,
    outbox: Outbox,
    progress: Progress,
) -> PlannedRun:
    """Plan by what the results hold, and say how much there is to do."""
    results = Results(options.results)
    stored = results.attempts(columns_read(sweep))
    if (damage := damage_of(results)) is not None:
        raise StorageError(damage)
    batches = Batches(sweep, candidates, stored, rerun=options.rerun, harness=options.harness)
    plan = batches.next()
    for line in results.left_out():
        progress.say(line)
    progress.say(
        f"{count_of(len(plan.to_run), 'trial')} to run, {len(plan.done)} done, "
        f"{len(plan.skipped)} skipped: {results}"
    )
    if plan.to_run:
        for note in _notes_on_files(plan):
            progress.say(note)
    progress.total = len(plan.to_run)
    return PlannedRun(
        sweep=sweep,
        plan=plan,
        batches=batches,
        outbox=outbox,
        progress=progress,
        options=options,
        earlier_usd=_earlier_cost(results, options, progress),
    )


def _notes_on_files(plan: Plan) -> list[str]:
    """Lines on files of the user that a script could change; none for other workloads."""
    words: list[str] = []
    scripts = [trial.point for trial in plan.to_run if isinstance(trial.point.workload, Script)]
    for point in scripts:
        words += command_line(point.workload.arguments, point.workload.values(point))
    if not scripts:
        return []
    return notes_for(Path.cwd(), words)


def _earlier_cost(results: Results, options: Options, progress: Progress) -> float:
    """Cost of the earlier runs of these results, by their records, if there is a limit of it."""
    if options.max_cost_usd is None:
        return 0.0
    costs = [run.record.cost_usd for run in results.run_records()]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        progress.say(
            f"the cost of {count_of(len(costs) - len(known), 'earlier run')} is unknown and does "
            "not count for --max-cost"
        )
    if known:
        progress.say(f"spent by earlier runs: {usd(sum(known))} of {usd(options.max_cost_usd)}")
    return sum(known)


def _carried_out(planned: PlannedRun, record: RunWriter) -> RunTally:
    """Have the plan measured, and all of it stored."""
    planned.outbox.try_writing()
    record.start()
    if planned.options.in_process:
        from dtsweep.driver.in_process_run import run_in_process as carry_out
    else:
        from dtsweep.driver.on_ray import run_on_ray as carry_out
    wait_s = CLOSE_S
    try:
        tally = carry_out(planned)
        # After a signal the user waits for the end.
        if tally.signal_number is not None:
            wait_s = _SOON_S
    except BaseException as error:
        record.end(*_end_by(error))
        if (storage_error := _closed(planned.outbox, wait_s)) is not None:
            planned.progress.say(f"dtsweep: {storage_error}")
        raise
    record.end(tally.ended_as, tally.storage_error or tally.cluster_error)
    tally.storage_error = tally.storage_error or _closed(planned.outbox, wait_s)
    if tally.storage_error is None and tally.signal_number is None:
        planned.outbox.compact()
    return tally


def _end_by(error: BaseException) -> tuple[str, str | None]:
    """End of a run that an exception has ended, and its reason, as the record has them."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", None
    if isinstance(error, SweepError | StorageError):
        return "failed", str(error)
    return "failed", error_line(error)


def _refuse_other_target(sweep: Sweep, planned: PlannedRun) -> None:
    """Refuse to train to another target than the launches that are stored: times don't compare."""
    goal = sweep.training_goal
    targets = (row.get("target_loss") for row in planned.plan.rows)
    stored = {target for target in targets if target is not None}
    if goal is not None and stored - {goal.target}:
        raise SweepError(
            f"trainings in {planned.options.results} have another target; take another --results",
            word="target",
        )


def _closed(outbox: Outbox, wait_s: float) -> str | None:
    """Wait for what is on its way to the results; return what is not stored."""
    try:
        outbox.close(wait_s)
    except StorageError as error:
        return str(error)
    return None


def _for_this_process(
    sweep: Sweep, candidates: Sequence[Candidate]
) -> tuple[Sweep, list[Candidate]]:
    """The sweep as this process can run it: one launch of each possible point, no canaries."""
    from dtsweep.worker.rank import cpus_here, gets_gpu

    if sweep.training_goal:
        raise SweepError(
            "--in-process trains to no target: it has one launch; leave it out, or the target",
            word="target",
        )
    gpus = int(gets_gpu(sweep.resources))
    sweep = of_one_launch(sweep)
    sweep = replace(
        sweep,
        measure=replace(sweep.measure, fresh=False, canary=False),
        resources=replace(
            sweep.resources, gpus_per_worker=gpus, cpus_per_worker=cpus_here(sweep.resources)
        ),
    )
    harness = Harness(name="in_process", has_gpus=gpus > 0)
    return sweep, [
        replace(candidate, reason=candidate.reason or impossible(candidate.point, harness))
        for candidate in candidates
    ]
