"""A lane: the place where one session lives at a time, which is handed trial after trial.

`Lane` is an actor without CPUs on the driver's node, one per lane. It runs `TorchTrainer.fit()` on a
thread and is where its ranks ask: `next_task` gives a rank its task, `finished` takes what came of it. A world
that changes, a repeat, or a failure that leaves the ranks out of step ends a session and starts the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtsweep.measure.stopping import AFTER
from dtsweep.metrics.rows import explaining_failure
from dtsweep.session.nodes import NO_LOG
from dtsweep.session.session import Session, SessionError
from dtsweep.session.worker_loop import Settings
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task

OTHERS_REPORT_S = 2.0
"""Once a rank has failed, the others have this long to say how they fare."""

DEATH_SHOWS_S = 15.0
"""A rank that lost its peer waits this long for Ray to say which process is gone."""

UNBROKEN = ("ok", "nan", "timeout")
"""Statuses of a rank that has run its steps to the end."""

LEFT_OVER = 0.01
"""Share of the device's memory that may be left after a trial, against after the session's first."""


@dataclass(kw_only=True)
class AttemptResult:
    """What a session hands to the driver for one attempt."""

    outcomes: Mapping[int, Mapping[str, Any]]
    """By rank; those that reported, or at least their `facts`."""

    status: str
    reason: str | None
    flags: list[str] = field(default_factory=list)
    session: str | None = None
    """Name of the session that ran it."""

    failed_rank: int = 0
    startup_s: float | None = None
    """Start of the session and of its parameter servers, where this attempt waited for them."""

    trial_s: float | None = None
    """From handing out the order to the last rank's answer."""

    shard_nodes: Sequence[int] = ()
    """The rank on whose node each shard of the parameter server lives."""

    session_has_ended: bool = False
    """Whether the next attempt gets another session."""

    lane_is_spent: bool = False
    """Whether a session would not end: only the end of the session's process ends it."""

    logs: Mapping[str, str] = field(default_factory=dict)
    """Ends of the ranks' logs that became known, by `<session>/<rank>`."""


