"""The deployment: a model behind Ray Serve's dynamic batches."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
from ray import cloudpickle, serve

from dtsweep.hardware.device import wait_for
from dtsweep.hardware.memory import peak_bytes
from dtsweep.hardware.random_states import set_seed
from dtsweep.serving.requests import ReplicaAnswer
from dtsweep.sweep.task import Task
from dtsweep.sync.compiled import compile_model, never_uncompiled
from dtsweep.sync.serving import ready_to_serve, serve_in_precision
from dtsweep.worker.attention import attention_kernel
from dtsweep.worker.mode_trial import seed_of, set_precision
from dtsweep.worker.model_work import described_parameters, facts_of_model
from dtsweep.workloads.datasets import batch_maker

Place = tuple[str, str | None]
"""Ray's name of a rank's node, and the UUID of its GPU."""

_Request = tuple[int, float]
"""Number of its sample, and the time at which it came to the replica."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Parts that all replicas of a deployment are made of."""

    task: Task
    workload: bytes
    """The sweep's, pickled: a class from the sweep file goes by value."""

    search_path: Sequence[str]
    places: Sequence[Place]
    """Of all ranks in their order."""

    threads: int
    """That PyTorch uses for one operation."""

    secrets: Mapping[str, str] = field(repr=False)


class Replica:
    """One replica: takes requests, which are numbers of samples, and serves them in batches.

    A batch of n requests is n samples with consecutive numbers from its first one's. It is made
    when its service begins and is part of it, as in the closed loop.
    """

    def __init__(self, setup: Any) -> None:
        """Build the model on a rank's device, and serve once with each size of a batch.

        Args:
            setup: Ray's reference to the `Setup`.
        """
        made_of: Setup = ray.get(setup)
        sys.path.extend(path for path in made_of.search_path if path not in sys.path)
        os.environ.update(made_of.secrets)
        self._rank, uuid = _place_of(made_of.places)
        # Before the first call of CUDA. Ray counts that GPU to the rank, and none to this process.
        os.environ["CUDA_VISIBLE_DEVICES"] = f"GPU-{uuid}" if uuid else ""
        self._device = torch.device("cuda", 0) if uuid else torch.device("cpu")
        # Torch's threads and modes are set by thread, and its calls must not keep the event loop
        # from taking requests.
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._build, made_of).result()
        point = made_of.task.point
        batched = serve.batch(max_batch_size=point.max_batch, batch_wait_timeout_s=point.max_wait_s)
        self._in_whole, self._in_parts = batched(self._whole), batched(self._parts)

    def _build(self, setup: Setup) -> None:
        """Build and warm up, in the thread that serves."""
        torch.set_num_threads(setup.threads)
        self._point = point = setup.task.point_of(cloudpickle.loads(setup.workload))
        set_precision(point.precision)
        # For good: this process serves no other point.
        self._modes = ExitStack()
        self._modes.enter_context(never_uncompiled(wanted=point.compile))
        self._modes.enter_context(attention_kernel(point.attention))
        set_seed(seed_of(setup.task))
        model = point.workload.build().to(self._device)
        self._parameters = described_parameters(model)
        self._model = ready_to_serve(model, point)
        if point.compile:
            compile_model(self._model, point.workload, by_blocks=False)
        self._make_batch = batch_maker(point.workload)
        self._serve = serve_in_precision(point, self._device)
        # The largest first: the allocator then has room for all.
        for size in range(point.max_batch or 1, 0, -1):
            outputs = [*self._answers([(0, 0.0)] * size)]
        self._makes_tokens = len(outputs) > 1

    def _answers(self, requests: Sequence[_Request]) -> Iterator[list[ReplicaAnswer]]:
        """Serve a batch; yield an answer to each request when each of its outputs is there."""
        began, (first, _) = time.perf_counter(), requests[0]
        batch = self._make_batch(range(first, first + len(requests)), self._device)
        for _ in self._serve(self._model, batch):
            wait_for(self._device)
            served_s, memory_bytes = time.perf_counter() - began, peak_bytes(self._device)
            yield [
                ReplicaAnswer(
                    rank=self._rank,
                    waited_s=began - came,
                    served_s=served_s,
                    memory_bytes=memory_bytes,
                )
                for _, came in requests
            ]

    async def _parts(self, requests: list[_Request]) -> AsyncIterator[list[ReplicaAnswer]]:
        """Serve a batch in the thread, and answer with each of its outputs."""
        answers, loop = self._answers(requests), asyncio.get_running_loop()
        while (made := await loop.run_in_executor(self._thread, next, answers, None)) is not None:
            yield made

    async def _whole(self, requests: list[_Request]) -> list[ReplicaAnswer]:
        """Serve a batch in the thread, and answer when all of it is there."""
        return [made async for made in self._parts(requests)][-1]

    async def answer(self, number: int) -> ReplicaAnswer:
        """Serve a request, and answer once."""
        answer: ReplicaAnswer = await self._in_whole((number, time.perf_counter()))
        return answer

    async def stream(self, number: int) -> AsyncIterator[ReplicaAnswer]:
        """Serve a request, and answer with each output."""
        async for answer in self._in_parts((number, time.perf_counter())):
            yield answer

    async def facts(self) -> dict[str, Any]:
        """Fields of `Measured` about the model."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._facts)

    def _facts(self) -> dict[str, Any]:
        facts = facts_of_model(self._point, self._model, self._parameters, self._device)
        return {**facts, "parameters": sum(p.numel() for p in self._model.parameters())}

    async def makes_tokens(self) -> bool:
        """True if a batch has several outputs, one after the other."""
        return self._makes_tokens


def _place_of(places: Sequence[Place]) -> tuple[int, str | None]:
    """Rank whose resources this replica uses, with its GPU's UUID: by its number on the node."""
    node_id = ray.get_runtime_context().get_node_id()
    here = [rank for rank, (node, _) in enumerate(places) if node == node_id]
    rank = here[serve.get_replica_context().rank.local_rank]
    return rank, places[rank][1]
