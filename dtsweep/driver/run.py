"""Runs a sweep: plans it, lays it out, has it measured, stores what comes of it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.driver.prepare import Prepared, prepare
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder, RunTally
from dtsweep.errors import StorageError
from dtsweep.plan.plan import Plan, make_plan, measured_by
from dtsweep.plan.trial import groups_of
from dtsweep.provenance import slow_import
from dtsweep.report.progress import Progress
from dtsweep.results.store import Results, load
from dtsweep.sweep.axes import Candidate, candidates
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.settings import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.driver.cluster import Cluster
    from dtsweep.session.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says beside the sweep."""

    results: str
    address: str | None = None
    rerun: str | None = None
    node_timeout_s: float = 300.0
    profile: bool = False
    in_process: bool = False

    @property
    def harness(self) -> str:
        """What starts the ranks: column `harness`."""
        return "in_process" if self.in_process else "ray"


def results_of(sweep: Sweep, *, in_process: bool = False) -> str:
    """Where results lie by default."""
    return f"results/{sweep.name}" + "-in-process" * in_process


def run(
    sweep: Sweep,
    results: str | Path | None = None,
    *,
    address: str | None = None,
    rerun: str | None = None,
    in_process: bool = False,
) -> pd.DataFrame:
    """Run what is not yet in the results and return one row per trial, as `dtsweep.load` does.

    Args:
        sweep: the question.
        results: a folder or a URI; `results/<file name>` by default, in this process `results/<file name>-in-process`.
        address: `local`, `auto` or HOST:PORT; by default the Ray that Ray's own programs would use here.
        rerun: None, `failed` or `all`.
        in_process: run the points with one worker in this very process, without Ray: for a debugger.

    Raises:
        SweepError: the sweep or the results can't be used.
        StorageError: the rows could not be stored.
        KeyboardInterrupt: after what was done has been stored.
    """
    where = str(results or results_of(sweep, in_process=in_process))
    options = Options(results=where, address=address, rerun=rerun, in_process=in_process)
    tally = execute(sweep, candidates(sweep), options)
    if tally.storage_error is not None:
        raise StorageError(tally.storage_error)
    if tally.signal_number is not None:
        raise KeyboardInterrupt
    return load(where)


def execute(sweep: Sweep, found: Sequence[Candidate], options: Options) -> RunTally:
    """Run a sweep whose points are listed; talk goes to stderr.

    Raises:
        SweepError: the sweep, the options or the results can't be used.
    """
    results, progress = Results(options.results), Progress(axes=sweep.axes)
    rows = measured_by(options.harness, results.attempts())
    if options.in_process:
        sweep, found = _for_this_process(sweep, found)
    plan = make_plan(sweep, found, rows, rerun=options.rerun, harness=options.harness)
    for name, reason in results.quarantined:
        progress.say(f"left out {results}/{name}: {reason}")
    progress.say(f"{len(plan.to_run)} trials to run, {len(plan.done)} done, {len(plan.skipped)} skipped: {results}")
    progress.total = len(plan.to_run)
    run_of = _Run(sweep=sweep, plan=plan, rows=rows, results=results, progress=progress, options=options)
    if not plan.to_run:
        if options.profile:
            progress.say("nothing runs, so nothing is profiled; --rerun all measures again")
        return run_of.recorder(sweep).tally
    tally = run_of.in_this_process() if options.in_process else run_of.on_ray()
    if tally.storage_error is None:
        results.compact()
    return tally


