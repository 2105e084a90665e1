"""A session: one live TorchTrainer of one world, which is handed trial after trial.

`Session` is an actor without CPUs on the driver's node, one per lane. It runs `TorchTrainer.fit()` on a
thread and is the mailbox of its ranks: `next` gives a rank its order, `done` takes what came of it. A world
that changes, a repeat, or a failure that leaves the ranks out of step ends a launch and starts the next.
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
from dtsweep.metrics.rows import worst
from dtsweep.session.nodes import NO_LOG
from dtsweep.session.session import Launch, LaunchError
from dtsweep.session.worker_loop import Settings
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Order

OTHERS_REPORT_S = 2.0
"""Once a rank has failed, the others have this long to say how they fare."""

DEATH_SHOWS_S = 15.0
"""A rank that lost its peer waits this long for Ray to say which process is gone."""

UNBROKEN = ("ok", "nan", "timeout")
"""Statuses of a rank that has run its steps to the end."""

LEFT_OVER = 0.01
"""Share of the device's memory that may be left after a trial, against after the launch's first."""


@dataclass(kw_only=True)
class Report:
    """What a session hands to the driver for one attempt."""

    outcomes: Mapping[int, Mapping[str, Any]]
    """By rank; those that reported, or at least their `facts`."""

    status: str
    reason: str | None
    flags: list[str] = field(default_factory=list)
    launch: str | None = None
    """Name of the launch that ran it."""

    failed_rank: int = 0
    startup_s: float | None = None
    """Start of the launch and of its parameter servers, where this attempt waited for them."""

    trial_s: float | None = None
    """From handing out the order to the last rank's answer."""

    shard_nodes: Sequence[int] = ()
    """The rank on whose node each shard of the parameter server lives."""

    launch_has_ended: bool = False
    """Whether the next attempt gets another launch."""

    lane_is_spent: bool = False
    """Whether a launch would not end: only the end of the session's process ends it."""

    logs: Mapping[str, str] = field(default_factory=dict)
    """Ends of the ranks' logs that became known, by `<launch>/<rank>`."""


