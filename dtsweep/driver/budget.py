"""Budget of a run: the time and the money after which it ends, and what is spent of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dtsweep.cluster.node_account import NodeAccount
from dtsweep.text import duration, usd

CUT = "cut, because the {} was spent; the next run measures it again"
"""Reason of an attempt that was under way when the budget was spent."""


class BudgetSpentError(Exception):
    """The budget is spent while attempts are under way: they are cut."""


@dataclass(kw_only=True)
class Budget:
    """Limits of a run: hours of this run, and USD of all runs of the same results.

    No trial begins that is expected to pass a limit, and what runs at a limit is cut.
    """

    elapsed_s: Callable[[], float]
    """Seconds since the run began."""

    first_trial_s: float
    """Expected time of a trial, until one has ended."""

    max_hours: float | None = None
    max_cost_usd: float | None = None
    earlier_usd: float = 0.0
    """Spent by earlier runs of the same results."""

    account: NodeAccount | None = None
    """Account of the nodes; None before there are any."""

    def close(self) -> None:
        """End the account of the nodes with the run."""
        if self.account is not None:
            self.account.close()

    @property
    def has_limit(self) -> bool:
        """True if anything ends the run."""
        return self.max_hours is not None or self.max_cost_usd is not None

    @property
    def spent_usd(self) -> float | None:
        """Cost of all runs of the results so far; None where the cost of this run is unknown."""
        if self.account is None or self.account.cost_usd is None:
            return None
        return self.earlier_usd + self.account.cost_usd

    @property
    def trial_s(self) -> float:
        """Time for which a trial is expected to hold its nodes."""
        if self.account is None or self.account.attempt_s is None:
            return self.first_trial_s
        return self.account.attempt_s

    def is_over(self) -> bool:
        """True if a limit is reached, or the cost has become unknown."""
        return self.has_spent_time(0.0) or self.has_spent_money(0.0)

    def has_room(self) -> bool:
        """True if a trial that begins now is expected to end within the limits."""
        seconds = self.trial_s
        return not (self.has_spent_time(seconds) or self.has_spent_money(seconds))

    def has_spent_time(self, seconds: float) -> bool:
        """True if the time limit is reached within so many seconds."""
        if self.max_hours is None:
            return False
        return self._reaches(self.elapsed_s(), seconds, self.max_hours * 3600)

    def has_spent_money(self, seconds: float) -> bool:
        """True if the money is spent within so many seconds, or its amount is unknown."""
        if self.max_cost_usd is None or self.account is None:
            return False
        spent, per_hour = self.spent_usd, self.account.usd_per_hour_now
        if spent is None or per_hour is None:
            return True
        return self._reaches(spent, seconds * per_hour / 3600, self.max_cost_usd)

    @staticmethod
    def _reaches(spent: float, more: float, limit: float) -> bool:
        """True if a limit is reached already, or would be passed."""
        return spent >= limit or spent + more > limit

    def what_is_over(self) -> str:
        """Name what is spent: time or money."""
        if self.has_spent_time(0.0):
            return "time"
        return "money"

    def words(self) -> str:
        """Say which limit ends the run, and what is spent."""
        spent = f"spent {usd(self.spent_usd or 0.0)} of {usd(self.max_cost_usd or 0.0)}"
        if not self.is_over():
            expected = f"another trial, of about {duration(self.trial_s)}, would pass the limit"
            if self.has_spent_time(self.trial_s):
                return f"--max-hours {self.max_hours:g} is nearly over: {expected}"
            return f"{spent}: {expected}"
        if self.has_spent_time(0.0):
            return f"--max-hours {self.max_hours:g} is over"
        if self.spent_usd is None:
            return f"what is spent of --max-cost {self.max_cost_usd:g} is unknown"
        return spent

    def next_step(self) -> str:
        """Say how the campaign goes on."""
        if self.max_cost_usd is None or self.has_spent_time(self.trial_s):
            return "the same command goes on"
        if self.spent_usd is None:
            return "the same command goes on once every node type has a price"
        # A limit that leaves room: twice the present one, with two digits.
        limit = 2 * max(self.max_cost_usd, self.spent_usd, 0.01)
        more = round(limit, 1 - math.floor(math.log10(limit)))
        return f"the same command with --max-cost {more:g} goes on"
