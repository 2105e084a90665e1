"""Runs a sweep: plans it, connects to Ray, has the scheduler drive it, stores what comes of it."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.axes import Candidate, candidates
from dtsweep.errors import StorageError, SweepError
from dtsweep.order import order_of, point_row
from dtsweep.plan import Plan, Trial, make_plan, new_skips
from dtsweep.point import workload_types
from dtsweep.progress import Progress
from dtsweep.store import Results, load
from dtsweep.sweep import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.cluster import Cluster, Node
    from dtsweep.order import Order
    from dtsweep.ranks import Settings
    from dtsweep.session import Report

FINE = frozenset({"ok", "skipped", "oom_device"})
"""How trials may end without the command saying that something is wrong."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says beside the sweep."""

    results: str
    address: str | None = None
    rerun: str | None = None
    node_timeout_s: float = 300.0


@dataclass(kw_only=True)
class Summary:
    """How a run went."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Trials of this run by status; an attempt that was followed by another counts no more."""

    signal_number: int | None = None
    storage_error: str | None = None

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        if self.signal_number is not None:
            return 128 + self.signal_number
        if self.storage_error is not None:
            return 5
        if self.statuses.keys() & {"no_nodes", "infeasible"}:
            return 4
        return 0 if self.statuses.keys() <= FINE else 1


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
    summary = execute(sweep, candidates(sweep), Options(results=where, address=address, rerun=rerun))
    if summary.storage_error is not None:
        raise StorageError(summary.storage_error)
    if summary.signal_number is not None:
        raise KeyboardInterrupt
    return load(where)


def execute(sweep: Sweep, found: Sequence[Candidate], options: Options) -> Summary:
    """Run a sweep whose points are listed; talk goes to stderr."""
    results = Results(options.results)
    rows = results.attempts()
    for name, reason in results.quarantined:
        print(f"left out {options.results}/{name}: {reason}", file=sys.stderr)  # noqa: T201  # talk
    plan = make_plan(sweep, found, rows, rerun=options.rerun)
    summary = Summary()
    now = {"started_at": datetime.now(UTC), "repeat": 1, "attempt": 1}
    for row in new_skips(sweep, plan.skipped, rows):
        results.commit({**row, **now, "attempt_id": uuid.uuid4().hex}, workload_types=workload_types(sweep.workload))
    progress = Progress(total=len(plan.to_run))
    progress.say(f"{len(plan.to_run)} trials to run, {len(plan.done)} done, {len(plan.skipped)} skipped -> {results}")
    if plan.to_run:
        _run(sweep, plan, results, options=options, rows=rows, progress=progress, summary=summary)
    return summary


def _run(
    sweep: Sweep,
    plan: Plan,
    results: Results,
    *,
    options: Options,
    rows: Sequence[Mapping[str, Any]],
    progress: Progress,
    summary: Summary,
) -> None:
    from dtsweep import scheduler
    from dtsweep.cluster import connected

    known = (
        {row["devices"] for row in rows if row["status"] == "ok" and row["devices"]}
        if options.rerun != "all"
        else set()
    )
    with connected(options.address, folder=sweep.file.parent if sweep.file else None) as cluster:
        progress.say(f"using {cluster.described()}")
        sweep = _with_gpus(sweep, cluster)
        lanes = _lanes(sweep, cluster)
        keeper = Keeper(sweep, results, progress, summary, known)
        to_run = [trial for trial in plan.to_run if not keeper.refuses(trial, _misfit(sweep, cluster, lanes, trial))]
        storage = scheduler.storage_folder()
        settings = [_settings(sweep, options, storage=str(storage), nodes=lane) for lane in lanes]
        groups = scheduler.groups_of(to_run, fresh=sweep.measure.fresh)
        driver = scheduler.Scheduler(sweep, groups, settings, keeper)
        try:
            with progress:
                scheduler.drive(driver)
            keeper.keep_logs(driver.close())
        except scheduler.Interrupted as interrupted:
            summary.signal_number = interrupted.signal_number
            for running in driver.running.values():
                keeper.cancelled(running.trial, running.order, running.started_at)
        except StorageError as error:
            summary.storage_error = str(error)
        finally:
            shutil.rmtree(storage, ignore_errors=True)
    results.compact()


