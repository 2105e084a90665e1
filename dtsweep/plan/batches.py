"""Plans of a sweep by its results: one, or the batches of a run, as its policy asks for more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from dtsweep.errors import StorageError
from dtsweep.plan.plan import PLANNED_BY, InRun, Plan, make_plan, policy_of
from dtsweep.plan.policy import Policy, WholeGrid
from dtsweep.plan.trial import Rows
from dtsweep.results.frames import damage_of
from dtsweep.results.store import Results
from dtsweep.sweep.axes import Candidate, candidates
from dtsweep.sweep.settings import Sweep


def columns_read(sweep: Sweep) -> Collection[str] | None:
    """Columns of the attempts that plans of a sweep read; None is all of them.

    A grid is the same whatever was measured. A policy may ask for any column.
    """
    if sweep.question is None:
        return PLANNED_BY
    return None


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


class Batches:
    """Plans of one run, one after the other. No trial is in two of them."""

    def __init__(
        self,
        sweep: Sweep,
        candidates: Sequence[Candidate],
        stored: Rows,
        *,
        rerun: str | None = None,
        harness: str = "ray",
        policy: Policy | None = None,
    ) -> None:
        self._sweep = sweep
        self._candidates = candidates
        self._stored = stored
        self._rerun = rerun
        self._harness = harness
        self._policy = policy or policy_of(sweep)
        self._over: set[str] = set()
        self._first: Plan | None = None

    def next(self, rows: Rows = ()) -> Plan:
        """Plan what is to run now; nothing is where the policy asks for no more.

        It is called when all trials of the plan before are over.

        Args:
            rows: attempts that the run has recorded, the oldest first, with all columns.
        """
        stale = None
        if self._first is not None:
            stale = self._first.stale
            if isinstance(self._policy, WholeGrid):
                # A grid has asked for all of its trials.
                return replace(self._first, to_run=())
        plan = make_plan(
            self._sweep,
            self._candidates,
            self._stored,
            rerun=self._rerun,
            harness=self._harness,
            in_run=InRun(policy=self._policy, rows=rows, over=frozenset(self._over), stale=stale),
        )
        if self._first is None:
            self._first = plan
        self._over.update(trial.trial_id for trial in plan.to_run)
        return plan
