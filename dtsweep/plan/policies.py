"""Choice of a sweep's policy."""

from __future__ import annotations

from dtsweep.plan.policy import Grid, Policy
from dtsweep.plan.searcher_policy import SearcherPolicy
from dtsweep.plan.settle import Settle
from dtsweep.sweep.settings import Sweep


def policy_of(sweep: Sweep) -> Policy:
    """Choose the policy of a sweep: a plain grid, rounds until it is decided, or a search."""
    if sweep.question is None:
        return Grid(sweep=sweep)
    if sweep.search is None:
        return Settle(sweep=sweep, question=sweep.question)
    if sweep.search.searcher is not None:
        return SearcherPolicy(sweep=sweep, question=sweep.question, search=sweep.search)
    from dtsweep.plan.search_policy import SearchPolicy

    return SearchPolicy(sweep=sweep, question=sweep.question, search=sweep.search)
