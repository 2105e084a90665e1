"""One session: the TorchTrainer run of a world on a thread, its ranks, smaller worlds."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.session.deadlines import CLOSE_S, IMPORT_S
from dtsweep.session.diagnosis import Diagnosis, Ranks, verdict_on, why_silent
from dtsweep.session.endings import why_not_up
from dtsweep.session.memory_kills import MemoryKills
from dtsweep.session.node_choice import ANY_NODES, SessionNodes
from dtsweep.session.nodes import answer_in_time
from dtsweep.session.orphans import look_for_orphans
from dtsweep.session.rank_assignment import RankAssignment, assign_ranks, members_of, with_places
from dtsweep.session.session_settings import Settings
from dtsweep.session.shards import ranks_of_shards
from dtsweep.session.start_errors import SessionError, check_ranks
from dtsweep.session.state import FOLLOWING, SessionState
from dtsweep.session.trainer import trainer_of
from dtsweep.session.worker_loop import collectives_begun
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.point import World
from dtsweep.sweep.task import Task

_ORPHANS_EVERY_S = 1.0
"""Seconds between two looks for resources of killed sessions; Ray may notice their end late."""

HandedOut = tuple[Task, Sequence[Any], RankAssignment]
"""Task, parameter-server shards, and the rank's place in the task's world."""


class Session:
    """The ranks of one world while they live; smaller worlds are made of some of them."""

    def __init__(
        self,
        group: str,
        world: World,
        settings: Settings,
        slot: Any,
        *,
        places: Mapping[str, int] | None = None,
    ) -> None:
        """Prepare; `start` starts.

        Args:
            group: tasks of this group may share it.
            world: of all its ranks.
            settings: of the run.
            slot: the actor that the ranks ask for tasks.
            places: number of its ranks on each node, where the driver has chosen them.
        """
        self.state = SessionState.SCHEDULING
        self.coming_up: asyncio.Task[None] | None = None
        """The wait for its nodes, and then its start."""
        self.group = group
        self.world = world
        self.places = places
        self.workers = world.workers
        self.members: Sequence[int] = range(world.workers)
        """Ranks of the session that ran the last task, in the order of their ranks in its world."""
        self.name = f"{time.strftime('%Y%m%dT%H%M%S')}-w{world.workers}-{os.urandom(3).hex()}"
        self.inbox: list[asyncio.Queue[HandedOut | None]] = [
            asyncio.Queue() for _ in range(world.workers)
        ]
        self.facts: dict[int, RankFacts] = {}
        self.warm: dict[int, list[float]] = {}
        """Slowest step in seconds of each warm-up that a rank has ended, by rank in the world."""
        self.results: dict[int, RankResult] = {}
        self.kills: dict[int, MemoryKills | None] = {}
        """By rank, what its container had counted as it asked for a task last."""
        self.changed = asyncio.Event()
        self.attempt_id: str | None = None
        """The attempt that its ranks were handed last."""
        self._settings = settings
        self._slot = slot
        self.secrets: dict[str, str] = {}
        """Secret variables of its processes so far, by name."""
        self._actors: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._memory_left: dict[int, int] = {}
        self._worlds = 0
        self._node_ids: list[str] = []
        """Node of each rank of the session, once it runs."""
        self._assignments: list[RankAssignment] = []
        self._storage = Path(settings.storage) / self.name

    def fits(self, task: Task) -> bool:
        """True if this session may run a task: its world is the session's, or only smaller."""
        world = task.point.world
        if self._settings.nests and world.workers < self.workers:
            world = replace(world, workers=self.workers)
        is_its_own = (self.group, self.world) == (task.session_group, world)
        return is_its_own and self.state is SessionState.RUNNING

    async def up(self) -> None:
        """Wait until all ranks have come up; errors are those of `start`."""
        if self.coming_up is not None:
            await self.coming_up

    async def start(self, nodes: SessionNodes = ANY_NODES) -> None:
        """Start the ranks and wait for all of them.

        Args:
            nodes: those that it uses.

        Raises:
            SessionError: they did not come up, or two of them have one GPU.
            RefusedError: they came up on devices that the results don't know.
        """
        if not self._to(SessionState.STARTING):
            raise SessionError("collateral", "the session was ended before its nodes had come")
        arguments = (asyncio.get_running_loop(), nodes)
        threading.Thread(target=self._fit, args=arguments, name=self.name, daemon=True).start()
        until = time.monotonic() + self._settings.node_timeout_s + IMPORT_S
        while len(self.facts) < self.workers:
            if not self.state.has_trainer:
                raise await self._why_not_up()
            if time.monotonic() > until:
                up = ", ".join(map(str, sorted(self.facts))) or "none"
                reason = (
                    f"of {self.workers} ranks these came up: {up}; does an import wait for "
                    "something?"
                )
                raise SessionError("launch_failed", reason, hopeless_for="world")
            await look_for_orphans(within_s=until - time.monotonic())
            await self.wait(min(until - time.monotonic(), _ORPHANS_EVERY_S))
        check_ranks(self.facts, known_devices=self._settings.known_devices)
        if not self._to(SessionState.RUNNING):
            raise await self._why_not_up()

    def register(self, rank: int, facts: RankFacts, actor: Any, secrets: Mapping[str, str]) -> None:
        """Note that a rank has come up, and the secrets that its log may have."""
        self.secrets.update(secrets)
        self.facts[rank], self._actors[rank] = facts, actor
        self.changed.set()

    def enter(self, world: World) -> None:
        """Choose the ranks of a task's world."""
        if self._assignments and world.workers == len(self.members):
            return
        nodes = self._node_ids = [str(self.facts[rank].node_id) for rank in range(self.workers)]
        self._worlds += world.workers != len(self.members)
        self.members = members_of(nodes, workers=world.workers, placement=world.placement)
        self._assignments = assign_ranks(nodes, self.members, world=self._worlds)

    def in_world(self, member: int) -> int:
        """Rank in the present world of one of its processes."""
        if member in self.members:
            return list(self.members).index(member)
        return member

    @property
    def is_new(self) -> bool:
        """True until ranks were chosen for a first task."""
        return not self._assignments

    def begin(self, attempt_id: str) -> None:
        """Forget what the ranks have said of the last attempt, and hear them of this one alone."""
        self.attempt_id = attempt_id
        self.warm = {rank: [] for rank in range(len(self.members))}
        self.results.clear()

    def hand_out(self, task: Task, shards: Sequence[Any]) -> None:
        """Give the ranks of its world a task; the others learn that they have none."""
        self.begin(task.attempt_id)
        task = with_places(task, self.members, self._node_ids)
        for queue, assignment in zip(self.inbox, self._assignments, strict=True):
            queue.put_nowait((task, shards, assignment))

    def take(self, rank: int, result: RankResult) -> None:
        """Take the result of the attempt on a rank of its world."""
        self.results[rank] = result
        if result.is_spent:
            self._to(SessionState.DEVICE_LOST)
        if result.needs_new_process:
            self.retire()
        self.changed.set()

    def warm_ups(self) -> list[float]:
        """Slowest step of any rank, in seconds, of each warm-up that all ranks have ended."""
        return [max(steps) for steps in zip(*self.warm.values(), strict=False)]

    def member_facts(self) -> dict[int, RankFacts]:
        """Nodes and devices of the world's ranks, by their rank in it."""
        return {rank: self.facts[member] for rank, member in enumerate(self.members)}

    def nodes_of_shards(self, task: Task) -> list[RankFacts]:
        """Ranks next to which a task's parameter servers run."""
        return [self.facts[self.members[rank]] for rank in ranks_of_shards(task.point)]

    async def wait(self, seconds: float | None) -> None:
        """Wait until something happens, at most so long."""
        try:
            await asyncio.wait_for(self.changed.wait(), seconds)
        except TimeoutError:
            return
        self.changed.clear()

    async def close(self) -> None:
        """Let the ranks end; by force if they don't."""
        self._shut_down(SessionState.CLOSING)
        for queue in self.inbox:
            queue.put_nowait(None)
        if await self._joined(CLOSE_S):
            self._actors.clear()
        else:
            await self.kill()

    async def kill(self) -> None:
        """Kill the ranks and wait until the trainer has noticed."""
        self._shut_down(SessionState.KILLING)
        for actor in self._actors.values():
            ray.kill(actor)
        if not await self._joined(CLOSE_S):
            self._to(SessionState.STUCK)
        shutil.rmtree(self._storage, ignore_errors=True)
        # Handles of its ranks would keep them alive as long as the slot has it.
        self._actors.clear()

    def leaves_memory(self, share: float) -> bool:
        """True if a rank holds more than after its world's first trial by a share of its device."""
        left_bytes = max(result.memory_left_bytes or 0 for result in self.results.values())
        device_bytes = min(result.device_bytes or 0 for result in self.results.values())
        first_bytes = self._memory_left.setdefault(len(self.members), left_bytes)
        return left_bytes - first_bytes > share * device_bytes

    def retire(self) -> None:
        """Have the next task get another session."""
        self._to(SessionState.STALE)

    def is_in_step(self) -> bool:
        """True if all ranks answered and issued the same number of collectives."""
        if self.state is not SessionState.RUNNING or len(self.results) < len(self.members):
            return False
        positions = {result.position for result in self.results.values()}
        return len(self.members) == 1 or (len(positions) == 1 and None not in positions)

    async def verdict(self) -> Diagnosis:
        """Say how the session ended, which it should not have."""
        return await verdict_on(self._error, self._ranks())

    async def why_silent(self, task: Task) -> Diagnosis:
        """Say which ranks don't answer; have all write their stacks to their logs."""
        collectives: dict[int, Any] = dict.fromkeys(range(len(self.members)))
        if task.point.sync != AS_WRITTEN:
            # A training loop has process groups of its own, in another process.
            collectives = await self._asked(collectives_begun)
        return await why_silent(
            self._ranks(),
            answered=set(self.results),
            collectives=collectives,
            task=task,
            is_warm=bool(self.warm_ups()),
        )

    async def _asked(self, question: Callable[[Any], Any]) -> dict[int, Any]:
        """Answers of the world's ranks while they train; None of one that does not answer."""
        asked = (
            answer_in_time(self._actors[member].__ray_call__.remote(question))
            for member in self.members
        )
        return dict(enumerate(await asyncio.gather(*asked)))

    def _ranks(self) -> Ranks:
        return Ranks(facts=self.facts, members=self.members, kills=self.kills)

    def leave(self) -> None:
        """Leave the ranks to the end of their Ray, which is near."""
        if self.state is SessionState.SCHEDULING:
            # Its nodes may come yet, and no trainer may start then.
            self._to(SessionState.ENDED)
        shutil.rmtree(self._storage, ignore_errors=True)

    def _fit(self, loop: asyncio.AbstractEventLoop, nodes: SessionNodes) -> None:
        """Run the trainer, on a thread, until the session ends."""
        try:
            trainer = trainer_of(
                self.world, self._settings, session=self.name, slot=self._slot, nodes=nodes
            )
            trainer.fit()
        except Exception as error:  # noqa: BLE001  # whatever ends the trainer ends the session
            self._error = error
        loop.call_soon_threadsafe(self._trainer_ended)

    def _trainer_ended(self) -> None:
        was_asked = self.state in (SessionState.CLOSING, SessionState.KILLING)
        self._to(SessionState.ENDED if was_asked else SessionState.DIED)
        self.changed.set()

    def _shut_down(self, state: SessionState) -> None:
        """Begin to close or to kill; a session without a trainer has ended at once."""
        self._to(state if self.state.has_trainer else SessionState.ENDED)

    def _to(self, state: SessionState) -> bool:
        """Enter a state if it may follow the present one; True if it was entered.

        A trainer may end at any moment, also just before its session is retired or killed. The
        present state then stays, and nothing is raised: an error would lose a measured attempt.
        """
        if state not in FOLLOWING[self.state]:
            return False
        self.state = state
        return True

    async def _joined(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.state.has_trainer and time.monotonic() < until:
            await self.wait(until - time.monotonic())
        return not self.state.has_trainer

    async def _why_not_up(self) -> SessionError:
        not_up = why_not_up(
            self._error, workers=self.workers, node_timeout_s=self._settings.node_timeout_s
        )
        if not_up is not None:
            return SessionError(not_up.status, not_up.reason, hopeless_for=not_up.hopeless_for)
        verdict = await self.verdict()
        return SessionError(
            verdict.status, f"the workers did not start: {verdict.reason}", verdict=verdict
        )
