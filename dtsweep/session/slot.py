"""A slot: an actor that holds one session at a time, which runs task after task.

`Slot` is an actor without CPUs on the driver's node. Each session runs `TorchTrainer.fit()` on a
thread, and the ranks ask the slot: `next_task` gives a rank its task, `finished` takes its result.
A task of another group, or of a world that is not a part of the session's, ends the session and
starts the next; so do ranks that are out of step, memory that a trial left behind, a lost device,
and nodes that leave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray

from dtsweep.errors import error_line
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.secret import NO_VARIABLES
from dtsweep.session.attempt_on_ranks import result_of, verdict_on_attempt
from dtsweep.session.deadlines import collective_timeout_s
from dtsweep.session.diagnosis import UNBROKEN
from dtsweep.session.failed_starts import FailedStarts
from dtsweep.session.last_words import last_words
from dtsweep.session.memory_kills import MemoryKills
from dtsweep.session.node_watch import NodeWatch
from dtsweep.session.rank_logs import logs_of, tails
from dtsweep.session.request import NodeRequests
from dtsweep.session.session import HandedOut, Session
from dtsweep.session.session_settings import Settings
from dtsweep.session.shards import ShardError, ShardPool
from dtsweep.session.start_errors import RefusedError, SessionError
from dtsweep.session.state import SessionState
from dtsweep.sweep.point import World
from dtsweep.sweep.task import Task

_Places = Mapping[str, int]
"""Number of ranks on each node, by the node's id."""

_LEFT_OVER = 0.01
"""Share of the device's memory still in use after a trial, compared with the session's first."""


