"""Result of one attempt, which a slot keeps until the driver collects it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dtsweep.metrics.rank_result import RankFacts, RankResult


@dataclass(frozen=True, kw_only=True)
class AttemptResult:
    """Outcome of one attempt, and the messages of its ranks."""

    status: str
    reason: str | None = None
    facts: Mapping[int, RankFacts] = field(default_factory=dict)
    """By rank: of the trial's world."""

    results: Mapping[int, RankResult] = field(default_factory=dict)
    """By rank: of those that answered."""

    flags: Sequence[str] = ()
    session: str | None = None
    """Name of the session that ran it."""

    session_workers: int | None = None
    """Number of workers it has; a smaller world is made of some of them."""

    explained_by: int = 0
    """Process of the session whose log explains the result: a rank's, or one idle in the trial."""

    startup_s: float | None = None
    """Start of the session and of its parameter servers, where this attempt waited for them."""

    nodes_wait_s: float | None = None
    """Of `startup_s`, the wait for nodes.

    None where it waited for no session, or where nodes stay.
    """

    concurrent_trials: int | None = None
    """Most attempts of other slots that ran at the same time on its nodes; None where unknown."""

    turn_group: str | None = None
    """Name of the points that were measured in turn with this one; None without any."""

    trial_s: float | None = None
    """From handing out the task to the last rank's answer."""

    shard_nodes: Sequence[int] = ()
    """The rank on whose node each shard of the parameter server lives."""

    hopeless_for: str | None = None
    """Trials that fail with a session that does not start: of the `world` or the whole `run`."""

    session_has_ended: bool = False
    """True if the next attempt gets another session."""

    slot_is_spent: bool = False
    """True if the worker group could not be killed; the slot's actor is then replaced."""

    refusal: str | None = None
    """Reason to end the run although the trial is fine: it was not begun."""

    notes: Sequence[str] = ()
    """Lines for the user: which nodes are left out from now on."""

    failure_counts: Mapping[str, frozenset[str]] | None = None
    """On which nodes trials and starts of its slot have lost a process by now.

    None where the slot did not say.
    """

    logs: Mapping[str, str] = field(default_factory=dict)
    """Parts of the ranks' logs that became known, by `<session>/<name>`.

    The name is that of the attempt's own log (`Task.log_of`), or the rank in the session.
    """