class Session:
    """One lane: at most one live launch at a time."""

    def __init__(self, settings: Settings) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._launch: Launch | None = None
        self._reports: dict[str, Report] = {}
        self._logs: dict[str, str] = {}
        self._shards: list[Any] = []
        self._is_spent = False

    async def run(self, order: Order) -> dict[str, Any]:
        """Run one attempt in the launch that fits it; its report waits for `take`."""
        began = time.monotonic()
        # Without its workload: that is the ranks' to unpickle, and what it imports theirs to have.
        point = Point(**order.point, environment=order.environment)
        key = (order.launch, point.world)
        if self._launch is not None and self._launch.has_ended:
            # It died between two trials: no fault of this one.
            await self._drop()
        if self._launch is not None and (self._launch.key != key or self._launch.is_stale):
            await self.close()
        startup_s = None
        try:
            if self._launch is None:
                self._launch = Launch(key, point, self._settings, ray.get_runtime_context().current_actor)
                await self._launch.start()
                startup_s = 0.0
            shards, started = await self._shards_for(self._launch, order)
            if startup_s is not None or started:
                startup_s = time.monotonic() - began
            report = await self._attempt(self._launch, order, shards)
            report.startup_s = startup_s
        except LaunchError as error:
            report = Report(outcomes={}, status=error.status, reason=str(error), startup_s=time.monotonic() - began)
            await self._drop()
        except Exception as error:  # noqa: BLE001  # whatever it is, it must reach the trial's row
            reason = f"the session failed: {type(error).__name__}: {error}"
            report = Report(outcomes={}, status="collateral", reason=reason)
            await self._drop()
        report.lane_is_spent = self._is_spent
        report.launch_has_ended = self._launch is None or self._launch.is_stale
        report.logs, self._logs = self._logs, {}
        self._reports[order.attempt_id] = report
        return {"attempt_id": order.attempt_id, "status": report.status}

    async def take(self, attempt_id: str) -> Report:
        """Hand over a report, once."""
        return self._reports.pop(attempt_id)

    async def close(self) -> dict[str, str]:
        """End the launch in order; return the logs that became known."""
        if self._launch is not None:
            self._drop_shards()
            await self._launch.close()
            await self._keep_logs()
            self._launch = None
        return self._logs

    async def hello(self, launch: str, rank: int, facts: Mapping[str, Any], actor: Any) -> None:
        """A rank has come up."""
        if self._launch is not None and self._launch.name == launch:
            self._launch.hello(rank, facts, actor)

    async def next(self, launch: str, rank: int) -> tuple[Order, Sequence[Any]] | None:
        """Wait for this rank's next order; None ends it."""
        if self._launch is None or self._launch.name != launch:
            return None
        mail: tuple[Order, Sequence[Any]] | None = await self._launch.mail[rank].get()
        return mail

    async def warm(self, launch: str, rank: int, slowest_s: float) -> None:
        """A rank begins its window."""
        if self._launch is not None and self._launch.name == launch:
            self._launch.warm[rank] = slowest_s
            self._launch.changed.set()

    async def done(self, launch: str, rank: int, outcome: Mapping[str, Any]) -> None:
        """A rank has ended its part of the attempt."""
        if self._launch is not None and self._launch.name == launch:
            self._launch.done[rank] = outcome
            self._launch.changed.set()

    async def _attempt(self, launch: Launch, order: Order, shards: Sequence[Any]) -> Report:
        began = time.monotonic()
        verdict = await self._collect(launch, order, shards)
        outcomes = {rank: {"facts": facts, **launch.done.get(rank, {})} for rank, facts in launch.facts.items()}
        reported = {rank: outcome for rank, outcome in outcomes.items() if "status" in outcome}
        status, reason = verdict or tuple(worst(reported).values())
        report = Report(outcomes=outcomes, status=status, reason=reason, launch=launch.name)
        report.trial_s = time.monotonic() - began
        report.shard_nodes = [rank % len(launch.facts) for rank in range(len(shards))]
        report.failed_rank = next(
            (rank for rank, o in reported.items() if o["status"] == status), launch.dead_rank or 0
        )
        if status not in UNBROKEN:
            await self._after_failure(launch, report)
        elif launch.leaves_memory(LEFT_OVER):
            report.flags.append("memory_left")
        if order.profile == "torch" and self._settings.gpus_per_worker:
            # What records a GPU stays attached to the process and slows all that follows.
            launch.is_stale = True
        return report

    async def _collect(self, launch: Launch, order: Order, shards: Sequence[Any]) -> tuple[str, str] | None:
        """Hand out an order and wait for all ranks; a status and reason where not all of them answered."""
        launch.hand_out(order, shards)
        deadline = time.monotonic() + order.measure.max_warmup_seconds
        window_known, grace = False, float("inf")
        while len(launch.done) < launch.workers:
            now = time.monotonic()
            failed = [o["status"] for o in launch.done.values() if o["status"] not in UNBROKEN]
            if launch.has_ended:
                # A rank that said why explains more than a process that ended after it.
                return None if set(failed) - {"collateral"} else await launch.verdict()
            if not window_known and len(launch.warm) == launch.workers:
                window_known = True
                slowest_s = max(launch.warm.values())
                # A window has a whole period, and another until all have seen that it ends; a profile has one too.
                periods_s = (2 + bool(order.profile)) * (order.point["sync_period"] or 1) * slowest_s
                window_s = (1 + AFTER) * order.measure.max_seconds
                deadline = now + window_s + max(60.0, 10 * slowest_s) + periods_s
            if failed and grace == float("inf"):
                # Losing a peer is no fault of this rank's: Ray will say in a moment who died.
                grace = now + (DEATH_SHOWS_S if set(failed) == {"collateral"} else OTHERS_REPORT_S)
            if now > grace:
                return None
            if now > deadline:
                return "hang", await launch.stacks(order.measure)
            await launch.wait(min(grace, deadline) - now)
        return None

    async def _after_failure(self, launch: Launch, report: Report) -> None:
        """Keep the launch only if its ranks are in step; the logs tell why it failed."""
        self._drop_shards()
        alone = launch.workers == 1 and len(launch.done) == 1
        positions = {outcome.get("position") for outcome in launch.done.values()}
        in_step = len(launch.done) == launch.workers and len(positions) == 1 and None not in positions
        if launch.has_ended or not (alone or in_step):
            await self._drop()
        else:
            await self._keep_logs()
        last = self._logs.get(f"{launch.name}/{report.failed_rank}", "").strip().splitlines()
        if (
            report.status in ("rank_died", "node_lost", "preempted", "oom_host")
            and last
            and not last[-1].startswith(NO_LOG)
        ):
            report.reason = f"{report.reason}; its last words: {last[-1].strip()}"

    async def _drop(self) -> None:
        """End the launch by force: its ranks wait for a peer that will not come."""
        if self._launch is not None:
            launch, self._launch = self._launch, None
            self._drop_shards()
            await launch.kill()
            self._is_spent = not launch.has_ended
            self._logs |= await launch.tails()

    async def _keep_logs(self) -> None:
        if self._launch is not None:
            self._logs |= await self._launch.tails()

    async def _shards_for(self, launch: Launch, order: Order) -> tuple[Sequence[Any], bool]:
        """The first shards of the pool, shard i on the node of rank i mod workers; whether some were started."""
        count = order.point["shards"] or 0
        if too_few := count > len(self._shards):
            from dtsweep.sync.parameter_server import Shard

            for index in range(len(self._shards), count):
                node = launch.facts[index % launch.workers]["node_id"]
                placed = NodeAffinitySchedulingStrategy(node, soft=False)
                self._shards.append(ray.remote(num_cpus=0)(Shard).options(scheduling_strategy=placed).remote())
            await asyncio.gather(*(shard.load.remote(self._settings.code) for shard in self._shards))
        return self._shards[:count], too_few

    def _drop_shards(self) -> None:
        for shard in self._shards:
            ray.kill(shard)
        self._shards = []
