"""Runs a sweep: plans it, connects to Ray, has the scheduler drive it, stores what comes of it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.driver.recorder import Recorder, RunTally
from dtsweep.errors import StorageError, SweepError
from dtsweep.plan.plan import Plan, Trial, canaries, groups_of, make_plan, new_skips
from dtsweep.results.store import Results, load
from dtsweep.sweep.axes import Candidate, candidates
from dtsweep.sweep.file import module_name
from dtsweep.sweep.settings import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.driver.cluster import Cluster, Node
    from dtsweep.session.worker_loop import Code, Settings


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says beside the sweep."""

    results: str
    address: str | None = None
    rerun: str | None = None
    node_timeout_s: float = 300.0
    profile: bool = False
    nsight: bool = False

    @property
    def profiler(self) -> str | None:
        """What records steps after the window, if anything does: one process has room for one of them."""
        return "nsight" if self.nsight else "torch" if self.profile else None


def run(
    sweep: Sweep, results: str | Path | None = None, *, address: str | None = None, rerun: str | None = None
) -> pd.DataFrame:
    """Run what is not yet in the results and return one row per trial, as `dtsweep.load` does.

    Args:
        sweep: the question.
        results: a folder or a URI; `results/<file name>` by default.
        address: `local`, `auto` or HOST:PORT; by default the Ray that Ray's own programs would use here.
        rerun: None, `failed` or `all`.

    Raises:
        SweepError: the sweep or the results can't be used.
        StorageError: the rows could not be stored.
        KeyboardInterrupt: after what was done has been stored.
    """
    where = str(results or f"results/{sweep.name}")
    tally = execute(sweep, candidates(sweep), Options(results=where, address=address, rerun=rerun))
    if tally.storage_error is not None:
        raise StorageError(tally.storage_error)
    if tally.signal_number is not None:
        raise KeyboardInterrupt
    return load(where)


def execute(sweep: Sweep, found: Sequence[Candidate], options: Options) -> RunTally:
    """Run a sweep whose points are listed; talk goes to stderr."""
    results = Results(options.results)
    rows = results.attempts()
    plan = make_plan(sweep, found, rows, rerun=options.rerun)
    known = {row["devices"] for row in rows if row["status"] == "ok" and row["devices"] and options.rerun != "all"}
    recorder = Recorder(sweep, results, known=known)
    for name, reason in results.quarantined:
        recorder.progress.say(f"left out {results}/{name}: {reason}")
    recorder.progress.say(
        f"{len(plan.to_run)} trials to run, {len(plan.done)} done, {len(plan.skipped)} skipped: {results}"
    )
    recorder.skips(new_skips(sweep, plan.skipped, rows))
    if plan.to_run:
        recorder.progress.total = len(plan.to_run)
        _run(sweep, plan, recorder, options)
        if recorder.tally.storage_error is None:
            results.compact()
    elif options.profiler:
        recorder.progress.say("nothing runs, so nothing is profiled; --rerun all measures again")
    return recorder.tally


def _run(sweep: Sweep, plan: Plan, recorder: Recorder, options: Options) -> None:
    from dtsweep.driver.cluster import connected
    from dtsweep.driver.scheduler import Scheduler
    from dtsweep.driver.tuner import Interrupted, run_tuners, signals_noted

    folder = sweep.file.parent if sweep.file else None
    with (
        tempfile.TemporaryDirectory(prefix="dtsweep-train-", ignore_cleanup_errors=True) as storage,
        connected(options.address, folder=folder) as cluster,
        # After Ray has started: it takes SIGTERM for itself.
        signals_noted() as signals,
    ):
        recorder.progress.say(f"using {cluster.described()}")
        recorder.sweep = sweep = _with_gpus(sweep, cluster)
        lanes = _lanes(sweep, cluster)
        to_run = [trial for trial in plan.to_run if not recorder.refuses(trial, _misfit(sweep, cluster, lanes, trial))]
        groups = groups_of(to_run, fresh=sweep.measure.fresh)
        if cluster.node_types and sweep.measure.repeats > 1:
            # The repeats of a world follow each other, so that its nodes are asked for once.
            groups.sort(key=lambda group: -group[0].point.workers)
            recorder.flags += ("adjacent_launches",)
        if options.nsight:
            recorder.flags += ("profiled",)
        settings = _settings(sweep, options, cluster, storage=storage)
        lane_settings = [replace(settings, nodes=tuple(n.node_id for n in nodes) if nodes else None) for nodes in lanes]
        watches = canaries([*to_run, *plan.done])
        scheduler = Scheduler(sweep, groups, lane_settings, recorder, canaries=watches, profiler=options.profiler)
        try:
            with recorder.progress:
                run_tuners(scheduler, signals)
            recorder.keep_logs(scheduler.close())
        except Interrupted as interrupted:
            recorder.tally.signal_number = interrupted.signal_number
            for running in scheduler.running.values():
                recorder.cancelled(running.trial, running.task, running.started_at)
        except StorageError as error:
            recorder.tally.storage_error = str(error)