class Lane:
    """One lane: at most one live session at a time."""

    def __init__(self, settings: Settings) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._session: Session | None = None
        self._results: dict[str, AttemptResult] = {}
        self._logs: dict[str, str] = {}
        self._shards: list[Any] = []
        self._is_spent = False

    async def run(self, task: Task) -> dict[str, Any]:
        """Run one attempt in the session that fits it; its result waits for `collect`."""
        began = time.monotonic()
        # Without its workload: that is the ranks' to unpickle, and what it imports theirs to have.
        point = Point(**task.point, environment=task.environment)
        key = (task.session_group, point.world)
        if self._session is not None and self._session.has_ended:
            # It died between two trials: no fault of this one.
            await self._drop()
        if self._session is not None and (self._session.key != key or self._session.is_stale):
            await self.close()
        startup_s = None
        try:
            if self._session is None:
                self._session = Session(key, point, self._settings, ray.get_runtime_context().current_actor)
                await self._session.start()
                startup_s = 0.0
            shards, started = await self._shards_for(self._session, task)
            if startup_s is not None or started:
                startup_s = time.monotonic() - began
            result = await self._attempt(self._session, task, shards)
            result.startup_s = startup_s
        except SessionError as error:
            result = AttemptResult(
                outcomes={}, status=error.status, reason=str(error), startup_s=time.monotonic() - began
            )
            await self._drop()
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach the trial's row
            reason = f"the session failed: {type(error).__name__}: {error}"
            result = AttemptResult(outcomes={}, status="collateral", reason=reason)
            await self._drop()
        result.lane_is_spent = self._is_spent
        result.session_has_ended = self._session is None or self._session.is_stale
        result.logs, self._logs = self._logs, {}
        self._results[task.attempt_id] = result
        return {"attempt_id": task.attempt_id, "status": result.status}

    async def collect(self, attempt_id: str) -> AttemptResult:
        """Hand over a report, once."""
        return self._results.pop(attempt_id)

    async def close(self) -> dict[str, str]:
        """End the session in order; return the logs that became known."""
        if self._session is not None:
            self._drop_shards()
            await self._session.close()
            await self._keep_logs()
            self._session = None
        return self._logs

    async def register(self, session: str, rank: int, facts: Mapping[str, Any], actor: Any) -> None:
        """A rank has come up."""
        if self._session is not None and self._session.name == session:
            self._session.register(rank, facts, actor)

    async def next_task(self, session: str, rank: int) -> tuple[Task, Sequence[Any]] | None:
        """Wait for this rank's next order; None ends it."""
        if self._session is None or self._session.name != session:
            return None
        mail: tuple[Task, Sequence[Any]] | None = await self._session.inbox[rank].get()
        return mail

    async def warmed_up(self, session: str, rank: int, slowest_s: float) -> None:
        """A rank begins its window."""
        if self._session is not None and self._session.name == session:
            self._session.warm[rank] = slowest_s
            self._session.changed.set()

    async def finished(self, session: str, rank: int, outcome: Mapping[str, Any]) -> None:
        """A rank has ended its part of the attempt."""
        if self._session is not None and self._session.name == session:
            self._session.done[rank] = outcome
            self._session.changed.set()

    async def _attempt(self, session: Session, task: Task, shards: Sequence[Any]) -> AttemptResult:
        began = time.monotonic()
        verdict = await self._collect(session, task, shards)
        outcomes = {rank: {"facts": facts, **session.done.get(rank, {})} for rank, facts in session.facts.items()}
        reported = {rank: outcome for rank, outcome in outcomes.items() if "status" in outcome}
        status, reason = verdict or tuple(explaining_failure(reported).values())
        result = AttemptResult(outcomes=outcomes, status=status, reason=reason, session=session.name)
        result.trial_s = time.monotonic() - began
        result.shard_nodes = [rank % len(session.facts) for rank in range(len(shards))]
        result.failed_rank = next(
            (rank for rank, o in reported.items() if o["status"] == status), session.dead_rank or 0
        )
        if status not in UNBROKEN:
            await self._after_failure(session, result)
        elif session.leaves_memory(LEFT_OVER):
            result.flags.append("memory_left")
        if task.profile == "torch" and self._settings.gpus_per_worker:
            # What records a GPU stays attached to the process and slows all that follows.
            session.is_stale = True
        return result

    async def _collect(self, session: Session, task: Task, shards: Sequence[Any]) -> tuple[str, str] | None:
        """Hand out an order and wait for all ranks; a status and reason where not all of them answered."""
        session.hand_out(task, shards)
        deadline = time.monotonic() + task.measure.max_warmup_seconds
        window_known, grace = False, float("inf")
        while len(session.done) < session.workers:
            now = time.monotonic()
            failed = [o["status"] for o in session.done.values() if o["status"] not in UNBROKEN]
            if session.has_ended:
                # A rank that said why explains more than a process that ended after it.
                return None if set(failed) - {"collateral"} else await session.verdict()
            if not window_known and len(session.warm) == session.workers:
                window_known = True
                slowest_s = max(session.warm.values())
                # A window has a whole period, and another until all have seen that it ends; a profile has one too.
                periods_s = (2 + bool(task.profile)) * (task.point["sync_period"] or 1) * slowest_s
                window_s = (1 + AFTER) * task.measure.max_seconds
                deadline = now + window_s + max(60.0, 10 * slowest_s) + periods_s
            if failed and grace == float("inf"):
                # Losing a peer is no fault of this rank's: Ray will say in a moment who died.
                grace = now + (DEATH_SHOWS_S if set(failed) == {"collateral"} else OTHERS_REPORT_S)
            if now > grace:
                return None
            if now > deadline:
                return "hang", await session.stacks(task.measure)
            await session.wait(min(grace, deadline) - now)
        return None

    async def _after_failure(self, session: Session, result: AttemptResult) -> None:
        """Keep the session only if its ranks are in step; the logs tell why it failed."""
        self._drop_shards()
        alone = session.workers == 1 and len(session.done) == 1
        positions = {outcome.get("position") for outcome in session.done.values()}
        in_step = len(session.done) == session.workers and len(positions) == 1 and None not in positions
        if session.has_ended or not (alone or in_step):
            await self._drop()
        else:
            await self._keep_logs()
        last = self._logs.get(f"{session.name}/{result.failed_rank}", "").strip().splitlines()
        if (
            result.status in ("rank_died", "node_lost", "preempted", "oom_host")
            and last
            and not last[-1].startswith(NO_LOG)
        ):
            result.reason = f"{result.reason}; its last words: {last[-1].strip()}"

    async def _drop(self) -> None:
        """End the session by force: its ranks wait for a peer that will not come."""
        if self._session is not None:
            session, self._session = self._session, None
            self._drop_shards()
            await session.kill()
            self._is_spent = not session.has_ended
            self._logs |= await session.tails()

    async def _keep_logs(self) -> None:
        if self._session is not None:
            self._logs |= await self._session.tails()

    async def _shards_for(self, session: Session, task: Task) -> tuple[Sequence[Any], bool]:
        """The first shards of the pool, shard i on the node of rank i mod workers; whether some were started."""
        count = task.point["shards"] or 0
        if too_few := count > len(self._shards):
            from dtsweep.sync.parameter_server import Shard

            for index in range(len(self._shards), count):
                node = session.facts[index % session.workers]["node_id"]
                placed = NodeAffinitySchedulingStrategy(node, soft=False)
                self._shards.append(ray.remote(num_cpus=0)(Shard).options(scheduling_strategy=placed).remote())
            await asyncio.gather(*(shard.load.remote(self._settings.code) for shard in self._shards))
        return self._shards[:count], too_few

    def _drop_shards(self) -> None:
        for shard in self._shards:
            ray.kill(shard)
        self._shards = []