def _for_this_process(sweep: Sweep, found: Sequence[Candidate]) -> tuple[Sweep, list[Candidate]]:
    """The sweep as this process can run it: one launch of each point, no canaries; what it can't run is skipped."""
    from dtsweep.worker.in_process import gpus_here

    gpus = gpus_here(sweep.resources)
    sweep = replace(
        sweep,
        measure=replace(sweep.measure, repeats=1, fresh=False, canary=False),
        resources=replace(sweep.resources, gpus_per_worker=gpus),
    )
    harness = Harness(name="in_process", has_gpus=gpus > 0)
    return sweep, [replace(c, reason=c.reason or impossible(c.point, harness)) for c in found]


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A plan that is carried out, on Ray or in this process."""

    sweep: Sweep
    plan: Plan
    rows: Sequence[Mapping[str, Any]]
    """What the results have of this harness."""

    results: Results
    progress: Progress
    options: Options

    @property
    def known_devices(self) -> frozenset[str]:
        """Device models of the results that stay; empty is any."""
        kept = () if self.options.rerun == "all" else self.rows
        return frozenset(row["devices"] for row in kept if row["status"] == "ok" and row["devices"])

    def recorder(self, sweep: Sweep, flags: Sequence[str] = ()) -> Recorder:
        """Make the recorder of a sweep whose resources are settled; it stores at once what is skipped."""
        recorder = Recorder(sweep, self.results, self.progress, harness=self.options.harness, flags=flags)
        recorder.store_skipped(self.plan.skipped, self.rows)
        return recorder

    def in_this_process(self) -> RunTally:
        """Run the plan with one worker, here."""
        from dtsweep.driver.in_process import run_in_process

        self.progress.say("using this process: one worker, one launch; its rows are never compared with a cluster's")
        recorder = self.recorder(self.sweep)
        queue = Queue(
            self.sweep, groups_of(self.plan.to_run, fresh=False), canaries={}, is_profiled=self.options.profile
        )
        try:
            run_in_process(self.sweep, queue, recorder, known_devices=self.known_devices)
        except StorageError as error:
            recorder.tally.storage_error = str(error)
        return recorder.tally

    def on_ray(self) -> RunTally:
        """Run the plan on a Ray, private or not."""
        from dtsweep.driver.cluster import connected
        from dtsweep.driver.tuner import signals_noted

        folder = self.sweep.file.parent if self.sweep.file else None
        with (
            tempfile.TemporaryDirectory(prefix="dtsweep-train-", ignore_cleanup_errors=True) as storage,
            connected(self.options.address, folder=folder) as cluster,
            # After Ray has started: it takes SIGTERM for itself.
            signals_noted() as signals,
        ):
            self.progress.say(f"using {cluster.described()}")
            if warning := slow_import():
                self.progress.say(warning)
            prepared = prepare(self.sweep, self.plan, cluster)
            return self._drive(prepared, self._lane_settings(prepared, cluster, storage=storage), signals)

    def _drive(self, prepared: Prepared, settings: Sequence[Settings], signals: list[int]) -> RunTally:
        from dtsweep.driver.scheduler import Scheduler
        from dtsweep.driver.tuner import Interrupted, run_tuners

        recorder = self.recorder(prepared.sweep, flags=prepared.flags)
        for trial, reason in prepared.refused:
            recorder.store_refused(trial, reason)
        queue = Queue(
            prepared.sweep,
            prepared.groups,
            lanes=len(settings),
            canaries=prepared.canaries,
            is_profiled=self.options.profile,
        )
        scheduler = Scheduler(queue, settings, recorder)
        try:
            with self.progress:
                run_tuners(scheduler, signals)
            recorder.store_logs(scheduler.close())
        except Interrupted as interrupted:
            recorder.tally.signal_number = interrupted.signal_number
            for running in scheduler.running.values():
                recorder.store_cancelled(running.trial, running.task, running.started_at)
        except StorageError as error:
            recorder.tally.storage_error = str(error)
        return recorder.tally

    def _lane_settings(self, prepared: Prepared, cluster: Cluster, *, storage: str) -> list[Settings]:
        from dtsweep.driver.shipping import pickled_workload
        from dtsweep.session.settings import Settings

        resources = prepared.sweep.resources
        settings = Settings(
            code=pickled_workload(prepared.sweep, is_shipped=not cluster.is_private),
            cpus_per_worker=resources.cpus_per_worker,
            gpus_per_worker=resources.gpus_per_worker or 0,
            environment=dict(resources.environment),
            node_timeout_s=self.options.node_timeout_s,
            storage=storage,
            is_private=cluster.is_private,
            known_devices=self.known_devices,
        )
        return [replace(settings, nodes=tuple(n.node_id for n in nodes) if nodes else None) for nodes in prepared.lanes]


def misfits(sweep: Sweep, plan: Plan, address: str) -> dict[str, str]:
    """Ask a cluster which trials of a plan don't fit on it: reasons by trial."""
    from dtsweep.driver.cluster import connected

    with connected(address, folder=None) as cluster:
        return {trial.trial_id: reason for trial, reason in prepare(sweep, plan, cluster).refused}
