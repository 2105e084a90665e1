"""Batches of a run: plan after plan, as its policy asks for more by the rows so far."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from dtsweep.plan.plan import PLANNED_BY, InRun, Plan, make_plan
from dtsweep.plan.policies import policy_of
from dtsweep.plan.policy import NOTHING_SPENT, Grid, Policy, Rows, Spent
from dtsweep.sweep.axes import Candidate
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep


def columns_read(sweep: Sweep) -> Collection[str] | None:
    """Columns of the attempts that plans of a sweep read; None is all of them.

    A grid is the same whatever was measured. A policy may ask for any column.
    """
    if sweep.question is None:
        return PLANNED_BY
    return None


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
        """Take what plans are made of, as `make_plan` does."""
        self._sweep = sweep
        self._candidates = candidates
        self._stored = stored
        self._rerun = rerun
        self._harness = harness
        self._policy = policy or policy_of(sweep)
        self._over: set[str] = set()
        self._first: Plan | None = None

    @property
    def points(self) -> list[Point]:
        """Points that may be measured, now or in a later round."""
        return [candidate.point for candidate in self._candidates if candidate.reason is None]

    def next(self, rows: Rows = (), *, spent: Spent = NOTHING_SPENT) -> Plan:
        """Plan what is to run now; nothing is where the policy asks for no more.

        It is called when all trials of the plan before are over.

        Args:
            rows: attempts that the run has recorded, the oldest first, with all columns.
            spent: what the run has used so far.
        """
        stale = None
        if self._first is not None:
            stale = self._first.stale
            if isinstance(self._policy, Grid):
                # A grid has asked for all of its trials.
                return replace(self._first, to_run=())
        in_run = InRun(
            policy=self._policy,
            rows=rows,
            over=frozenset(self._over),
            spent=spent,
            stale=stale,
        )
        plan = make_plan(
            self._sweep,
            self._candidates,
            self._stored,
            rerun=self._rerun,
            harness=self._harness,
            in_run=in_run,
        )
        if self._first is None:
            self._first = plan
        self._over.update(trial.trial_id for trial in plan.to_run)
        return plan