def _lanes(sweep: Sweep, cluster: Cluster) -> list[tuple[Node, ...] | None]:
    """Share the nodes out over the lanes; one lane has them all."""
    count = sweep.resources.concurrent
    if count == 1:
        return [None]
    if cluster.node_types:
        raise SweepError("concurrent trials need nodes that stay; this cluster adds and removes them: use concurrent=1")
    usable = [node for node in cluster.nodes if node.resources.get("CPU", 0)]
    if len(usable) < count:
        raise SweepError(
            f"concurrent={count} needs as many nodes, so that trials don't disturb each other; here: {len(usable)}"
        )
    return [tuple(usable[index::count]) for index in range(count)]


def _misfit(sweep: Sweep, cluster: Cluster, lanes: Sequence[tuple[Node, ...] | None], trial: Trial) -> str | None:
    resources = sweep.resources
    if trial.point.precision == "tf32" and not resources.gpus_per_worker:
        return "precision tf32 needs a GPU"
    each = {"CPU": resources.cpus_per_worker, "GPU": resources.gpus_per_worker or 0}
    return next((why for lane in lanes if (why := cluster.misfit(trial.point, each=each, nodes=lane))), None)


def _code(sweep: Sweep, *, is_shipped: bool) -> Code:
    """Pickle the workload: a class of the sweep file by value, what it imports from the folder by name.

    Args:
        sweep: its workload travels.
        is_shipped: whether the folder's modules travel with Ray's job; else they are found where they are.
    """
    from ray import cloudpickle

    from dtsweep.session.worker_loop import Code

    module = sys.modules[type(sweep.workload).__module__]
    by_value = sweep.file is not None and module.__name__ == module_name(sweep.file)
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps(sweep.workload)
    except (TypeError, ValueError, AttributeError) as error:
        raise SweepError(f"workload {type(sweep.workload).__name__} can't be sent to the workers: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    folder = None if is_shipped or sweep.file is None else str(sweep.file.resolve().parent)
    return Code(pickled=pickled, folder=folder)


def _settings(sweep: Sweep, options: Options, cluster: Cluster, *, storage: str) -> Settings:
    from dtsweep.session.worker_loop import Settings

    return Settings(
        code=_code(sweep, is_shipped=not cluster.is_private),
        cpus_per_worker=sweep.resources.cpus_per_worker,
        gpus_per_worker=sweep.resources.gpus_per_worker or 0,
        environment=dict(sweep.resources.environment),
        node_timeout_s=options.node_timeout_s,
        storage=storage,
        is_private=cluster.is_private,
        nsight=options.nsight,
    )


def misfits(sweep: Sweep, trials: Sequence[Trial], address: str) -> dict[str, str]:
    """Ask a cluster which trials don't fit on it: reasons by trial."""
    from dtsweep.driver.cluster import connected

    with connected(address, folder=None) as cluster:
        sweep = _with_gpus(sweep, cluster)
        lanes = _lanes(sweep, cluster)
        found = {trial.trial_id: _misfit(sweep, cluster, lanes, trial) for trial in trials}
    return {trial_id: why for trial_id, why in found.items() if why}


def _with_gpus(sweep: Sweep, cluster: Cluster) -> Sweep:
    """Settle how many GPUs a worker gets."""
    gpus = sweep.resources.gpus_per_worker
    return replace(
        sweep, resources=replace(sweep.resources, gpus_per_worker=int(cluster.has_gpus()) if gpus is None else gpus)
    )