class Slot:
    """At most one live session at a time."""

    def __init__(
        self, settings: Settings, failure_counts: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            settings: of its sessions.
            failure_counts: of the slot whose place it takes, as in its last result.
        """
        self._settings = settings
        self._session: Session | None = None
        """The session that was started last, also once it has ended; None before the first."""
        self._attempts: dict[str, asyncio.Task[AttemptResult]] = {}
        self._logs: dict[str, str] = {}
        self._lines: list[str] = []
        """For the user, as long as nobody has taken them."""
        self._shards = ShardPool(settings.code)
        self._nodes = NodeWatch(settings, failure_counts)
        self._starts = FailedStarts(self._nodes.failures)
        self._requests = NodeRequests(settings, self._nodes, say=self._say)

    async def prepare(self, group: str, world: World, places: _Places | None) -> None:
        """Begin to start the session of the first task; `run` reports the outcome."""
        if not self._attempts:
            self._launch(group, world, places)

    async def run(self, task: Task, places: _Places | None = None) -> None:
        """Run one attempt in the session that fits it; `collect` returns the result.

        The process that asked first may have ended; another one then asks again.

        Args:
            task: the attempt.
            places: number of the session's ranks on each node, where the driver chooses them.
        """
        if task.attempt_id not in self._attempts:
            self._attempts[task.attempt_id] = asyncio.create_task(self._run(task, places))
        await asyncio.shield(self._attempts[task.attempt_id])

    async def collect(self, attempt_id: str) -> AttemptResult | None:
        """Hand over a result, once; None for an attempt that nobody has asked for."""
        attempt = self._attempts.pop(attempt_id, None)
        if attempt is None:
            return None
        return await attempt

    async def _run(self, task: Task, places: _Places | None) -> AttemptResult:
        began = time.monotonic()
        startup_s = None
        try:
            session = await self._session_for(task, places)
            self._starts.came_up(session.world)
            has_started = session.is_new
            session.enter(task.point.world)
            shards, shards_started = await self._shards.on(
                session.nodes_of_shards(task), device=task.point.server_device
            )
            if has_started or shards_started:
                startup_s = time.monotonic() - began
            result = await self._attempt(session, task, shards)
        except RefusedError as error:
            result = AttemptResult(status="cancelled", refusal=str(error))
        except SessionError as error:
            result = self._starts.result_of(error, self._session)
            startup_s = time.monotonic() - began
            await self._drop()
        except ShardError as error:
            result = AttemptResult(status=error.status, reason=str(error))
            self._shards.drop()
            if error.status == "node_lost":
                await self._drop()
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach the trial's row
            reason = f"the session failed: {error_line(error)}"
            result = AttemptResult(status="collateral", reason=reason)
            startup_s = None
            await self._drop()
        logs, self._logs = self._logs, {}
        return replace(
            result,
            notes=self._nodes.notes.take(),
            failure_counts=self._nodes.failures.by_trial(),
            startup_s=startup_s,
            nodes_wait_s=self._requests.waited_s(since=began),
            slot_is_spent=self._state is SessionState.STUCK,
            session_has_ended=self._state.needs_new_session,
            logs=logs,
        )

    async def close(self) -> dict[str, str]:
        """End with the run; a private Ray ends the ranks, too.

        Returns the logs that became known.
        """
        self._requests.let_go()
        session = self._open_session
        if session is not None and self._settings.is_private:
            session.leave()
            self._logs |= await tails(session, is_last=True)
        else:
            await self.end_session()
        return self._logs

    async def stop(self) -> dict[str, str]:
        """End the session although its ranks may work, for a run that ends now; return its logs.

        In order where the cluster goes on, so that nothing of Ray Train stays behind, and where
        GPUs have to get their power limits back. Otherwise a private Ray ends with it.
        """
        self._shards.drop()
        session = self._open_session
        if session is None:
            return self._logs
        if not session.facts:
            # Of ranks that have not come up yet there is nothing to take hold of.
            return self._logs
        if not self._settings.is_private:
            await session.kill()
        return self._logs | await tails(session, is_last=True)

    async def end_session(self) -> None:
        """End the session in order, so that its nodes are free."""
        session = self._open_session
        if session is not None:
            self._shards.drop()
            await session.close()
            self._logs |= await tails(session)

    async def register(
        self, session: str, rank: int, facts: RankFacts, actor: Any, secrets: Mapping[str, str]
    ) -> None:
        """Note that a rank has come up."""
        named_session = self._named(session)
        if named_session is not None and not named_session.state.is_given_up:
            named_session.register(rank, facts, actor, secrets)

    async def next_task(
        self, session: str, rank: int, kills: MemoryKills | None = None
    ) -> HandedOut | None:
        """Wait for this rank's next task, its shards and its place; None ends the rank.

        `kills` is what its container has counted so far.
        """
        named_session = self._named(session)
        if named_session is None or named_session.state.is_given_up:
            return None
        named_session.kills[rank] = kills
        return await named_session.inbox[rank].get()

    async def warmed_up(self, session: str, attempt_id: str, rank: int, slowest_s: float) -> None:
        """Note that a rank begins a window."""
        named_session = self._named(session)
        if named_session is not None and named_session.attempt_id == attempt_id:
            named_session.warm[rank].append(slowest_s)
            named_session.changed.set()

    async def finished(
        self,
        session: str,
        attempt_id: str,
        rank: int,
        result: RankResult,
        secrets: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        """Take the result of the attempt on a rank, and its secret variables by now."""
        named_session = self._named(session)
        if named_session is not None:
            named_session.secrets.update(secrets)
        # In every state: what a rank has measured counts although its session has ended since.
        if named_session is not None and named_session.attempt_id == attempt_id:
            named_session.take(rank, result)

    async def add_line(self, session: str, rank: int, text: str) -> None:
        """Keep a line of a rank for the user."""
        named = self._named(session)
        if named is not None:
            self._lines.append(f"rank {named.in_world(rank)}: {text}")

    def _say(self, line: str) -> None:
        """Keep a line for the user."""
        self._lines.append(line)

    async def take_lines(self) -> list[str]:
        """Hand over the lines for the user, once; also a sign of life."""
        lines, self._lines = self._lines, []
        return lines

    @property
    def _state(self) -> SessionState:
        """The state of the slot's session; before the first, the state of one that has ended."""
        if self._session is None:
            return SessionState.ENDED
        return self._session.state

    @property
    def _open_session(self) -> Session | None:
        """The session, until it was killed or has ended."""
        if self._state.is_given_up:
            return None
        return self._session

    def _named(self, session: str) -> Session | None:
        """Session of this name if it is the slot's; ranks of an earlier one may still call."""
        if self._session is not None and self._session.name == session:
            return self._session
        return None

    async def _session_for(self, task: Task, places: _Places | None) -> Session:
        """The open session where it fits the task, else a new one, once all of its ranks are up."""
        session = self._open_session
        if session is not None:
            await session.up()
            if session.state is SessionState.DIED:
                # Between two trials: no fault of this one.
                await self._drop()
            elif (
                session.fits(task) and session.places == places and await self._stays(session, task)
            ):
                return session
            else:
                await self.end_session()
        if self._state is SessionState.STUCK:
            # The nodes that another session would wait for are still held.
            raise SessionError(
                "collateral", "the session before did not end; another process takes over"
            )
        session = self._launch(task.session_group, task.point.world, places)
        await session.up()
        return session

    def _launch(self, group: str, world: World, places: _Places | None) -> Session:
        """Begin to start a session; `Session.up` waits for it."""
        actor = ray.get_runtime_context().current_actor
        self._session = session = Session(group, world, self._settings, actor, places=places)
        session.coming_up = asyncio.create_task(self._start(session))
        # Nobody waits for a session that is closed before a task needs it.
        session.coming_up.add_done_callback(lambda start: start.cancelled() or start.exception())
        return session

    async def _start(self, session: Session) -> None:
        nodes = await self._requests.come(session.world, session.places)
        try:
            await session.start(nodes)
        finally:
            self._requests.let_go()

    async def _stays(self, session: Session, task: Task) -> bool:
        """True if the nodes of a session stay until a task has surely ended."""
        nodes = {str(facts.node_id) for facts in session.facts.values()}
        return await self._nodes.stay(nodes, until=time.time() + collective_timeout_s(task))

    async def _attempt(self, session: Session, task: Task, shards: Sequence[Any]) -> AttemptResult:
        began = time.monotonic()
        verdict = await verdict_on_attempt(session, task, shards)
        if verdict is not None and verdict.status == "rank_died" and verdict.died_on is not None:
            self._nodes.failures.died(task.trial_id, verdict.died_on)
        result = result_of(session, task, verdict, trial_s=time.monotonic() - began)
        if result.status != "ok":
            # Before the session ends: its last reader removes a log.
            members = (session.members[0], result.explained_by)
            self._logs |= await logs_of(session, task, members)
        if result.status not in UNBROKEN or session.state is SessionState.DEVICE_LOST:
            result = await self._after_failure(session, task, result)
        elif session.leaves_memory(_LEFT_OVER):
            result = replace(result, flags=("memory_left",))
            session.retire()
        return result

    async def _after_failure(
        self, session: Session, task: Task, result: AttemptResult
    ) -> AttemptResult:
        """Keep the session only if its ranks are in step; its log tells why a rank ended."""
        self._shards.drop()
        if not session.is_in_step():
            await self._drop()
        log = self._logs.get(f"{session.name}/{task.log_of(result.explained_by)}", "")
        last = last_words(log)
        is_silent = result.status in ("rank_died", "node_lost", "preempted", "oom_host")
        if is_silent and last:
            return replace(result, reason=f"{result.reason}; its last words: {last}")
        return result

    async def _drop(self) -> None:
        """End the session by force: its ranks wait for a peer that will not come."""
        session = self._open_session
        if session is not None:
            self._shards.drop()
            await session.kill()
            self._logs |= await tails(session)
