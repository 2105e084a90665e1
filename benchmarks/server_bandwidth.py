"""Bandwidth of the parameter server's push and pull, next to `ray.put` and `ray.get`.

Workers in processes of their own push 64 MiB of gradients to one server and pull 64 MiB of
parameters, all at the same time, in three ways that alternate:

- "call": from the array of gradients to the array of parameters, by `Shard.exchange`;
- "step": from the gradients in the model to the parameters in the model, as a step of
  `ParameterServer` does after its passes;
- "put and get": two arrays of that size by `ray.put` and `ray.get`, as many as a push and a pull.

The server's optimizer does nothing: updates are not what is measured. A row has medians of the
rounds. The ratio of a call to put and get should be at least 60 %.

    .venv/bin/python -m benchmarks.server_bandwidth
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import torch
from torch import distributed, nn

from benchmarks.log_entry import heading, table
from dtsweep.measure.clock import CpuClock
from dtsweep.servers.parameter_server import ParameterServer
from dtsweep.session.shards import start_shard
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job

MIB = 2**20
GOAL = 0.6
"""Least share of the rate of `ray.put` and `ray.get`."""


class Idle(torch.optim.SGD):
    """An optimizer that leaves the parameters as they are."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it has no loss
        """Do nothing."""


class Worker:
    """A rank without passes: its gradients are there."""

    def __init__(self, rank: int, point: Point, size: int, shards: Sequence[Any]) -> None:
        """Hold 8 parameters of `size` bytes together; rank 0 resets the shards."""
        torch.set_num_threads(1)
        store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        parameters = [nn.Parameter(torch.ones(size // 32)) for _ in range(8)]
        self._model = nn.ParameterList(parameters)
        self._arrays = [np.ones(size // 4, np.float32) for _ in range(2)]
        job = Job(
            point=point,
            rank=rank,
            device=torch.device("cpu"),
            loss=lambda *_: torch.zeros(()),
            servers=shards,
        )
        self._mode = ParameterServer(job)
        self._mode.prepare(self._model, Idle)
        self._rank, self._shard = rank, shards[0]
        self._clock = CpuClock()

    def ready(self) -> None:
        """Make the gradients of a step."""
        for parameter in self._model:
            parameter.grad = torch.ones_like(parameter)

    def call(self) -> None:
        """Push an array, and have the array of parameters."""
        answer = self._shard.exchange.remote(self._rank, self._arrays[0], 0)
        values, _, _ = ray.get(answer)
        if isinstance(values, ray.ObjectRef):
            ray.get(values)

    def step(self) -> None:
        """Push the gradients, and have the parameters in the model."""
        self._clock.start()
        self._mode._push(self._clock, pulls=True)

    def put_and_get(self) -> None:
        """Put and get as much, one way and the other."""
        for array in self._arrays:
            ray.get(ray.put(array))


def seconds(ranks: Sequence[Any], way: str) -> float:
    """Time until all workers have pushed and pulled in a way, in seconds."""
    ray.get([rank.ready.remote() for rank in ranks])
    began = time.perf_counter()
    ray.get([getattr(rank, way).remote() for rank in ranks])
    return time.perf_counter() - began


def measured(workers: int, staleness: int | None, *, size: int, rounds: int) -> list[str]:
    """Row of the table for some workers."""
    point = Point(sync="parameter_server", workers=workers, staleness=staleness, optimizer="sgd")
    shards = [start_shard(ray.get_runtime_context().get_node_id(), node="here").actor]
    ranks = [
        ray.remote(Worker).options(num_cpus=0).remote(rank, point, size, shards)
        for rank in range(workers)
    ]
    ways: dict[str, list[float]] = {"call": [], "step": [], "put_and_get": []}
    for _ in range(rounds + 2):
        for way, times in ways.items():
            times.append(seconds(ranks, way))
    for actor in (*ranks, *shards):
        ray.kill(actor)
    # The first two of each are warm-up.
    medians = {way: statistics.median(times[2:]) for way, times in ways.items()}
    rates = [2 * size * workers / medians[way] / 1e9 for way in ways]
    share = rates[0] / rates[2]
    return [
        str(workers),
        str(staleness),
        *(f"{rate:.2f}" for rate in rates),
        f"{share:.0%}",
        "yes" if share >= GOAL else "no",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    ray.init(address="local", num_cpus=2, include_dashboard=False)
    rows = [
        measured(workers, staleness, size=options.mib * MIB, rounds=options.rounds)
        for staleness in (0, None)
        for workers in (1, 2, 4)
    ]
    ray.shutdown()
    rates = ("call, GB/s", "step, GB/s", "put and get, GB/s")
    names = ("workers", "staleness", *rates, "call by put and get", "at least 60 %")
    print(heading("bandwidth of the parameter server"), "", table(names, rows), sep="\n")


if __name__ == "__main__":
    main()
