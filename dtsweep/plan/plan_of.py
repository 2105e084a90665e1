"""Plan of a sweep and the results so far, for Python."""

from __future__ import annotations

from pathlib import Path

from dtsweep.errors import StorageError
from dtsweep.plan.batches import columns_read
from dtsweep.plan.plan import Plan, make_plan
from dtsweep.results.store import Results, damage_of
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.settings import Sweep


def plan_of(sweep: Sweep, results: str | Path | None = None, *, rerun: str | None = None) -> Plan:
    """Plan a run, as `dtsweep plan` does; nothing is started.

    Args:
        sweep: the question.
        results: a folder or a URI; `results/<file name>` by default.
        rerun: None, `failed` or `all`.

    Returns:
        The plan: trials to run, in order, those that are done, and points that are skipped with the
        reason.

    Raises:
        SweepError: the sweep or the results can't be used.
        StorageError: the results can't be read, or are damaged.
    """
    if results is None:
        results = f"results/{sweep.name}"
    store = Results(results)
    plan = make_plan(sweep, candidates(sweep), store.attempts(columns_read(sweep)), rerun=rerun)
    if (damage := damage_of(store)) is not None:
        raise StorageError(damage)
    return plan
