"""One session of a world: its TorchTrainer on a thread, its ranks, and how it came to its end."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError

from dtsweep.provenance import release, versions
from dtsweep.session.nodes import answers, on_node, read_tail, write_stacks
from dtsweep.session.worker_loop import Settings, serve
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Measure
from dtsweep.sweep.task import Task

COLLECTIVE_TIMEOUT_S = 300
CLOSE_S = 30.0

IMPORT_S = 600.0
"""Ranks whose processes run have this long for their imports."""


class SessionError(Exception):
    """A session did not come up; `status` says in which way."""

    def __init__(self, status: str, message: str) -> None:
        """Keep the status of the trials that wanted it."""
        super().__init__(message)
        self.status = status


class Session:
    """The ranks of one world while they live."""

    def __init__(self, key: Any, point: Point, settings: Settings, lane: Any) -> None:
        """Prepare; `start` starts."""
        self.key, self.workers = key, point.workers
        self.name = f"{time.strftime('%Y%m%dT%H%M%S')}-w{point.workers}-{os.urandom(3).hex()}"
        self.inbox: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(point.workers)]
        self.facts: dict[int, Mapping[str, Any]] = {}
        self.warm: dict[int, float] = {}
        self.done: dict[int, Mapping[str, Any]] = {}
        self.changed = asyncio.Event()
        self.has_ended = False
        self.is_stale = False
        self.dead_rank: int | None = None
        self.point, self.settings, self.lane = point, settings, lane
        self._actors: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._memory_left: int | None = None
        self._storage = Path(settings.storage) / self.name

    async def start(self) -> None:
        """Start the ranks and wait for all of them.

        Raises:
            LaunchError: they did not come up.
        """
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._fit, args=(loop,), name=self.name, daemon=True)
        self._thread.start()
        until = time.monotonic() + self.settings.node_timeout_s + IMPORT_S
        while len(self.facts) < self.workers:
            if self.has_ended:
                raise SessionError(*self._why_not_up())
            if time.monotonic() > until:
                raise SessionError(
                    "hang", f"only ranks {sorted(self.facts)} came up: does an import wait for something?"
                )
            await self.wait(until - time.monotonic())
        self._compare_versions()

    def _compare_versions(self) -> None:
        here = {name: release(version) for name, version in versions().items()}
        for rank, facts in sorted(self.facts.items()):
            for name, version in here.items():
                there = release(facts["machine"].get(name, version))
                if there != version:
                    what = f"rank {rank} on {facts['node']} has {name} {there}, the driver {version}"
                    raise SessionError("version_mismatch", f"{what}; install the same on all nodes")

    def register(self, rank: int, facts: Mapping[str, Any], actor: Any) -> None:
        """A rank has come up."""
        self.facts[rank], self._actors[rank] = facts, actor
        self.changed.set()

    def hand_out(self, task: Task, shards: Sequence[Any]) -> None:
        """Give all ranks the same order."""
        self.warm.clear()
        self.done.clear()
        for queue in self.inbox:
            queue.put_nowait((task, shards))

    async def wait(self, seconds: float | None) -> None:
        """Wait until something happens, at most so long."""
        try:
            await asyncio.wait_for(self.changed.wait(), seconds)
        except TimeoutError:
            return
        self.changed.clear()

    async def close(self) -> None:
        """Let the ranks go home; by force if they don't."""
        for queue in self.inbox:
            queue.put_nowait(None)
        if not await self._joined(CLOSE_S):
            await self.kill()

    async def kill(self) -> None:
        """Kill the ranks and wait until the trainer has noticed."""
        for actor in self._actors.values():
            ray.kill(actor)
        await self._joined(CLOSE_S)
        shutil.rmtree(self._storage, ignore_errors=True)

    def leaves_memory(self, share: float) -> bool:
        """Whether a rank holds more than after the session's first trial; the next trial then gets a new session."""
        left = max(outcome["memory_left_bytes"] for outcome in self.done.values())
        device = min(outcome["device_bytes"] for outcome in self.done.values())
        if self._memory_left is None:
            self._memory_left = left
        self.is_stale = left - self._memory_left > share * device
        return self.is_stale

    async def verdict(self) -> tuple[str, str]:
        """Say how the session ended, which it should not have: status and reason."""
        failures: Mapping[int, BaseException] = getattr(self._error, "worker_failures", {})
        self.dead_rank = min(failures, default=None)
        where = f"rank {self.dead_rank} on {self.facts.get(self.dead_rank, {}).get('node', 'an unknown node')}"  # type: ignore[arg-type]  # None is no rank
        text = " ".join([str(self._error), *map(str, failures.values())])
        causes = [getattr(failure, "health_check_failure", failure) for failure in failures.values()]
        if any(isinstance(cause, RayActorError) and cause.preempted for cause in causes):
            return "preempted", f"the node of {where} was taken back"
        if "low on memory" in text or "OutOfMemory" in text:
            return "oom_host", f"{where} was killed: its node was low on memory"
        lost = await self._lost_nodes()
        if lost:
            return "node_lost", f"node {', '.join(lost)} is gone"
        return (
            "rank_died",
            f"{where} ended"
            if failures
            else f"the trainer ended: {text.splitlines()[0] if text else 'no reason given'}",
        )

    async def _lost_nodes(self) -> list[str]:
        """Names of nodes that are gone: Ray notices a node's end seconds later than that of its processes."""
        here = ray.get_runtime_context().get_node_id()
        nodes = {facts["node_id"]: facts["node"] for facts in self.facts.values() if facts["node_id"] != here}
        lives = await asyncio.gather(*map(answers, nodes))
        return sorted({name for name, answered in zip(nodes.values(), lives, strict=True) if not answered})

    async def stacks(self, measure: Measure) -> str:
        """Have all ranks write their stacks to their logs; say which ranks did not answer."""
        silent = sorted(set(range(self.workers)) - set(self.done))
        await asyncio.gather(*(on_node(facts["node_id"], write_stacks, facts["pid"]) for facts in self.facts.values()))
        names = ", ".join(f"{rank} on {self.facts[rank]['node']}" for rank in silent)
        phase = (
            f"a window of max_seconds={measure.max_seconds:g}, what follows it, and a minute"
            if self.warm
            else f"{measure.max_warmup_seconds:g} s of warm-up"
        )
        return f"no answer from rank {names} after {phase}; all stacks are in the logs"

    async def tails(self) -> dict[str, str]:
        """The ends of the ranks' logs, by `<session>/<rank>`; after the end the nodes forget them."""
        texts = await asyncio.gather(
            *(on_node(facts["node_id"], read_tail, facts["log"], self.has_ended) for facts in self.facts.values())
        )
        return {f"{self.name}/{rank}": text for rank, text in zip(self.facts, texts, strict=True)}

    def _fit(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            _trainer(self).fit()
        except Exception as error:  # noqa: BLE001  # whatever ends the trainer ends the session
            self._error = error
        loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self.has_ended = True
        self.changed.set()

    async def _joined(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.has_ended and time.monotonic() < until:
            await self.wait(until - time.monotonic())
        return self.has_ended

    def _why_not_up(self) -> tuple[str, str]:
        cause = getattr(self._error, "controller_failure", None) or self._error
        if "nsight profile failed" in str(cause):
            return "infeasible", "nsys does not run on the nodes; install Nsight Systems there, or leave --nsight out"
        if type(cause).__name__ in ("WorkerGroupStartupTimeoutError", "InsufficientClusterResourcesError"):
            seconds = f"{self.settings.node_timeout_s:g}"
            return "no_nodes", f"nodes for {self.workers} workers did not come in {seconds} s; see --node-timeout"
        failures: Mapping[int, BaseException] = getattr(self._error, "worker_failures", {})
        lines = str(next(iter(failures.values()), cause)).strip().splitlines()
        status = "user_error" if failures and not any("ActorDied" in str(f) for f in failures.values()) else "rank_died"
        return status, f"the workers did not start: {lines[-1] if lines else 'no reason given'}"


def _trainer(session: Session) -> Any:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    point, settings = session.point, session.settings
    resources = {"CPU": settings.cpus_per_worker}
    if settings.gpus_per_worker:
        resources["GPU"] = settings.gpus_per_worker
    variables = {"OMP_NUM_THREADS": str(settings.cpus_per_worker), **settings.environment, **point.environment}
    scaling = ScalingConfig(
        num_workers=point.workers,
        use_gpu=settings.gpus_per_worker > 0,
        resources_per_worker=resources,
        placement_strategy=point.placement.upper(),
        label_selector={"ray.io/node-id": f"in({','.join(settings.nodes)})"} if settings.nodes else None,
    )
    return TorchTrainer(
        serve,
        train_loop_config={
            "lane": session.lane,
            "session": session.name,
            "settings": settings,
            "variables": frozenset(variables),
        },
        scaling_config=scaling,
        torch_config=TorchConfig(
            backend="nccl" if settings.gpus_per_worker else "gloo", timeout_s=COLLECTIVE_TIMEOUT_S
        ),
        run_config=RunConfig(
            name=session.name,
            storage_path=settings.storage,
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            worker_runtime_env=_runtime(session, variables),
        ),
    )


def _runtime(session: Session, variables: Mapping[str, str]) -> dict[str, Any]:
    """What Ray sets up for the ranks' processes."""
    if not session.settings.nsight:
        return {"env_vars": dict(variables)}
    # Not in Ray's own folder, which ends with a private Ray.
    report = f"{tempfile.gettempdir()}/dtsweep-{session.name}_%p"
    options = {"t": "cuda,nvtx,osrt", "s": "none", "o": report, "stop-on-exit": "true"}
    if session.settings.gpus_per_worker:
        options |= {"capture-range": "cudaProfilerApi", "capture-range-end": "stop"}
    # Ray has nsys start a bare `python`: let that be this one.
    path = f"{Path(sys.executable).parent}:${{PATH}}"
    return {"env_vars": {**variables, "PATH": path}, "nsight": options}