class Keeper:
    """Makes the rows of each attempt that ended, and stores them."""

    def __init__(self, sweep: Sweep, results: Results, progress: Progress, summary: Summary, known: set[str]) -> None:
        """Keep what rows are made of; `known` are the device models of the rows that are there already."""
        self._sweep, self._results, self._progress, self._summary = sweep, results, progress, summary
        self._known, self._types = known, workload_types(sweep.workload)
        self._last: dict[str, str] = {}

    def __call__(self, trial: Trial, order: Order, report: Report, times: Mapping[str, Any]) -> str:
        """Store an attempt; return its status."""
        from dtsweep.record import rank_rows, step_columns, trial_row

        row = (
            trial_row(self._sweep, order, report.outcomes) | {"status": report.status, "reason": report.reason} | times
        )
        if self._known and row.get("devices") and row["devices"] not in self._known:
            raise SweepError(
                f"these results were measured on {', '.join(sorted(self._known))}, this run is on {row['devices']}; "
                "measure all anew with --rerun all, or keep both with another --results"
            )
        ranks = rank_rows(report.outcomes)
        if report.launch:
            row |= {"session": report.launch, "log": f"logs/{report.launch}/{report.failed_rank}.log"}
            for rank in ranks:
                rank["log"] = f"logs/{report.launch}/{rank['rank']}.log"
                rank["shards_hosted"] = list(report.shard_nodes).count(rank["rank"])
        row["flags"] = report.flags
        self.keep_logs(report.logs)
        self._results.commit(row, ranks=ranks, steps=step_columns(report.outcomes), workload_types=self._types)
        self._note(trial, row)
        return report.status

    def refuses(self, trial: Trial, reason: str | None) -> bool:
        """Store a trial as `infeasible` if there is a reason; say whether there was."""
        if reason is not None:
            self._without_run(trial, order_of(self._sweep, trial.point, repeat=trial.repeat), "infeasible", reason)
        return reason is not None

    def cancelled(self, trial: Trial, order: Order, started_at: datetime) -> None:
        """Store that an attempt was interrupted."""
        self._without_run(trial, order, "cancelled", "interrupted; the same command measures it again", started_at)

    def keep_logs(self, logs: Mapping[str, str]) -> None:
        """Store the ends of ranks' logs, by `<launch>/<rank>`."""
        for name, text in logs.items():
            self._results.write_log(name, text)

    def _without_run(
        self, trial: Trial, order: Order, status: str, reason: str, started_at: datetime | None = None
    ) -> None:
        row = {
            **point_row(self._sweep, trial.point),
            **{name: getattr(order, name) for name in ("attempt_id", "trial_id", "repeat", "attempt")},
            "status": status,
            "reason": reason,
            "started_at": started_at or datetime.now(UTC),
        }
        self._results.commit(row, workload_types=self._types)
        self._note(trial, row)

    def _note(self, trial: Trial, row: Mapping[str, Any]) -> None:
        before = self._last.get(trial.trial_id)
        if before is not None:
            self._summary.statuses -= Counter([before])
        self._last[trial.trial_id] = row["status"]
        self._summary.statuses[row["status"]] += 1
        self._progress.ended(trial.point, row)


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


def _settings(sweep: Sweep, options: Options, *, storage: str, nodes: Sequence[Node] | None) -> Settings:
    from ray import cloudpickle

    from dtsweep.ranks import Code, Settings

    module = sys.modules.get(type(sweep.workload).__module__)
    by_value = module is not None and sweep.file is not None and module.__name__.startswith("dtsweep_file_")
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps(sweep.workload)
    except (TypeError, ValueError, AttributeError) as error:
        raise SweepError(f"workload {type(sweep.workload).__name__} can't be sent to the workers: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return Settings(
        code=Code(pickled=pickled, folder=str(sweep.file.resolve().parent) if sweep.file else None),
        cpus_per_worker=sweep.resources.cpus_per_worker,
        gpus_per_worker=sweep.resources.gpus_per_worker or 0,
        environment=dict(sweep.resources.environment),
        node_timeout_s=options.node_timeout_s,
        storage=storage,
        nodes=tuple(node.node_id for node in nodes) if nodes is not None else None,
    )


def misfits(sweep: Sweep, trials: Sequence[Trial], address: str) -> dict[str, str]:
    """Ask a cluster which trials don't fit on it: reasons by trial."""
    from dtsweep.cluster import connected

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
